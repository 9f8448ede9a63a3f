//! Floods of connections.

use std::io::ErrorKind;

use futures::future::join_all;
use perfrun_contract::matrix::{Stack, Transport};
use perfrun_test_kit::{Need, skip};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;

use crate::support::*;

/// The node's limit, and the size of the flood beyond it.
const LIMIT: usize = 8192;
const BEYOND: usize = 200;

/// Whether the other end still keeps a connection open.
fn is_open(stream: &TcpStream) -> bool {
    loop {
        match stream.try_read(&mut [0; 64]) {
            // libp2p may send the first bytes.
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            _ => return false,
        }
    }
}

#[tokio::test]
async fn a_flood_of_connections_is_cut_off_at_the_limit() {
    let limits = getrlimit(Resource::Nofile);
    let needed = (LIMIT + BEYOND + 500) as u64;
    if limits.maximum.is_some_and(|most| most < needed) {
        let reason = format!("{needed} open files are needed, and {:?} allowed", limits.maximum);
        return skip(Need::OpenFiles, "all", &reason);
    }
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let node = Node::start();
    for stack in [Stack::Libp2p, Stack::Raw] {
        let addresses = node.serve("a", stack, Transport::Tcp, &endless_ping()).await;
        let target = format!("127.0.0.1:{}", addresses[0].split('/').nth(4).unwrap());
        let before = node.proc_status("VmRSS");
        let mut streams = vec![];
        for _ in 0..(LIMIT + BEYOND) / 100 {
            streams.extend(join_all((0..100).map(|_| TcpStream::connect(&target))).await);
        }
        let streams: Vec<TcpStream> = streams.into_iter().map(Result::unwrap).collect();
        // Connections beyond the limit end, all others stay. On libp2p, the first ones may have timed out and
        // made room: its limit includes both kinds, and is never exceeded.
        eventually("the end of those beyond the limit", async || {
            streams.iter().filter(|stream| is_open(stream)).count() <= LIMIT
        })
        .await;
        let held = node.descriptors();
        assert!(held <= LIMIT + 200, "{stack}: {held} open files");
        let grown = node.proc_status("VmRSS").saturating_sub(before) >> 10;
        println!("{stack}: {grown} MiB for {held} files");
        assert!(grown < 400, "{stack}: {grown} MiB");
        node.delete("a").await;
        node.outcome("a").await;
        node.delete("a").await;
        // The node serves again.
        node.serve("b", stack, Transport::Tcp, &ping(1, 0.0)).await;
        node.finish("b").await;
        assert!(node.outcome("b").await.failure.is_none());
        node.delete("b").await;
    }
}
