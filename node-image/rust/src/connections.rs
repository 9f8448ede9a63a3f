//! Connections of the control port: HTTP/1.1, limited in their number and in the time that a request may take
//! to arrive.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What peers of the port may take of the node, even without a token.
pub(crate) struct ConnectionLimits {
    /// Connections at the same time. Others wait until one ends.
    pub(crate) connections: usize,
    /// How long the head of a request may take after the connection or the last answer.
    pub(crate) head: Duration,
}

/// Serves until `stop`, and then until calls in progress have their answers.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let accept = async {
        while let Ok(counted) = room.clone().acquire_owned().await {
            let stream = accept(&listener).await;
            // Calls are small, so waiting for a full segment would only delay the start barrier.
            let _ = stream.set_nodelay(true);
            let connection = connection(stream, router.clone(), limits.head, stop.clone());
            connections.spawn(async move {
                connection.await;
                drop(counted);
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
                tracing::warn!(%error, "failed to accept a call");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    head: Duration,
    stop: CancellationToken,
) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the control port broke");
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Instant};

    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };

    use super::*;

    const HEAD: Duration = Duration::from_millis(300);
    /// More than any call takes, even on a loaded machine.
    const PATIENCE: Duration = Duration::from_secs(20);
    const CALL: &[u8] = b"GET / HTTP/1.1\r\nHost: node\r\n\r\n";

    async fn start(connections: usize) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let slow = get(async || {
            tokio::time::sleep(3 * HEAD).await;
            "slow"
        });
        let router = Router::new()
            .route("/", get(async || "quick"))
            .route("/slow", slow);
        let limits = ConnectionLimits {
            connections,
            head: HEAD,
        };
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, router, limits, stop.clone()));
        (address, stop)
    }

    async fn rest(stream: &mut TcpStream) -> String {
        let mut text = vec![];
        let read = timeout(PATIENCE, stream.read_to_end(&mut text));
        read.await.expect("the connection is closed").unwrap();
        String::from_utf8(text).unwrap()
    }

    async fn answer(stream: &mut TcpStream, call: &[u8]) -> String {
        stream.write_all(call).await.unwrap();
        let mut text = vec![0; 1000];
        let read = timeout(PATIENCE, stream.read(&mut text)).await;
        text.truncate(read.expect("there is an answer").unwrap());
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_connection_without_a_whole_request_is_closed() {
        let (address, _stop) = start(8).await;
        for part in [&b""[..], b"G", &CALL[..20]] {
            let begun = Instant::now();
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(part).await.unwrap();
            rest(&mut stream).await;
            assert!(begun.elapsed() >= HEAD);
        }
    }

    /// In memory and with time paused, a busy machine takes no longer.
    #[tokio::test(start_paused = true)]
    async fn a_head_that_arrives_byte_by_byte_has_no_more_time() {
        let (peer, stream) = tokio::io::duplex(64);
        let router = Router::new().route("/", get(async || "quick"));
        tokio::spawn(connection(stream, router, HEAD, CancellationToken::new()));
        let (mut read, mut write) = tokio::io::split(peer);
        let begun = tokio::time::Instant::now();
        tokio::spawn(async move {
            while write.write_all(b"G").await.is_ok() {
                tokio::time::sleep(HEAD / 10).await;
            }
        });
        let ended = timeout(PATIENCE, read.read_to_end(&mut vec![])).await;
        ended.expect("the connection is closed").unwrap();
        let elapsed = begun.elapsed();
        assert!((HEAD..5 * HEAD).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test]
    async fn an_answer_may_take_longer_and_the_connection_is_kept_for_the_next_call() {
        let (address, _stop) = start(8).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let slow = b"GET /slow HTTP/1.1\r\nHost: node\r\n\r\n";
        assert!(answer(&mut stream, slow).await.ends_with("slow"));
        for _ in 0..6 {
            // Together longer than the limit, which starts again with every answer.
            tokio::time::sleep(HEAD / 4).await;
            assert!(answer(&mut stream, CALL).await.ends_with("quick"));
        }
        assert_eq!(rest(&mut stream).await, "", "and is closed in the end");
    }

    #[tokio::test]
    async fn a_call_beyond_the_limit_waits_until_a_silent_connection_has_gone() {
        let (address, _stop) = start(2).await;
        let mut silent = vec![];
        for _ in 0..2 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let begun = Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert!(answer(&mut stream, CALL).await.ends_with("quick"));
        assert!(begun.elapsed() >= HEAD / 2, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_call_in_progress_gets_its_answer_after_the_stop() {
        let (address, stop) = start(8).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let idle = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /slow HTTP/1.1\r\nHost: node\r\n\r\n")
            .await
            .unwrap();
        tokio::time::sleep(HEAD / 3).await;
        stop.cancel();
        assert!(rest(&mut stream).await.ends_with("slow"));
        drop(idle);
        TcpStream::connect(address).await.unwrap_err();
    }
}
