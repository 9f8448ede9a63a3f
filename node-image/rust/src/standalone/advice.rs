//! What cannot be measured between two shells, and advice after failures.

use anyhow::{anyhow, bail};
use perfrun_contract::{
    distribution::Distribution,
    matrix::{Negotiation, Protocol, Stack, Transport},
    node::Reason,
    parameters::{Amount, Parameters},
    support::{LITEP2P_QUIC_STREAMS, why_pair_unsupported},
};

use crate::workload::{Failed, Setup};

/// The unit in which the published litep2p-perf servers count.
const PUBLISHED_BLOCK: u64 = 1024;

/// Refuses parameters that this stack cannot serve to any client.
pub(super) fn check_server(
    stack: Stack,
    transport: Transport,
    parameters: &Parameters,
) -> anyhow::Result<()> {
    let reasons = peers(stack).map(|client| why_pair_unsupported(client, stack, transport, parameters));
    refuse(parameters, reasons)
}

/// Refuses parameters that this stack cannot use with any server, and options without an effect.
pub(super) fn check_client(
    stack: Stack,
    transport: Transport,
    parameters: &Parameters,
) -> anyhow::Result<()> {
    if parameters.negotiation() == Negotiation::V1Lazy {
        if stack.wire() != Stack::Libp2p.wire() {
            bail!("{stack} negotiates no protocol: omit --negotiation, or use --stack libp2p");
        }
        if stack == Stack::Litep2p {
            bail!("litep2p cannot negotiate v1lazy as a client: omit --negotiation, or use --stack libp2p");
        }
    }
    if stack == Stack::Raw && parameters.operation() == Some(Distribution::Open) {
        bail!("raw opens streams without a round trip, so its opens cannot be timed: use another --stack");
    }
    let reasons = peers(stack).map(|server| why_pair_unsupported(stack, server, transport, parameters));
    refuse(parameters, reasons)
}

/// Stacks that the other side may use.
fn peers(stack: Stack) -> impl Iterator<Item = Stack> {
    Stack::built_in().filter(move |peer| peer.wire() == stack.wire())
}

/// Fails with the first reason if every peer has one.
fn refuse(parameters: &Parameters, reasons: impl Iterator<Item = Option<String>>) -> anyhow::Result<()> {
    let reasons: Option<Vec<String>> = reasons.collect();
    let Some(reason) = reasons.and_then(|reasons| reasons.into_iter().next()) else {
        return Ok(());
    };
    // A relay, a source and a sink have no --stack.
    let options = if parameters.has_relayed_path() {
        "--transport"
    } else {
        "--transport or --stack"
    };
    bail!("{reason}. Choose another {options}")
}

/// A failure, with advice if there is any.
pub(super) fn explain(setup: &Setup, Failed(failure): Failed) -> anyhow::Error {
    let parameters = &setup.parameters;
    let advice = match failure.reason {
        Reason::OpenFailed => on_opening(setup),
        Reason::UnexpectedBytes | Reason::TooFewBytes if parameters.has_relayed_path() => {
            Some("Give the source and the sink the same --bytes")
        }
        Reason::UnexpectedBytes | Reason::TooFewBytes | Reason::StreamFailed | Reason::Timeout => {
            on_sizes(parameters, setup.download)
        }
        _ => None,
    };
    let advice = advice.map_or(String::new(), |advice| format!(". {advice}"));
    anyhow!("{} ({}){advice}", failure.message, failure.reason)
}

/// Advice for streams that did not open.
pub(super) fn on_opening(setup: &Setup) -> Option<&'static str> {
    let may_be_too_many =
        setup.transport == Transport::QuicV1 && setup.parameters.streams() > LITEP2P_QUIC_STREAMS;
    may_be_too_many.then_some("A litep2p server allows 100 streams on a QUIC connection: open at most 100")
}

