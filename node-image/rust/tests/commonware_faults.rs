//! commonware-p2p with limits that are too low, and with clocks that disagree.
#![cfg(feature = "commonware")]
#![allow(clippy::unwrap_used)]

use std::{
    future::poll_fn,
    io,
    net::Ipv4Addr,
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use perfrun_contract::{histogram::recorder, parameters::Amount, quantity::ByteSize, workload::MessageMode};
use perfrun_node::wire::{
    self, Counters,
    messages::{self, Exchanged},
};
use perfrun_stack::{
    Error, Host, Inbound,
    limited::{CLOCK_DIFFERENCE_MAX, Limits, host},
    messenger::{BoxMessenger, Message},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A window of 64 messages.
fn load(count: u64) -> perfrun_contract::parameters::Messages {
    perfrun_contract::parameters::Messages {
        mode: MessageMode::Stream,
        message_bytes: ByteSize(64),
        amount: Amount::Count(count),
        window: 64,
        rate: None,
        priority: false,
        receivers: 1,
    }
}

fn usual() -> Limits {
    Limits::of(&load(1), true)
}

/// Limits with a quota.
fn quota(rate: u32, burst: u32) -> Limits {
    let [rate, burst] = [rate, burst].map(|number| NonZeroU32::new(number).unwrap());
    Limits {
        rate,
        burst,
        ..usual()
    }
}

/// Two hosts, and both ends of their exchange.
struct Pair {
    client: Box<dyn Host>,
    server: Box<dyn Host>,
    dialled: BoxMessenger,
    accepted: BoxMessenger,
    /// Metrics of the server.
    registry: Registry,
}

impl Pair {
    async fn start(client: Limits, server: Limits) -> Self {
        let (inbound, mut events) = mpsc::unbounded_channel();
        let mut registry = Registry::default();
        let here = Some((Ipv4Addr::LOCALHOST.into(), 0));
        let server = host(
            1,
            here,
            server,
            CLOCK_DIFFERENCE_MAX,
            &mut registry,
            inbound.clone(),
        )
        .await;
        let client = host(
            2,
            None,
            client,
            CLOCK_DIFFERENCE_MAX,
            &mut Registry::default(),
            inbound,
        )
        .await;
        let connection = client.dial(&server.addresses()[0]).await.unwrap();
        let dialled = connection.messenger().await.unwrap().unwrap();
        let accepted = loop {
            if let Inbound::Messenger(messenger) = events.recv().await.unwrap() {
                break messenger;
            }
        };
        Self {
            client,
            server,
            dialled,
            accepted,
            registry,
        }
    }

    /// Runs a load as a trial does.
    async fn run(&mut self, count: u64) -> Result<Exchanged, wire::Error> {
        let (load, counters, mut trips) = (load(count), Counters::default(), recorder());
        let client = async {
            messages::open(&mut *self.dialled, None).await?;
            messages::run(&mut *self.dialled, &load, &counters, &mut trips).await
        };
        let mut one_way = recorder();
        let server = messages::serve(&mut *self.accepted, &load, &counters, &mut one_way);
        tokio::pin!(server);
        // The server waits for the end of the client, which lasts here.
        let ran = async {
            tokio::select! {
                ran = client => ran,
                served = &mut server => panic!("the server ended first: {served:?}"),
            }
        };
        timeout(TEST_TIMEOUT, ran).await.expect("it does not hang")
    }
}

#[tokio::test]
async fn a_quota_that_is_too_small_for_the_load_fails_it_and_is_named() {
    let mut pair = Pair::start(quota(10, 8), usual()).await;
    let error = pair.run(1000).await.unwrap_err();
    assert!(matches!(error, wire::Error::MessageRefused(1..=9)), "{error}");
    assert_eq!(error.reason(), perfrun_contract::node::Reason::Refused);
    assert!(error.to_string().contains("quota"), "{error}");
}

#[tokio::test]
async fn a_quota_that_holds_messages_back_is_a_fault_of_its_host() {
    let mut pair = Pair::start(usual(), quota(50, 8)).await;
    assert_eq!(pair.server.fault(), None);
    pair.run(60).await.unwrap();
    let fault = pair.server.fault().unwrap();
    assert!(fault.contains("messages back"), "{fault}");
    assert_eq!(pair.client.fault(), None);
}

#[tokio::test]
async fn a_host_leaves_its_counts_without_the_keys_of_peers() {
    let mut pair = Pair::start(usual(), usual()).await;
    pair.run(60).await.unwrap();
    assert_eq!(pair.server.fault(), None);
    drop((pair.dialled, pair.accepted));
    pair.server.close().await;
    let mut page = String::new();
    encode(&mut page, &pair.registry).unwrap();
    let value = |series: &str| {
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{series} ")));
        line.unwrap_or_else(|| panic!("{series} is missing: {page}"))
            .parse::<u64>()
            .unwrap()
    };
    // The 60 messages, the first one, and at least one greeting.
    assert!(
        (62..200).contains(&value("perfrun_commonware_messages_received_total")),
        "{page}"
    );
    assert!(
        (5..200).contains(&value("perfrun_commonware_messages_sent_total")),
        "{page}"
    );
    assert_eq!(value("perfrun_commonware_messages_rate_limited_total"), 0);
    assert!(
        value("perfrun_commonware_connections_total{direction=\"inbound\"}") >= 1,
        "{page}"
    );
    assert!(!page.contains("peer="), "{page}");
}

/// A host whose queues drop what a burst gives them, and one that takes all that arrives.
fn small_and_room() -> (Limits, Limits) {
    let small = Limits {
        mailbox: NonZeroUsize::new(4).unwrap(),
        peers: 1,
        ..quota(10_000_000, 20_000)
    };
    let room = Limits {
        mailbox: usual().mailbox,
        ..small
    };
    (small, room)
}

#[tokio::test]
async fn a_window_that_overflows_a_queue_is_reported_as_lost() {
    let (small, room) = small_and_room();
    let mut pair = Pair::start(small, room).await;
    let load = perfrun_contract::parameters::Messages {
        window: 4096,
        ..load(4096)
    };
    let counters = Counters::default();
    let (mut trips, mut one_way) = (recorder(), recorder());
    let client = async {
        messages::open(&mut *pair.dialled, None).await?;
        messages::run(&mut *pair.dialled, &load, &counters, &mut trips).await
    };
    let server = messages::serve(&mut *pair.accepted, &load, &counters, &mut one_way);
    let both = async {
        tokio::pin!(client);
        tokio::select! {
            served = server => served.unwrap_err(),
            ran = &mut client => ran.unwrap_err(),
        }
    };
    let error = timeout(TEST_TIMEOUT, both).await.expect("it does not hang");
    assert_eq!(
        error.reason(),
        perfrun_contract::node::Reason::MessageLost,
        "{error}"
    );
}

#[tokio::test]
async fn a_message_that_a_full_queue_drops_is_reported_as_lost() {
    let (small, room) = small_and_room();
    let Pair {
        client: _client,
        server: _server,
        mut dialled,
        mut accepted,
        ..
    } = Pair::start(small, room).await;
    let flood = async {
        for sequence in 0.. {
            let bytes = if sequence == 0 { Message::STAMPED } else { 64 };
            let message = Message {
                bytes,
                ..Message::bare(sequence)
            };
            // First more than fits, and then one after the other until the gap is seen.
            if sequence > 2000 {
                sleep(Duration::from_millis(1)).await;
            }
            poll_fn(|cx| dialled.poll_send(cx, message)).await?;
        }
        io::Result::Ok(())
    };
    let (load, counters, mut one_way) = (load(u64::MAX), Counters::default(), recorder());
    let served = async {
        tokio::select! {
            served = messages::serve(&mut *accepted, &load, &counters, &mut one_way) => served,
            flooded = flood => panic!("the flood ended: {flooded:?}"),
        }
    };
    let error = timeout(TEST_TIMEOUT, served)
        .await
        .expect("it does not hang")
        .unwrap_err();
    let wire::Error::MessageLost { expected, got } = error else {
        panic!("{error}");
    };
    assert!(expected < got, "{expected} {got}");
}

#[tokio::test]
async fn clocks_that_differ_too_much_are_the_reason_of_a_failed_dial() {
    let (inbound, _events) = mpsc::unbounded_channel();
    let here = Some((Ipv4Addr::LOCALHOST.into(), 0));
    let registry = &mut Registry::default();
    let server = host(1, here, usual(), Duration::ZERO, registry, inbound.clone()).await;
    let client = host(2, None, usual(), CLOCK_DIFFERENCE_MAX, registry, inbound).await;
    let error = client.dial(&server.addresses()[0]).await.err().unwrap();
    assert!(matches!(error, Error::Dial { .. }), "{error}");
    assert!(error.to_string().contains("clock"), "{error}");
}
