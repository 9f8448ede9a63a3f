//! The page of the workloads that each pair of stacks supports.

use perfrun_contract::{
    limits::STREAMS_MAX,
    matrix::{Setting, Stack, Transport},
    parameters::{USES, Use},
    support::{why_pair_unsupported, why_setting_unsupported},
};
use strum::IntoEnumIterator;

/// A table of all stacks, then what pairs cannot do on each transport and why, then settings.
pub(super) fn page() -> String {
    let sections: String = Transport::iter().map(section).collect();
    format!(
        "# What each pair of stacks supports\n\n\
         Generated from the planner's table by `cargo xtask crds`.\n\n\
         {}\n\
         The sections below have all pairs, client → server, on each transport. They name what a pair cannot do,\n\
         and give the reasons that `perfrun plan` and reports give for cells that are skipped. *up to 100*: a cell\n\
         with more open streams on one connection is skipped. *–*: all such cells are.\n\n\
         `raw` is the reference: of `tcp-tls` and `ws` it is raw on `tcp`, of `webrtc-direct` and `webtransport`\n\
         raw on `quic-v1`. `memory` has none.\n\
         {sections}{}",
        summary(),
        settings()
    )
}

/// The transports of each workload, between two nodes of the same stack.
fn summary() -> String {
    let mut rows = String::new();
    for uses in USES {
        rows += &format!("| `{}` |", workload(uses));
        for stack in Stack::built_in() {
            rows += &format!(" {} |", transports(uses, stack));
        }
        rows.push('\n');
    }
    let stacks: Vec<&str> = Stack::built_in().map(Into::into).collect();
    format!(
        "Two nodes of one stack run a workload on these transports. *In part*: not in all the ways in which a\n\
         document can use the workload.\n\n\
         | workload | {} |\n|---|{}\n{rows}",
        stacks.join(" | "),
        "---|".repeat(stacks.len())
    )
}

fn transports(uses: &[Use], stack: Stack) -> String {
    let [mut whole, mut part] = [vec![], vec![]];
    for transport in Transport::iter() {
        let possible = uses
            .iter()
            .filter(|(_, parameters)| why_pair_unsupported(stack, stack, transport, &parameters(1)).is_none())
            .count();
        if possible == uses.len() {
            whole.push(transport.to_string());
        } else if possible > 0 {
            part.push(transport.to_string());
        }
    }
    match (whole.join(", "), part.join(", ")) {
        (whole, part) if part.is_empty() => whole,
        (whole, part) if whole.is_empty() => format!("*in part:* {part}"),
        (whole, part) => format!("{whole}; *in part:* {part}"),
    }
}

/// The name of the workload of these uses.
fn workload(uses: &[Use]) -> &'static str {
    let (_, parameters) = uses[0];
    parameters(1).workload()
}

/// What the pairs of stacks cannot do on a transport. Pairs that differ in nothing share a row.
fn section(transport: Transport) -> String {
    let (mut running, mut idle) = (vec![], vec![]);
    for (client, server) in pairs() {
        let pair = format!("{client} → {server}");
        match exceptions(client, server, transport) {
            Ok(exceptions) => add(&mut running, exceptions, pair),
            Err(reason) => add(&mut idle, reason, pair),
        }
    }
    let mut text = format!(
        "\n## `{transport}`\n\n\
         | pairs | cannot do, or with fewer streams | streams on a connection | why |\n|---|---|---|---|\n"
    );
    for (exceptions, pairs) in running {
        let mut pairs = pairs.join(", ");
        if exceptions.is_empty() {
            text += &format!("| {pairs} | can do everything | | |\n");
        }
        for (Limit { streams, reason }, uses) in exceptions {
            let streams = match streams {
                0 => "–".to_owned(),
                most => format!("up to {most}"),
            };
            text += &format!("| {pairs} | {} | {streams} | {reason} |\n", uses.join("; "));
            pairs.clear();
        }
    }
    if transport == Transport::WebrtcDirect {
        text += "\nA download over several streams from libp2p may stop, although the table allows it. The trial\n\
                 then fails.\n";
    }
    if !idle.is_empty() {
        text += "\nThese pairs run no workload on it:\n\n";
    }
    for (reason, pairs) in idle {
        text += &format!("- {} ({reason})\n", pairs.join(", "));
    }
    text
}

/// The pairs that can run something on a transport.
fn pairs() -> impl Iterator<Item = (Stack, Stack)> {
    let all = Stack::built_in().flat_map(|client| Stack::built_in().map(move |server| (client, server)));
    all.filter(|(client, server)| Transport::iter().any(|transport| can_run(*client, *server, transport)))
}

/// Whether a pair can run something on a transport.
fn can_run(client: Stack, server: Stack, transport: Transport) -> bool {
    let is_possible =
        |(_, parameters): &Use| why_pair_unsupported(client, server, transport, &parameters(1)).is_none();
    USES.into_iter().flatten().any(is_possible)
}

/// Streams that are possible on a connection, none if a use is impossible, and why there are no more.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Limit {
    streams: u32,
    reason: String,
}

