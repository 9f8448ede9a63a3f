//! Many connections, one after the other and several at a time. None may fail, except on WebRTC.

use perfrun_contract::{
    distribution::Distribution,
    matrix::{Stack, Transport},
    parameters::{Amount, Handshakes, Parameters},
};

use crate::support::*;

async fn handshakes(
    pair: &Pair,
    stacks: (Stack, Stack, Transport),
    amount: Amount,
    in_flight: u32,
    peers: u32,
) -> u64 {
    let what = format!("{stacks:?} {amount:?} x{in_flight} of {peers}");
    let parameters = Parameters::Handshakes(Handshakes { amount, in_flight });
    let (client, server) = pair.trial(stacks, &parameters, peers).await.completed(&what);
    assert_eq!(
        (client.connections, client.streams),
        (server.connections, server.streams),
        "{what}"
    );
    assert_eq!(client.connections, client.streams, "{what}");
    let of = |distribution| {
        client
            .histograms
            .get(&distribution)
            .map(|all| all.decode().unwrap().len())
    };
    assert_eq!(
        of(Distribution::HandshakeEstablished),
        Some(client.connections),
        "{what}"
    );
    assert_eq!(
        of(Distribution::HandshakeFirstByte),
        Some(client.connections),
        "{what}"
    );
    let sees_transport = stacks.2 != Transport::QuicV1 && stacks.0 != Stack::Litep2p;
    assert_eq!(
        of(Distribution::HandshakeTransport),
        sees_transport.then_some(client.connections),
        "{what}"
    );
    client.connections
}

/// `PERFRUN_TEST_HANDSHAKES=500` runs more.
fn sequential() -> u64 {
    std::env::var("PERFRUN_TEST_HANDSHAKES").map_or(40, |count| count.parse().unwrap())
}

#[tokio::test]
async fn connections_follow_each_other() {
    let pair = Pair::start();
    for stacks in PAIRS.into_iter().chain(commonware()) {
        let begun = std::time::Instant::now();
        let count = sequential();
        assert_eq!(
            handshakes(&pair, stacks, Amount::Count(count), 1, 1).await,
            count,
            "{stacks:?}"
        );
        println!("{stacks:?}: {count} in {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn connections_are_made_several_at_a_time_and_for_a_time() {
    let pair = Pair::start();
    for stacks in PAIRS.into_iter().chain(commonware()) {
        assert_eq!(
            handshakes(&pair, stacks, Amount::Count(41), 4, 1).await,
            41,
            "{stacks:?}"
        );
        assert_eq!(
            handshakes(&pair, stacks, Amount::Count(10), 2, 3).await,
            10,
            "{stacks:?}"
        );
        assert!(
            handshakes(&pair, stacks, Amount::Seconds(0.2), 4, 1).await >= 4,
            "{stacks:?}"
        );
    }
}

/// libp2p's WebRTC may lose a dial (webrtc-rs issue 821), which counts as a failure and is not in the times.
#[tokio::test]
async fn each_handshake_on_webrtc_is_measured_or_counted_as_a_failure() {
    let pair = Pair::start();
    for server in [Stack::Libp2p, Stack::Litep2p] {
        let parameters = Parameters::Handshakes(Handshakes {
            amount: Amount::Count(12),
            in_flight: 4,
        });
        let stacks = (Stack::Libp2p, server, Transport::WebrtcDirect);
        let (client, _) = pair.trial(stacks, &parameters, 1).await.completed("handshakes");
        let measured = client.histograms[&Distribution::HandshakeEstablished]
            .decode()
            .unwrap();
        assert_eq!(measured.len() + client.failures, 12, "{server}");
        assert!(measured.len() >= 6, "{server}: {} failed", client.failures);
        assert!(
            !client.histograms.contains_key(&Distribution::HandshakeTransport),
            "{server}"
        );
    }
}
