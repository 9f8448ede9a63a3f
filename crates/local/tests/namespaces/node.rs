//! A node, as far as these tests need it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::{FromRawFd, OwnedFd, RawFd},
    thread,
    time::Duration,
};

use perfrun_local::{NodeCommand, NodeProcess};

use crate::{
    ARGUMENT, MYSELF, ROLE, argument,
    support::{TEST_TIMEOUT, within},
};

pub(crate) const FLOOD_LINES: u32 = 200_000;

pub(crate) fn play(name: &str) {
    match name {
        "node_echo" => {
            let listener = TcpListener::bind(argument()).unwrap();
            eprintln!("listening");
            for stream in listener.incoming() {
                let (mut reader, mut writer) = (stream.as_ref().unwrap(), stream.as_ref().unwrap());
                io::copy(&mut reader, &mut writer).unwrap();
            }
        }
        "node_dial" => {
            let mut stream = TcpStream::connect(argument()).unwrap();
            let sent = [7; 100_000];
            let mut writer = stream.try_clone().unwrap();
            let writing = thread::spawn(move || writer.write_all(&sent));
            let mut received = [0; 100_000];
            stream.read_exact(&mut received).unwrap();
            writing.join().unwrap().unwrap();
            assert_eq!(received, sent);
        }
        "node_control" => answer_control(),
        "node_flood" => {
            let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
            for number in 0..FLOOD_LINES {
                writeln!(err, "line {number} of a log that nobody asked for").unwrap();
                writeln!(out, "{{\"record\": {number}}}").unwrap();
            }
            err.write_all(&vec![b'x'; 10_000_000]).unwrap();
            writeln!(err, "\nthe end").unwrap();
        }
        unknown => panic!("no node {unknown}"),
    }
}

/// Sends each caller lines `key value` about this process and where it is.
fn answer_control() {
    let files = fs::read_dir("/proc/self/fd").unwrap().count() - 1; // without the one that lists them
    let token = fs::read_to_string(env::var("PERFRUN_TOKEN_FILE").unwrap()).unwrap();
    let number: RawFd = env::args().skip_while(|arg| arg != "--control").nth(1).unwrap()["fd:".len()..]
        .parse()
        .unwrap();
    // SAFETY: the number was given to this process, which uses it for this listener only.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(number) });
    listener.set_nonblocking(false).unwrap();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let status = |key: &str| {
        let status = read("/proc/self/status");
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(key));
        value.unwrap_or_default().trim().to_owned()
    };
    let answer = [
        ("token", token),
        ("files", files.to_string()),
        ("group", rustix::process::getpgrp().as_raw_nonzero().to_string()),
        (
            "namespace",
            fs::read_link("/proc/self/ns/net").unwrap().display().to_string(),
        ),
        (
            "links",
            own_links()
                .into_iter()
                .filter(|link| link == "eth0" || link == "lo")
                .collect::<Vec<_>>()
                .join(" "),
        ),
        ("ports", read("/proc/sys/net/ipv4/ip_local_port_range")),
        ("cpus", status("Cpus_allowed_list:")),
        ("reuse", read("/proc/sys/net/ipv4/tcp_tw_reuse")),
    ];
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        for (key, value) in &answer {
            writeln!(stream, "{key} {value}").unwrap();
        }
    }
}

/// The answer of a `node_control`, fetched from outside its namespace.
pub(crate) fn ask_control(node: &NodeProcess) -> BTreeMap<String, String> {
    let stream = TcpStream::connect_timeout(&node.control_addr(), TEST_TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let answer: BTreeMap<_, _> = io::read_to_string(stream)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    assert!(!answer.is_empty(), "{:?}", node.log_tail());
    answer
}

pub(crate) async fn log_says(node: &NodeProcess, line: &str) {
    assert_eq!(first_log_line(node).await, line);
}

pub(crate) async fn first_log_line(node: &NodeProcess) -> String {
    within(async {
        loop {
            if let Some(line) = node.log_tail().into_iter().next() {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

pub(crate) fn node(role: &str, argument: &str) -> NodeCommand {
    let mut command = NodeCommand::new(role, MYSELF);
    command.env = vec![(ROLE.into(), role.into()), (ARGUMENT.into(), argument.into())];
    command
}

pub(crate) fn shell(script: &str) -> NodeCommand {
    let mut command = NodeCommand::new("shell", "/bin/sh");
    command.args = vec!["-c".into(), script.into()];
    command
}

pub(crate) fn own_links() -> BTreeSet<String> {
    let devices = fs::read_to_string("/proc/self/net/dev").unwrap();
    devices
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}