/// What a pair cannot do on a transport, by reason. Fails with the first reason if it can do nothing.
fn exceptions(
    client: Stack,
    server: Stack,
    transport: Transport,
) -> Result<Vec<(Limit, Vec<String>)>, String> {
    let limit = |(_, parameters): &Use| {
        (1..=STREAMS_MAX).find_map(|streams| {
            let reason = why_pair_unsupported(client, server, transport, &parameters(streams))?;
            Some(Limit {
                streams: streams - 1,
                reason,
            })
        })
    };
    if !can_run(client, server, transport) {
        return Err(limit(&USES[0][0]).map(|limit| limit.reason).unwrap_or_default());
    }
    let mut exceptions = vec![];
    for uses in USES {
        let limits: Vec<Option<Limit>> = uses.iter().map(limit).collect();
        if limits.iter().all(|limit| *limit == limits[0]) {
            if let Some(limit) = limits[0].clone() {
                add(&mut exceptions, limit, format!("`{}`", workload(uses)));
            }
            continue;
        }
        for ((name, _), limit) in uses.iter().zip(limits) {
            if let Some(limit) = limit {
                add(&mut exceptions, limit, (*name).to_owned());
            }
        }
    }
    Ok(exceptions)
}

/// Adds an item to those of which the same holds.
fn add<F: PartialEq>(groups: &mut Vec<(F, Vec<String>)>, fact: F, item: String) {
    match groups.iter_mut().find(|(known, _)| *known == fact) {
        Some((_, items)) => items.push(item),
        None => groups.push((fact, vec![item])),
    }
}

/// The stacks that have each setting, and why others do not.
fn settings() -> String {
    let (mut rows, mut reasons) = (String::new(), String::new());
    for setting in Setting::iter() {
        let mut having: Vec<&str> = vec![];
        let mut known: Vec<&str> = vec![];
        for stack in Stack::built_in() {
            match why_setting_unsupported(stack, setting) {
                None => having.push(stack.into()),
                Some(reason) if known.contains(&reason) => {}
                Some(reason) => {
                    known.push(reason);
                    reasons += &format!("- {reason}\n");
                }
            }
        }
        rows += &format!("| `{setting}` | {} |\n", having.join(", "));
    }
    format!(
        "\n## Settings\n\n\
         What `settings` of a variant in `stacks` can choose. A cell is skipped if a setting has an effect on its\n\
         transport and the stack does not have the setting.\n\n\
         | setting | stacks |\n|---|---|\n{rows}\n\
         Why other stacks do not have them:\n\n{reasons}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_table_has_a_row_for_each_workload_and_a_column_for_each_stack() {
        let table: Vec<String> = summary()
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            table[0],
            "| workload | libp2p | litep2p | go-libp2p | commonware | raw |"
        );
        assert_eq!(table.len(), 2 + 8);
        assert!(
            table[4].starts_with(
                "| `handshakes` | tcp, tcp-tls, quic-v1, ws, webrtc-direct, memory | tcp, quic-v1, ws |"
            ),
            "{}",
            table[4]
        );
    }

    #[test]
    fn a_transport_without_every_use_of_a_workload_has_it_in_part() {
        let of = |name: &str| USES.into_iter().find(|uses| workload(uses) == name).unwrap();
        assert_eq!(transports(of("messages"), Stack::Commonware), "tcp");
        assert_eq!(
            transports(of("relay"), Stack::Litep2p),
            "*in part:* tcp, quic-v1, ws"
        );
        assert_eq!(
            transports(of("bandwidth"), Stack::Libp2p),
            "tcp, tcp-tls, quic-v1, ws, memory; *in part:* webrtc-direct"
        );
        assert_eq!(transports(of("relay"), Stack::Commonware), "");
    }

    #[test]
    fn pairs_that_can_do_nothing_have_no_row() {
        let text = section(Transport::TcpTls);
        assert_eq!(
            text,
            "\n## `tcp-tls`\n\n\
             | pairs | cannot do, or with fewer streams | streams on a connection | why |\n|---|---|---|---|\n\
             | libp2p → libp2p, libp2p → go-libp2p, go-libp2p → libp2p, go-libp2p → go-libp2p | can do everything | | |\n\n\
             These pairs run no workload on it:\n\n\
             - libp2p → litep2p, litep2p → libp2p, litep2p → litep2p, litep2p → go-libp2p, go-libp2p → litep2p \
             (litep2p secures TCP by Noise only, it has no TLS)\n\
             - commonware → commonware (commonware speaks its own protocol over TCP only: name it with the \
             transport tcp)\n\
             - raw → raw (raw has no TLS over TCP: the raw reference is plain tcp)\n"
        );
    }

    #[test]
    fn a_workload_that_is_limited_in_all_its_uses_is_named_once() {
        let all = exceptions(Stack::GoLibp2p, Stack::GoLibp2p, Transport::QuicV1).unwrap();
        let [(Limit { streams, .. }, uses)] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(*streams, 256);
        assert_eq!(*uses, ["`bandwidth`", "`substreams`", "`echo`"]);
    }
}