/// Advice for exchanges that failed or did not end.
fn on_sizes(parameters: &Parameters, download: Option<Amount>) -> Option<&'static str> {
    let (Protocol::Litep2pPerf, Some((_, amount, _))) = (parameters.protocol(), parameters.transfer()) else {
        return None;
    };
    let is_whole =
        |amount: &Amount| matches!(amount, Amount::Count(bytes) if bytes.is_multiple_of(PUBLISHED_BLOCK));
    let all_whole = [Some(amount), download].iter().flatten().all(is_whole);
    (!all_whole).then_some(
        "If the server is the published litep2p-perf, use multiples of 1Ki: it rounds sizes up to 1 KiB",
    )
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        parameters::{Amount::Count, Bandwidth, Substreams},
        workload::{Direction, OpenMode},
    };

    use super::*;

    fn bandwidth(protocol: Protocol, bytes: u64) -> Parameters {
        Parameters::Bandwidth(Bandwidth::new(protocol, Direction::Both, Count(bytes)))
    }

    fn substreams(negotiation: Negotiation) -> Parameters {
        Parameters::Substreams(Substreams {
            count: 1000,
            mode: OpenMode::Burst,
            rate: None,
            negotiation,
        })
    }

    #[test]
    fn sizes_that_published_servers_round_are_advised_against() {
        for (protocol, upload, download, is_advised) in [
            (Protocol::Litep2pPerf, 1024, Some(2048), false),
            (Protocol::Litep2pPerf, 1 << 30, None, false),
            (Protocol::Litep2pPerf, 1000, None, true),
            (Protocol::Litep2pPerf, 1025, Some(2048), true),
            (Protocol::Litep2pPerf, 1024, Some(2047), true),
            (Protocol::Perf, 1025, Some(2047), false),
        ] {
            let advice = on_sizes(&bandwidth(protocol, upload), download.map(Count));
            let what = format!("{protocol:?} {upload} {download:?}: {advice:?}");
            assert_eq!(advice.is_some(), is_advised, "{what}");
            assert!(
                advice.is_none_or(|words| words.contains("multiples of 1Ki")),
                "{what}"
            );
        }
    }

    #[test]
    fn parameters_that_suit_no_peer_are_refused_with_the_reason() {
        use Transport::{QuicV1, Tcp, TcpTls, WebrtcDirect, Ws};
        let both = &bandwidth(Protocol::Litep2pPerf, 1);
        for (refused, words) in [
            (check_client(Stack::Litep2p, TcpTls, both), "it has no TLS"),
            (check_client(Stack::Litep2p, WebrtcDirect, both), "cannot dial"),
            (check_client(Stack::Raw, Ws, both), "raw has no WebSocket"),
            (check_server(Stack::Litep2p, TcpTls, both), "it has no TLS"),
            (check_server(Stack::Raw, WebrtcDirect, both), "raw has no WebRTC"),
            (
                check_server(Stack::Litep2p, WebrtcDirect, &bandwidth(Protocol::Perf, 1)),
                "litep2p-perf does not",
            ),
            (
                check_client(Stack::Raw, Tcp, &substreams(Negotiation::V1)),
                "cannot be timed",
            ),
            (
                check_client(Stack::Raw, Tcp, &substreams(Negotiation::V1Lazy)),
                "omit --negotiation",
            ),
            (
                check_client(Stack::Litep2p, Tcp, &substreams(Negotiation::V1Lazy)),
                "omit --negotiation",
            ),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(words), "{words}: {refused}");
        }
        for possible in [
            // The server may be libp2p, which allows more streams than litep2p.
            check_client(Stack::Litep2p, QuicV1, &substreams(Negotiation::V1)),
            check_client(Stack::Libp2p, Tcp, &substreams(Negotiation::V1Lazy)),
            check_client(Stack::Libp2p, WebrtcDirect, both),
            check_server(Stack::Litep2p, WebrtcDirect, both),
            check_server(Stack::Raw, QuicV1, both),
        ] {
            possible.unwrap();
        }
    }
}
