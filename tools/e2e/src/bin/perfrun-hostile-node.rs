//! `perfrun-hostile-node`: the node of a tenant that wants to stop the operator. The soak has an image of it.
//!
//! It describes itself as honest nodes do. Calls for the status of a trial get in turn 8 MiB of small values,
//! a byte per second, a redirect, and the answer of an honest node.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Most bytes of a status that a conductor reads.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// How many statuses of trials were requested.
static TURN: AtomicUsize = AtomicUsize::new(0);

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("[::]:9090").or_else(|_| TcpListener::bind("0.0.0.0:9090"))?;
    for stream in listener.incoming() {
        let stream = stream?;
        // A caller that leaves ends the thread.
        thread::spawn(move || serve(stream));
    }
    Ok(())
}

/// Answers one call, and closes the connection.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut call = String::new();
    reader.read_line(&mut call)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(bytes) = header.strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap_or(0);
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink())?;
    let mut words = call.split_whitespace();
    match (words.next(), words.next().unwrap_or_default()) {
        (_, "/healthz" | "/readyz") => whole(&mut stream, "ok\n"),
        (_, "/v1/info") => whole(&mut stream, &info()),
        (_, "/v1/clock") => whole(&mut stream, r#"{"nanoseconds": 1}"#),
        (Some("GET"), _) => hostile(&mut stream),
        _ => whole(&mut stream, "{}"),
    }
}

fn info() -> String {
    let ip = env::var("PERFRUN_LISTEN_IP").unwrap_or_else(|_| "127.0.0.1".to_owned());
    format!(
        r#"{{"version": "0", "stacks": {{"libp2p": "0"}}, "profile": "release", "listenIp": "{ip}",
             "host": "hostile", "kernel": "6.1", "cpu": "abacus", "cpus": 2}}"#
    )
}

fn hostile(stream: &mut TcpStream) -> io::Result<()> {
    match TURN.fetch_add(1, Ordering::Relaxed) % 5 {
        0 => large(
            stream,
            r#"{"state": "ready", "bytesSent": 0, "bytesReceived": 0, "addresses": ["#,
            r#""","#,
        ),
        1 => large(
            stream,
            r#"{"state": "finished", "bytesSent": 0, "bytesReceived": 0, "outcome": {"measured": {"refused": {"#,
            r#""":1,"#,
        ),
        2 => slow(stream),
        3 => stream.write_all(
            b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:8080/metrics\r\n\
              content-length: 0\r\nconnection: close\r\n\r\n",
        ),
        _ => whole(
            stream,
            r#"{"state": "ready", "bytesSent": 0, "bytesReceived": 0, "addresses": ["/ip4/127.0.0.1/tcp/1"]}"#,
        ),
    }
}

fn whole(stream: &mut TcpStream, body: &str) -> io::Result<()> {
    head(stream, body.len())?;
    stream.write_all(body.as_bytes())
}

/// As many small parts of an answer as a conductor reads.
fn large(stream: &mut TcpStream, begin: &str, part: &str) -> io::Result<()> {
    head(stream, ANSWER_BYTES_MAX)?;
    let mut body = begin.to_owned() + &part.repeat(ANSWER_BYTES_MAX / part.len());
    body.truncate(ANSWER_BYTES_MAX);
    body += &" ".repeat(ANSWER_BYTES_MAX - body.len());
    stream.write_all(body.as_bytes())
}

/// An answer that does not end while anybody reads it.
fn slow(stream: &mut TcpStream) -> io::Result<()> {
    head(stream, ANSWER_BYTES_MAX)?;
    loop {
        stream.write_all(b" ")?;
        thread::sleep(Duration::from_secs(1));
    }
}

fn head(stream: &mut TcpStream, length: usize) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    )
}
