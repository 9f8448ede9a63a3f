//! Connections: HTTP/1.1, limited in their number, in the time that a request may take to arrive, and in the
//! time that an answer waits for its reader.

use std::time::Duration;

use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::Service, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::caller::{Caller, ConnectionSlots};

/// How long the head of the first request may take after the connection.
const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may wait for its reader without progress.
const STUCK_TIMEOUT: Duration = Duration::from_secs(30);

/// What peers may take of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    connections: usize,
    idle: Duration,
    first_head: Duration,
    stuck: Duration,
}

impl Limits {
    /// This number of connections at the same time. Each may be idle for this time between an answer and the
    /// head of the next request.
    pub const fn new(connections: usize, idle: Duration) -> Self {
        Self {
            connections,
            idle,
            first_head: FIRST_HEAD_TIMEOUT,
            stuck: STUCK_TIMEOUT,
        }
    }
}

/// Serves until `stop`, and then until calls in progress have their answers.
///
/// A connection ends if the head of its first request takes longer than 5 s, that of a later one longer than
/// the limit, and if its peer takes nothing of an answer for 30 s. Beyond the limit of connections, the
/// oldest one without a call that passed [`require_token`](crate::require_token) ends in favour of the new
/// one.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let slots = ConnectionSlots::new(limits.connections);
    let connections = TaskTracker::new();
    let accept = async {
        loop {
            let stream = accept(&listener).await;
            let Some(slot) = slots.take() else {
                tracing::debug!("refused a connection above the limit");
                continue;
            };
            // Calls are small, so waiting for a full segment would only delay the start barrier.
            let _ = stream.set_nodelay(true);
            let connection = connection(stream, router.clone(), limits, slot.caller.clone(), stop.clone());
            connections.spawn(async move {
                connection.await;
                drop(slot);
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = stop.cancelled() => {}
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                // Usually the process is out of file descriptors, which closing connections return.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    router: Router,
    limits: Limits,
    caller: Caller,
    stop: CancellationToken,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.stuck));
    let router = TowerToHyperService::new(router);
    let noted = caller.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        noted.note_request();
        request.extensions_mut().insert(noted.clone());
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    tokio::pin!(served);
    let silent = async {
        if timeout(limits.first_head, caller.wait_for_request())
            .await
            .is_ok()
        {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = silent => return,
        () = caller.wait_until_replaced() => return,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::{Extension, routing::get};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
        task::JoinHandle,
        time::{Instant, sleep},
    };

    use super::*;

    const HEAD: Duration = Duration::from_millis(300);
    const LIMITS: Limits = Limits {
        first_head: HEAD,
        ..Limits::new(8, HEAD)
    };
    /// More than any call takes, even on a loaded machine.
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);
    const CALL: &[u8] = b"GET / HTTP/1.1\r\nHost: node\r\n\r\n";

    /// A connection in memory. With time paused, it is as fast on a busy machine as on any other.
    fn connect(router: Router, limits: Limits) -> (DuplexStream, JoinHandle<()>) {
        let (peer, stream) = tokio::io::duplex(1024);
        let (caller, stop) = (Caller::default(), CancellationToken::new());
        let served = tokio::spawn(connection(stream, router, limits, caller, stop));
        (peer, served)
    }

    fn quick() -> Router {
        Router::new().route("/", get(async || "quick"))
    }

    /// Serves on a socket.
    async fn start(router: Router, limits: Limits, stop: CancellationToken) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tokio::spawn(serve(listener, router, limits, stop)))
    }

    async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
        let mut text = vec![];
        let read = timeout(TEST_TIMEOUT, stream.read_to_end(&mut text));
        read.await.expect("the connection is closed").unwrap();
        String::from_utf8(text).unwrap()
    }

    async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), call: &[u8]) -> String {
        stream.write_all(call).await.unwrap();
        let mut text = vec![0; 1000];
        let read = timeout(TEST_TIMEOUT, stream.read(&mut text)).await;
        text.truncate(read.expect("there is an answer").unwrap());
        String::from_utf8(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_request_is_closed() {
        for part in [&b""[..], b"G", &CALL[..20]] {
            let begun = Instant::now();
            let (mut peer, _) = connect(quick(), LIMITS);
            peer.write_all(part).await.unwrap();
            rest(&mut peer).await;
            let elapsed = begun.elapsed();
            assert!((HEAD..2 * HEAD).contains(&elapsed), "{elapsed:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_arrives_byte_by_byte_has_no_more_time() {
        let (peer, _) = connect(quick(), Limits::new(1, HEAD));
        let (mut read, mut write) = tokio::io::split(peer);
        let begun = Instant::now();
        tokio::spawn(async move {
            while write.write_all(b"G").await.is_ok() {
                sleep(HEAD / 10).await;
            }
        });
        rest(&mut read).await;
        let elapsed = begun.elapsed();
        assert!((HEAD..5 * HEAD).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_longer_and_the_connection_is_kept_for_the_next_call() {
        let slow = get(async || {
            sleep(3 * HEAD).await;
            "slow"
        });
        let (mut peer, _) = connect(quick().route("/slow", slow), LIMITS);
        let slow = b"GET /slow HTTP/1.1\r\nHost: node\r\n\r\n";
        assert!(answer(&mut peer, slow).await.ends_with("slow"));
        for _ in 0..6 {
            // Together longer than the limit, which starts again with every answer.
            sleep(HEAD / 4).await;
            assert!(answer(&mut peer, CALL).await.ends_with("quick"));
        }
        assert_eq!(rest(&mut peer).await, "", "and is closed in the end");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_request_has_less_time_than_later_ones() {
        let limits = Limits::new(1, 4 * FIRST_HEAD_TIMEOUT);
        let begun = Instant::now();
        let (mut peer, _) = connect(quick(), limits);
        rest(&mut peer).await;
        let silent = begun.elapsed();

        let begun = Instant::now();
        let (mut peer, _) = connect(quick(), limits);
        assert!(answer(&mut peer, CALL).await.ends_with("quick"));
        rest(&mut peer).await;
        let idle = begun.elapsed();
        assert!(
            (FIRST_HEAD_TIMEOUT..2 * FIRST_HEAD_TIMEOUT).contains(&silent),
            "{silent:?}"
        );
        assert!(
            (4 * FIRST_HEAD_TIMEOUT..5 * FIRST_HEAD_TIMEOUT).contains(&idle),
            "{idle:?}"
        );
    }

    /// A peer that sends many requests together and reads none of the answers. hyper has no timer for that.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_its_answers_loses_the_connection() {
        let router = Router::new().route("/", get(async || "0".repeat(64 << 10)));
        let begun = Instant::now();
        let (mut peer, served) = connect(router, Limits::new(1, HEAD));
        peer.write_all(&CALL.repeat(20)).await.unwrap();
        timeout(10 * STUCK_TIMEOUT, served)
            .await
            .expect("it ends")
            .unwrap();
        let elapsed = begun.elapsed();
        assert!(
            (STUCK_TIMEOUT..2 * STUCK_TIMEOUT).contains(&elapsed),
            "{elapsed:?}"
        );
        drop(peer);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_pauses_for_less_than_the_limit_gets_all_of_a_large_answer() {
        let router = Router::new().route("/", get(async || "0".repeat(1 << 20)));
        let (mut peer, _) = connect(router, LIMITS);
        let call = b"GET / HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        peer.write_all(call).await.unwrap();
        sleep(STUCK_TIMEOUT - HEAD).await;
        assert!(rest(&mut peer).await.len() > 1 << 20);
    }

    #[tokio::test]
    async fn silent_connections_keep_no_caller_out_and_displace_no_trusted_one() {
        let hour = Duration::from_secs(3600);
        let limits = Limits {
            first_head: hour,
            ..Limits::new(2, hour)
        };
        let trusted = get(async |Extension(caller): Extension<Caller>| {
            caller.trust();
            "trusted"
        });
        let (address, _) = start(
            quick().route("/trusted", trusted),
            limits,
            CancellationToken::new(),
        )
        .await;
        let mut trusted = TcpStream::connect(address).await.unwrap();
        let call = b"GET /trusted HTTP/1.1\r\nHost: node\r\n\r\n";
        assert!(answer(&mut trusted, call).await.ends_with("trusted"));
        let mut silent = vec![];
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        for stream in &mut silent[..19] {
            assert_eq!(rest(stream).await, "", "another took its place");
        }
        let mut stranger = TcpStream::connect(address).await.unwrap();
        assert!(answer(&mut stranger, CALL).await.ends_with("quick"));
        assert!(answer(&mut trusted, CALL).await.ends_with("quick"));
    }

    #[tokio::test]
    async fn a_call_in_progress_gets_its_answer_after_the_stop() {
        let (begun, stop) = (CancellationToken::new(), CancellationToken::new());
        let late = get({
            let (begun, stop) = (begun.clone(), stop.clone());
            async move || {
                begun.cancel();
                stop.cancelled().await;
                "late"
            }
        });
        let router = Router::new().route("/", late);
        let (address, served) = start(router, Limits::new(8, TEST_TIMEOUT), stop.clone()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let idle = TcpStream::connect(address).await.unwrap();
        stream.write_all(CALL).await.unwrap();
        begun.cancelled().await;
        stop.cancel();
        assert!(rest(&mut stream).await.ends_with("late"));
        drop(idle);
        timeout(TEST_TIMEOUT, served).await.expect("it ends").unwrap();
        TcpStream::connect(address).await.unwrap_err();
    }
}
