//! A peer of a client: one identity and its connection.

use perfrun_contract::{matrix::Transport, node::Reason};
use perfrun_stack::{self as stack, Connection, Host};
use tokio::sync::mpsc;

use super::{
    failed::{Failed, failure},
    setup::Setup,
};

/// One identity of a client, and the server that it talks to.
pub(super) struct Peer {
    pub(super) host: Box<dyn Host>,
    pub(super) server: String,
    /// The servers that the peer talks to. Empty if opening connections is part of the workload.
    pub(super) connected_servers: Vec<ConnectedServer>,
}

/// A server that a peer has connected to.
pub(super) struct ConnectedServer {
    pub(super) connection: Box<dyn Connection>,
    /// How far the server's clock is ahead of this node's, in nanoseconds, if that is known.
    pub(super) clock: Option<i64>,
}

impl Peer {
    /// The server, or the first of several, to which `Client::prepare` has connected.
    pub(super) fn first_connected_server(&self) -> Result<&ConnectedServer, Failed> {
        self.connected_servers.first().ok_or_else(|| {
            Failed(failure(
                Reason::Internal,
                "this workload was prepared without a connection",
            ))
        })
    }

    /// The connection with [the first connected server](Self::first_connected_server).
    pub(super) fn connection(&self) -> Result<&dyn Connection, Failed> {
        Ok(&*self.first_connected_server()?.connection)
    }
}

/// Starts a host that only dials, with an identity of its own.
pub(super) async fn dialler(setup: &Setup) -> Result<Box<dyn Host>, stack::Error> {
    // A dialler has no inbound events, so the receiver may go.
    let (inbound, _) = mpsc::unbounded_channel();
    stack::start(setup.stack, setup.host(None), inbound).await
}

/// Dials a connection that a workload needs but does not measure. After a lost dial, a new host replaces
/// `host` and dials again.
pub(super) async fn dial(
    setup: &Setup,
    host: &mut Box<dyn Host>,
    server: &str,
) -> Result<Box<dyn Connection>, stack::Error> {
    dial_up_to(dials(setup.transport), setup, host, server).await
}

/// Number of dials for a connection that a workload needs but does not measure.
///
/// libp2p's WebRTC loses a dial, after 10 s, if it handles the peer's first message before its channel is
/// open (webrtc-rs issue 821). Our listeners prevent that, those of others may not. Each lost dial counts as
/// a failure.
fn dials(transport: Transport) -> u32 {
    match transport {
        // They take a minute, which a trial has.
        Transport::WebrtcDirect => 6,
        _ => 1,
    }
}

async fn dial_up_to(
    mut left: u32,
    setup: &Setup,
    host: &mut Box<dyn Host>,
    server: &str,
) -> Result<Box<dyn Connection>, stack::Error> {
    loop {
        left -= 1;
        match host.dial(server).await {
            Err(error @ stack::Error::Dial { .. }) if left > 0 => {
                tracing::warn!(%error, "a dial failed, another host tries again");
                setup.observer.counters.count_failure(Reason::DialFailed);
                std::mem::replace(host, dialler(setup).await?).close().await;
            }
            dialled => return dialled,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use perfrun_contract::{
        matrix::Stack,
        parameters::{Parameters, Ping},
    };
    use perfrun_stack::Reservation;

    use super::*;

    /// A host whose dials are all lost.
    struct Losing;

    #[async_trait]
    impl Host for Losing {
        fn addresses(&self) -> &[String] {
            &[]
        }

        async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, stack::Error> {
            Err(stack::Error::Dial {
                address: address.to_owned(),
                reason: "the dial is lost".to_owned(),
            })
        }

        async fn reserve(&self, _: &str) -> Result<Reservation, stack::Error> {
            unreachable!("a dialler reserves nothing")
        }

        async fn close(self: Box<Self>) {}
    }

    /// Dials a live server from a host whose own dial is lost; returns whether that succeeded, and the
    /// failures.
    async fn after_a_lost_dial(stack: Stack, most: u32) -> (bool, BTreeMap<Reason, u64>) {
        let setup = Setup::of(
            stack,
            Parameters::Ping(Ping {
                count: 1,
                interval_seconds: 0.0,
            }),
        );
        let (inbound, _events) = mpsc::unbounded_channel();
        let server = stack::start(stack, setup.host(Some(setup.listen)), inbound)
            .await
            .unwrap();
        let mut host: Box<dyn Host> = Box::new(Losing);
        let dialled = dial_up_to(most, &setup, &mut host, &server.addresses()[0]).await;
        let errors = setup.observer.finish().totals.counts.errors();
        (dialled.is_ok(), errors)
    }

    #[tokio::test]
    async fn another_host_repeats_a_lost_dial_which_counts_as_a_failure() {
        for stack in [Stack::Libp2p, Stack::Litep2p, Stack::Raw] {
            let one = BTreeMap::from([(Reason::DialFailed, 1)]);
            assert_eq!(after_a_lost_dial(stack, 3).await, (true, one), "{stack}");
        }
    }

    #[tokio::test]
    async fn the_last_lost_dial_is_the_callers_failure() {
        let (connected, counted) = after_a_lost_dial(Stack::Libp2p, 1).await;
        assert!(!connected);
        assert_eq!(counted, BTreeMap::new());
    }
}
