//! The congestion control of trials: chosen, and reported as connections have it.

use perfrun_contract::{
    matrix::{Protocol, QuicCongestion, Stack, StackSettings, TcpCongestion, Transport},
    node::{Outcome, Reason, TrialRequest},
    parameters::Amount,
    workload::Direction,
};

use crate::support::*;

/// The outcomes of both ends of a small transfer with these settings.
async fn transfer(pair: &Pair, stack: Stack, transport: Transport, settings: &StackSettings) -> [Outcome; 2] {
    let parameters = bandwidth(Protocol::Perf, Direction::Both, Amount::Count(100_000), 2);
    let with_settings = |request: TrialRequest| TrialRequest {
        settings: settings.clone(),
        ..request
    };
    let Pair { client, server } = pair;
    let request = with_settings(crate::support::server(stack, transport, parameters.clone()));
    let addresses = server.serve_request("a", &request).await;
    let request = with_settings(dialler(stack, transport, parameters, addresses, 1));
    client.run("a", &request).await;
    let ran = client.outcome("a").await;
    server.finish("a").await;
    let served = server.outcome("a").await;
    client.delete("a").await;
    server.delete("a").await;
    [ran, served]
}

fn tcp(name: &str) -> StackSettings {
    StackSettings {
        tcp_congestion: Some(TcpCongestion(name.into())),
        ..StackSettings::default()
    }
}

/// Asserts that both ends completed, and that their connections have this congestion control.
fn used(ends: &[Outcome; 2], name: &str, what: &str) {
    for outcome in ends {
        assert_eq!(outcome.failure, None, "{what}");
        assert_eq!(
            outcome.measured.congestion_control.as_deref(),
            Some(name),
            "{what}"
        );
    }
}

#[tokio::test]
async fn sockets_have_the_requested_congestion_control_of_tcp() {
    let pair = Pair::start();
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    for (stack, transport) in [
        (Stack::Raw, Transport::Tcp),
        (Stack::Libp2p, Transport::Tcp),
        (Stack::Libp2p, Transport::TcpTls),
        (Stack::Libp2p, Transport::Ws),
    ] {
        for name in available.split_whitespace() {
            let ends = transfer(&pair, stack, transport, &tcp(name)).await;
            used(&ends, name, &format!("{stack} {transport} {name}"));
        }
    }
}

#[tokio::test]
async fn without_a_request_trials_report_the_default() {
    let pair = Pair::start();
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    for stack in [Stack::Raw, Stack::Libp2p, Stack::Litep2p] {
        for (transport, name) in [(Transport::Tcp, default.trim()), (Transport::QuicV1, "cubic")] {
            let ends = transfer(&pair, stack, transport, &StackSettings::default()).await;
            used(&ends, name, &format!("{stack} {transport}"));
        }
    }
}

#[tokio::test]
async fn raw_quic_uses_the_requested_congestion_control() {
    let pair = Pair::start();
    for wanted in [
        QuicCongestion::Cubic,
        QuicCongestion::NewReno,
        QuicCongestion::Bbr,
    ] {
        let settings = StackSettings {
            quic_congestion: Some(wanted),
            ..StackSettings::default()
        };
        let ends = transfer(&pair, Stack::Raw, Transport::QuicV1, &settings).await;
        used(&ends, wanted.as_ref(), wanted.as_ref());
    }
}

#[tokio::test]
async fn a_congestion_control_that_kernel_or_stack_lacks_is_refused() {
    let pair = Pair::start();
    for (stack, name, words) in [
        (Stack::Raw, "none-such", "this kernel does not have"),
        (Stack::Libp2p, "none-such", "reno"),
        (Stack::Litep2p, "reno", "litep2p cannot do tcpCongestion"),
    ] {
        let parameters = ping(1, 0.0);
        let request = TrialRequest {
            settings: tcp(name),
            ..server(stack, Transport::Tcp, parameters)
        };
        pair.server.put("a", &request).await;
        let failure = pair.server.outcome("a").await.failure.unwrap();
        pair.server.delete("a").await;
        assert_eq!(failure.reason, Reason::Unsupported);
        assert!(failure.message.contains(words), "{}", failure.message);
    }
}
