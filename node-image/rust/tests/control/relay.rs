//! Transfers through a relay, and what can go wrong with three parties.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, TcpListener},
    process::Stdio,
    time::Duration,
};

use futures::future::join_all;
use perfrun_contract::{
    distribution::Distribution,
    matrix::{Stack, Transport},
    node::{Measured, Outcome, Reason, Side, TrialRequest, TrialState},
    parameters::{Parameters, Relay, RelayStress},
    quantity::ByteSize,
    workload::{RelayLimits, RelayPath},
};
use reqwest::StatusCode;
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::*;

/// All stacks and transports with a relay.
const RELAYED: [(Stack, Transport); 5] = [
    (Stack::Libp2p, Transport::Tcp),
    (Stack::Libp2p, Transport::TcpTls),
    (Stack::Libp2p, Transport::QuicV1),
    (Stack::Libp2p, Transport::Ws),
    (Stack::Raw, Transport::Tcp),
];

const UNLIMITED: RelayLimits = RelayLimits {
    reservations: None,
    circuits: None,
    circuits_per_peer: None,
    circuit_bytes: None,
};

/// How long a sink may take to notice.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(45);

fn transfer(path: RelayPath, bytes: u64, limits: RelayLimits) -> Parameters {
    Parameters::Relay(Relay {
        path,
        bytes,
        chunk_bytes: ByteSize(64 << 10),
        pings: 3,
        limits,
    })
}

/// Two sources, and sinks that start within a quarter of a second and then fetch for five seconds: on a busy
/// machine, each still connects and fetches.
fn stress(sinks: u32, limits: RelayLimits) -> Parameters {
    Parameters::RelayStress(RelayStress {
        sinks,
        sources: 2,
        start_interval_seconds: 0.25 / f64::from(sinks - 1),
        ramp_seconds: 0.25,
        plateau_seconds: 5.0,
        bytes: 50_000,
        chunk_bytes: ByteSize(64 << 10),
        limits,
    })
}

/// A relay, a source and a sink.
struct Three {
    relay: Node,
    source: Node,
    sink: Node,
    stack: Stack,
    transport: Transport,
}

impl Three {
    fn start((stack, transport): (Stack, Transport)) -> Self {
        Self {
            relay: Node::start_as("relay", Stdio::null()),
            source: Node::start(),
            sink: Node::start_as("client", Stdio::null()),
            stack,
            transport,
        }
    }

    async fn relays(&self, parameters: &Parameters) -> String {
        let request = self.request(parameters, Side::Relay);
        assert_eq!(self.relay.put("a", &request).await, StatusCode::CREATED);
        let status = self.relay.later_than("a", TrialState::Preparing).await;
        status.addresses[0].clone()
    }

    /// The addresses of the sources.
    async fn serves(&self, parameters: &Parameters, relay: String, peers: u32) -> Vec<String> {
        let addresses = self.serves_if_it_may(parameters, relay, peers).await;
        assert_eq!(addresses.len(), peers as usize, "{addresses:?}");
        addresses
    }

    /// The addresses of the sources that the relay accepted.
    async fn serves_if_it_may(&self, parameters: &Parameters, relay: String, peers: u32) -> Vec<String> {
        let request = self.request(parameters, Side::Source { relay, peers });
        assert_eq!(self.source.put("a", &request).await, StatusCode::CREATED);
        self.source.later_than("a", TrialState::Preparing).await.addresses
    }

    fn request(&self, parameters: &Parameters, side: Side) -> TrialRequest {
        TrialRequest {
            side,
            ..server(self.stack, self.transport, parameters.clone())
        }
    }

    fn fetching(&self, parameters: &Parameters, servers: Vec<String>, peers: u32) -> TrialRequest {
        dialler(self.stack, self.transport, parameters.clone(), servers, peers)
    }

    /// Starts all three, with these numbers of sources and sinks.
    async fn fetches(&self, parameters: &Parameters, sources: u32, sinks: u32) {
        let relay = self.relays(parameters).await;
        let addresses = self.serves(parameters, relay, sources).await;
        let request = self.fetching(parameters, addresses, sinks);
        self.sink.run("a", &request).await;
    }

