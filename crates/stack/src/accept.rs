//! Accepting connections of TCP.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};

/// Passes on each accepted connection, with a permit that counts it against the limit until it is dropped.
pub(super) async fn accept(
    listener: TcpListener,
    limit: usize,
    what: &str,
    mut take: impl FnMut(TcpStream, SocketAddr, OwnedSemaphorePermit),
) {
    let room = Arc::new(Semaphore::new(limit));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match Arc::clone(&room).try_acquire_owned() {
                Ok(counted) => take(stream, from, counted),
                Err(_) => tracing::debug!("refused {what} above the limit"),
            },
            Err(error) => {
                // Usually the process is out of file descriptors, which closing connections return.
                tracing::warn!(%error, "failed to accept {what}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
