//! One TCP connection that sends as fast as it can.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::net::sockopt::set_tcp_congestion;

use super::pair::{FAR, VethPair};

const CHUNK: usize = 256 << 10;

/// A connection from the near end to the far end that sends until it is dropped.
pub(super) struct Flow {
    received: Arc<AtomicU64>,
    stream: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

/// The bytes received in a time.
pub(super) struct Received {
    pub bytes: u64,
    time: Duration,
}

impl Received {
    pub(super) fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64()
    }
}

impl Flow {
    pub(super) fn start(pair: &VethPair) -> Result<Self> {
        let listener = pair.far.run(|| TcpListener::bind((FAR, 0)))?;
        let address = listener.local_addr()?;
        let stream = pair
            .near
            .run(|| TcpStream::connect(address))
            .context("failed to connect over the link")?;
        // Fills a link without loss. Others, BBR above all, find out what a link carries by sending less for
        // a while, which would be a share of the ratio.
        set_tcp_congestion(&stream, "cubic")
            .context("failed to choose cubic (`modprobe tcp_cubic` as root)")?;
        let (mut receiving, _) = listener.accept()?;
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        let receiver = thread::spawn(move || {
            let mut buffer = vec![0; CHUNK];
            // Any end of the connection ends the count.
            while let Ok(length @ 1..) = receiving.read(&mut buffer) {
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        let mut sending = stream.try_clone()?;
        let sender = thread::spawn(move || {
            let chunk = vec![0; CHUNK];
            while sending.write_all(&chunk).is_ok() {}
        });
        Ok(Self {
            received,
            stream,
            threads: vec![receiver, sender],
        })
    }

    /// Counts what the receiver gets in this time.
    pub(super) fn carry(&self, time: Duration) -> Result<Received> {
        let begun = Instant::now();
        let before = self.received.load(Ordering::Relaxed);
        thread::sleep(time);
        let bytes = self.received.load(Ordering::Relaxed) - before;
        let time = begun.elapsed();
        anyhow::ensure!(bytes > 0, "nothing was received in {time:?}");
        Ok(Received { bytes, time })
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // Ends both threads.
        let _ = self.stream.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