    /// Ends the trial at the other nodes when the sink has ended. Returns the outcomes of sink, source and
    /// relay.
    async fn outcomes(&self) -> [Outcome; 3] {
        let sink = self.sink.outcome("a").await;
        for node in [&self.source, &self.relay] {
            assert_eq!(node.finish("a").await, StatusCode::NO_CONTENT);
        }
        [
            sink,
            self.source.outcome("a").await,
            self.relay.outcome("a").await,
        ]
    }
}

#[tokio::test]
async fn a_transfer_goes_through_a_relay_and_all_of_it_arrives() {
    for kind in RELAYED {
        let three = Three::start(kind);
        let bytes = 3_000_001;
        let parameters = transfer(RelayPath::Relayed, bytes, UNLIMITED);
        let relay = three.relays(&parameters).await;
        let sources = three.serves(&parameters, relay, 1).await;
        assert!(sources[0].contains("/p2p-circuit"), "{sources:?}");
        let sinks = 2;
        three
            .sink
            .run("a", &three.fetching(&parameters, sources, sinks))
            .await;
        let outcomes = three.outcomes().await;
        for outcome in &outcomes {
            assert_eq!(outcome.failure, None, "{kind:?}: {outcome:?}");
        }
        let [sink, source, relay] = outcomes.map(|outcome| outcome.measured);
        let all = bytes * u64::from(sinks);
        assert_eq!((source.bytes_sent, sink.bytes_received), (all, all), "{kind:?}");
        assert_eq!(sink.download.unwrap().bytes, all);
        // libp2p opens circuits before the start. The proxy connects with the first byte, and one transfer
        // may end before the other begins.
        let open_together = match kind.0 {
            Stack::Libp2p => 2..=2,
            _ => 1..=2,
        };
        assert!(
            open_together.contains(&relay.most_circuits),
            "{kind:?}: {relay:?}"
        );
        assert!(relay.refused.is_empty(), "{relay:?}");
        let count = |measured: &Measured, distribution| {
            let recorded = measured.histograms.get(&distribution);
            recorded.map_or(0, |recorded| recorded.decode().unwrap().len())
        };
        let of_libp2p = |n: u64| if kind.0 == Stack::Libp2p { n } else { 0 };
        assert_eq!(count(&sink, Distribution::Transfer), 2);
        assert_eq!(count(&sink, Distribution::FirstByte), 2);
        assert_eq!(count(&sink, Distribution::RelayConnected), 2, "{kind:?}");
        assert_eq!(
            count(&sink, Distribution::RelayRoundTrip),
            of_libp2p(6),
            "{kind:?}"
        );
        assert_eq!(count(&sink, Distribution::RoundTrip), of_libp2p(6), "{kind:?}");
        assert_eq!(
            count(&source, Distribution::Reservation),
            of_libp2p(1),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_transfer_without_a_relay_works_between_all_pairs() {
    let pair = Pair::start();
    for stacks in all_pairs() {
        let what = format!("{stacks:?}");
        let parameters = transfer(RelayPath::Direct, 1_000_003, UNLIMITED);
        if !can(stacks, &parameters) {
            continue;
        }
        let (client, server) = pair.trial(stacks, &parameters, 2).await.completed(&what);
        let all = 2 * 1_000_003;
        assert_eq!((server.bytes_sent, client.bytes_received), (all, all), "{what}");
    }
}

/// Asserts that one refusal was counted. The relay may miss it: libp2p reports a refusal only after the
/// stream has closed, and nothing if the refused peer has closed the connection by then.
fn assert_refused(peer: &Measured, relay: &Measured, what: &str) {
    let refused: BTreeMap<String, u64> = [(what.to_owned(), 1)].into();
    assert_eq!(peer.refused, refused);
    assert!(relay.refused.is_empty() || relay.refused == refused, "{relay:?}");
    assert_eq!(
        relay.errors.get(&Reason::Refused),
        relay.refused.get(what),
        "{relay:?}"
    );
}

#[tokio::test]
async fn a_relay_that_refuses_circuits_is_named_with_its_status() {
    let three = Three::start(RELAYED[0]);
    let none = RelayLimits {
        circuits: Some(0),
        ..UNLIMITED
    };
    let parameters = transfer(RelayPath::Relayed, 1000, none);
    let relay = three.relays(&parameters).await;
    let sources = three.serves(&parameters, relay, 1).await;
    let request = three.fetching(&parameters, sources, 1);
    assert_eq!(three.sink.put("a", &request).await, StatusCode::CREATED);
    let [sink, _, relay] = three.outcomes().await;
    let failed = sink.failure.unwrap();
    assert_eq!(failed.reason, Reason::Refused, "{failed:?}");
    let status = "RESOURCE_LIMIT_EXCEEDED (201)";
    assert!(failed.message.contains(status), "{failed:?}");
    assert_refused(&sink.measured, &relay.measured, &format!("circuit: {status}"));
}

#[tokio::test]
async fn a_relay_that_refuses_reservations_is_named_with_its_status() {
    let three = Three::start(RELAYED[0]);
    let none = RelayLimits {
        reservations: Some(0),
        ..UNLIMITED
    };
    let parameters = transfer(RelayPath::Relayed, 1000, none);
    let relay = three.relays(&parameters).await;
    let request = three.request(&parameters, Side::Source { relay, peers: 1 });
    assert_eq!(three.source.put("a", &request).await, StatusCode::CREATED);
    let source = three.source.outcome("a").await;
    let failed = source.failure.unwrap();
    assert_eq!(failed.reason, Reason::Refused, "{failed:?}");
    assert!(
        failed.message.contains("RESOURCE_LIMIT_EXCEEDED (201)"),
        "{failed:?}"
    );
    assert_eq!(three.relay.finish("a").await, StatusCode::NO_CONTENT);
    let relay = three.relay.outcome("a").await.measured;
    let what = "reservation: RESOURCE_LIMIT_EXCEEDED (201)";
    assert_refused(&source.measured, &relay, what);
}

#[tokio::test]
async fn sources_that_get_no_place_are_counted_and_sinks_fetch_from_the_others() {
    let three = Three::start(RELAYED[0]);
    let one = RelayLimits {
        reservations: Some(1),
        ..UNLIMITED
    };
    let parameters = stress(2, one);
    let relay = three.relays(&parameters).await;
    let sources = three.serves_if_it_may(&parameters, relay, 2).await;
    assert_eq!(sources.len(), 1, "{sources:?}");
    three
        .sink
        .run("a", &three.fetching(&parameters, sources, 2))
        .await;
    let outcomes = three.outcomes().await;
    for outcome in &outcomes {
        assert_eq!(outcome.failure, None, "{outcome:?}");
    }
    let [sink, source, relay] = outcomes.map(|outcome| outcome.measured);
    assert!(sink.bytes_received > 0, "{sink:?}");
    let what = "reservation: RESOURCE_LIMIT_EXCEEDED (201)";
    assert_refused(&source, &relay, what);
    assert_eq!(source.errors, [(Reason::Refused, 1)].into());
}

#[tokio::test]
async fn a_circuit_that_carries_no_more_fails_the_transfer() {
    let three = Three::start(RELAYED[0]);
    let little = RelayLimits {
        circuit_bytes: Some(ByteSize(128 << 10)),
        ..UNLIMITED
    };
    let parameters = transfer(RelayPath::Relayed, 10_000_000, little);
    three.fetches(&parameters, 1, 1).await;
    let outcome = timeout(NOTICE_TIMEOUT, three.sink.outcome("a")).await.unwrap();
    let broken = [Reason::StreamFailed, Reason::TooFewBytes, Reason::OpenFailed];
    let why = reason(&outcome).unwrap();
    assert!(broken.contains(&why), "{outcome:?}");
}

/// Whether a raw relay connects to the target for a peer that begins with these bytes.
async fn connects(relay: &str, bytes: &[u8], target: &TcpListener) -> bool {
    let mut peer = TcpStream::connect(relay).await.unwrap();
    peer.write_all(bytes).await.unwrap();
    loop {
        let closed = timeout(Duration::from_millis(20), peer.read(&mut [0])).await;
        let has_connected = target.accept().is_ok();
        if has_connected || closed.is_ok() {
            return has_connected;
        }
    }
}

#[tokio::test]
async fn a_raw_relay_connects_a_stranger_nowhere() {
    let three = Three::start((Stack::Raw, Transport::Tcp));
    let parameters = transfer(RelayPath::Relayed, 100_000, UNLIMITED);
    let relay = three.relays(&parameters).await;
    let (address, nonce) = relay.split_once("/nonce/").unwrap();
    let parts: Vec<&str> = address.split('/').collect();
    let address = format!("{}:{}", parts[2], parts[4]);
    let nonce = u128::from_str_radix(nonce, 16).unwrap();

    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    target.set_nonblocking(true).unwrap();
    let port = target.local_addr().unwrap().port();
    let to = |ip: Ipv4Addr| [&ip.to_ipv6_mapped().octets()[..], &port.to_be_bytes()].concat();
    let says = |nonce: u128, ip| [&nonce.to_be_bytes()[..], &to(ip)].concat();
    let own = Ipv4Addr::LOCALHOST;
    // A peer that sends what relays of earlier versions expected, and peers that guess.
    assert!(!connects(&address, &[&to(own)[..], &[0; 16]].concat(), &target).await);
    for guess in [0, nonce ^ 1, nonce ^ 1 << 127, !nonce] {
        assert!(!connects(&address, &says(guess, own), &target).await);
    }
    // Linux takes this address for 127.0.0.1.
    assert!(!connects(&address, &says(nonce, Ipv4Addr::UNSPECIFIED), &target).await);
    assert!(connects(&address, &says(nonce, own), &target).await);

    // All of that does not disturb the trial.
    let sources = three.serves(&parameters, relay, 1).await;
    three
        .sink
        .run("a", &three.fetching(&parameters, sources, 1))
        .await;
    for outcome in three.outcomes().await {
        assert_eq!(outcome.failure, None, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_relay_that_is_killed_breaks_the_transfer() {
    for kind in RELAYED {
        let three = Three::start(kind);
        let parameters = transfer(RelayPath::Relayed, 1 << 40, UNLIMITED);
        three.fetches(&parameters, 1, 1).await;
        three.sink.moved("a").await;
        three.relay.signal(Signal::KILL);
        let outcome = timeout(NOTICE_TIMEOUT, three.sink.outcome("a")).await.unwrap();
        let broken = [Reason::StreamFailed, Reason::TooFewBytes];
        let why = reason(&outcome).unwrap();
        assert!(broken.contains(&why), "{kind:?}: {outcome:?}");
        assert!(outcome.measured.bytes_received > 0);
    }
}

#[tokio::test]
async fn a_source_that_is_gone_is_not_reached() {
    for kind in RELAYED {
        let three = Three::start(kind);
        let parameters = transfer(RelayPath::Relayed, 1000, UNLIMITED);
        let relay = three.relays(&parameters).await;
        let sources = three.serves(&parameters, relay, 1).await;
        three.source.signal(Signal::KILL);
        three.source.exit().await;
        // A proxy dials the source when a stream is requested, libp2p's sink while it prepares.
        let request = three.fetching(&parameters, sources, 1);
        assert_eq!(three.sink.put("a", &request).await, StatusCode::CREATED);
        three.sink.begin("a").await;
        let outcome = timeout(NOTICE_TIMEOUT, three.sink.outcome("a")).await.unwrap();
        let reasons = [
            Reason::Refused,
            Reason::DialFailed,
            Reason::TooFewBytes,
            Reason::StreamFailed,
        ];
        let why = reason(&outcome).unwrap();
        assert!(reasons.contains(&why), "{kind:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn sinks_begin_one_after_the_other_and_fetch_until_the_end() {
    join_all(RELAYED.map(async |kind| {
        let three = Three::start(kind);
        let parameters = stress(6, UNLIMITED);
        three.fetches(&parameters, 2, 6).await;
        let outcomes = three.outcomes().await;
        for outcome in &outcomes {
            assert_eq!(outcome.failure, None, "{kind:?}: {outcome:?}");
        }
        let [sink, source, relay] = outcomes.map(|outcome| outcome.measured);
        assert!(sink.bytes_received > 6 * 50_000, "{kind:?}: {sink:?}");
        assert!(sink.bytes_received <= source.bytes_sent, "{kind:?}");
        // A trial that does not end on its own fails after 80 s.
        assert!((5.25..40.0).contains(&sink.seconds), "{kind:?}: {}", sink.seconds);
        assert!(relay.most_circuits >= 6, "{kind:?}: {relay:?}");
        let begun = sink.histograms[&Distribution::Lateness].decode().unwrap().len();
        assert_eq!(begun, 6, "{kind:?}");
        assert!(sink.histograms.contains_key(&Distribution::Transfer), "{kind:?}");
    }))
    .await;
}

#[tokio::test]
async fn sinks_that_are_refused_are_counted_by_kind_and_the_others_continue() {
    let three = Three::start(RELAYED[0]);
    let one = RelayLimits {
        circuits: Some(1),
        ..UNLIMITED
    };
    three.fetches(&stress(2, one), 2, 2).await;
    let outcomes = three.outcomes().await;
    for outcome in &outcomes {
        assert_eq!(outcome.failure, None, "{outcome:?}");
    }
    let [sink, _, relay] = outcomes.map(|outcome| outcome.measured);
    for measured in [&sink, &relay] {
        let refused = measured.refused["circuit: RESOURCE_LIMIT_EXCEEDED (201)"];
        assert!(refused > 0, "{measured:?}");
        assert_eq!(measured.errors, [(Reason::Refused, refused)].into());
        assert_eq!(measured.failures, refused);
    }
    assert!(
        sink.bytes_received > 0 && relay.most_circuits == 1,
        "{sink:?} {relay:?}"
    );
}

#[tokio::test]
async fn a_transfer_that_is_cancelled_leaves_no_connection() {
    for (stack, transport) in STACKS_WITH_THEMSELVES {
        if (stack, transport) == (Stack::Raw, Transport::QuicV1) {
            // The plan skips this pair, with the reason.
            continue;
        }
        let pair = Pair::start();
        let what = format!("{stack} on {transport}");
        // What stays open after the first trial is not a leftover.
        let little = transfer(RelayPath::Direct, 1, UNLIMITED);
        pair.trial((stack, stack, transport), &little, 1)
            .await
            .completed(&what);
        let Pair { client, server } = pair;
        let before = client.descriptors();
        let parameters = transfer(RelayPath::Direct, 1 << 40, UNLIMITED);
        let addresses = server.serve("a", stack, transport, &parameters).await;
        client
            .run("a", &dialler(stack, transport, parameters, addresses, 1))
            .await;
        client.moved("a").await;
        client.delete("a").await;
        assert_eq!(reason(&client.outcome("a").await), Some(Reason::Cancelled));
        let what = format!("{what} holds no connection");
        eventually(&what, async || client.descriptors() <= before).await;
    }
}

#[tokio::test]
async fn too_few_open_files_for_a_stress_test_are_reported_before_anything_starts() {
    for stacks in [(Stack::Libp2p, Transport::Tcp), (Stack::Raw, Transport::Tcp)] {
        let parameters = stress(200, UNLIMITED);
        let three = Three::start(stacks);
        let relay = three.relays(&parameters).await;
        let sources = three.serves(&parameters, relay.clone(), 2).await;
        let too_low = |outcome: Outcome, needed: u64| {
            let failure = outcome.failure.unwrap();
            assert_eq!(failure.reason, Reason::LimitTooLow, "{failure:?}");
            let words = format!(
                "needs {needed} open files, and the system allows the node {}",
                needed - 1
            );
            assert!(failure.message.contains(&words), "{failure:?}");
        };

        // The sinks of this node.
        three.sink.limit_descriptors(200 + 64 - 1);
        let request = three.fetching(&parameters, sources, 200);
        three.sink.run("a", &request).await;
        too_low(three.sink.outcome("a").await, 200 + 64);

        // The sources. A proxy has a connection with a source for each sink.
        let (of_source, onward) = if stacks.0 == Stack::Raw {
            (101, 200)
        } else {
            (2, 2)
        };
        let needed = 2 * of_source + 64;
        three.source.delete("a").await;
        three.source.outcome("a").await;
        three.source.limit_descriptors(needed - 1);
        let request = three.request(&parameters, Side::Source { relay, peers: 2 });
        assert_eq!(three.source.put("b", &request).await, StatusCode::CREATED);
        too_low(three.source.outcome("b").await, needed);

        // The relay, with the connections of both.
        three.relay.delete("a").await;
        three.relay.outcome("a").await;
        let needed = 200 + onward + 64;
        three.relay.limit_descriptors(needed - 1);
        let request = three.request(&parameters, Side::Relay);
        assert_eq!(three.relay.put("b", &request).await, StatusCode::CREATED);
        too_low(three.relay.outcome("b").await, needed);
    }
}
