//! The page of the workloads that each pair of stacks supports.

use perfrun_contract::{
    limits::STREAMS_MAX,
    matrix::{Setting, Stack, Transport},
    parameters::Parameters,
    support::{USES, why_pair_unsupported, why_setting_unsupported},
};
use strum::IntoEnumIterator;

/// Every pair on every transport, with the reasons for what is unsupported.
pub(super) fn page() -> String {
    let mut reasons = vec![];
    let mut rows = String::new();
    for transport in Transport::iter() {
        for (client, server) in pairs() {
            rows += &format!("| `{transport}` | {client} → {server} |");
            for (_, parameters) in USES {
                let answer = answer(&mut reasons, |streams| {
                    why_pair_unsupported(client, server, transport, &parameters(streams))
                });
                rows += &format!(" {answer} |");
            }
            rows.push('\n');
        }
    }
    let mut settings = String::new();
    for setting in Setting::iter() {
        settings += &format!("| `{setting}` |");
        for stack in Stack::built_in() {
            let answer = answer(&mut reasons, |_| {
                why_setting_unsupported(stack, setting).map(str::to_owned)
            });
            settings += &format!(" {answer} |");
        }
        settings.push('\n');
    }
    let stacks: Vec<&str> = Stack::built_in().map(Into::into).collect();
    let names = USES.map(|(name, _)| name).join(" | ");
    let rule = "---|".repeat(USES.len());
    let notes: String = (1..)
        .zip(&reasons)
        .map(|(number, reason)| format!("{number}. {reason}\n"))
        .collect();
    format!(
        "# What each pair of stacks supports\n\n\
         Generated from the planner's table by `cargo xtask crds`.\n\n\
         Pairs are client → server. *yes*: measured as requested. *up to 100*: the number of open streams on\n\
         one connection above which a cell is skipped. *–*: always skipped. Numbers refer to the reasons\n\
         below, which `perfrun plan` and reports also give. `raw` is the reference: of\n\
         `tcp-tls` and `ws` it is raw on `tcp`, of `webrtc-direct` raw on `quic-v1`. `memory` has none.\n\n\
         A download over several streams of `webrtc-direct` from libp2p may stop, although the table allows\n\
         it. The trial then fails.\n\n\
         | transport | pair | {names} |\n|---|---|{rule}\n{rows}\n\
         ## Settings\n\n\
         What `settings` of a variant in `stacks` can choose. A cell is skipped if a setting has an effect on its\n\
         transport and the stack does not have the setting.\n\n\
         | setting | {} |\n|---|{}\n{settings}\n\
         ## Reasons\n\n{notes}",
        stacks.join(" | "),
        "---|".repeat(stacks.len())
    )
}

/// The pairs that can run something.
fn pairs() -> Vec<(Stack, Stack)> {
    let all = Stack::built_in().flat_map(|client| Stack::built_in().map(move |server| (client, server)));
    let can_run = |(client, server): &(Stack, Stack)| {
        let is_possible = |transport, parameters: Parameters| {
            why_pair_unsupported(*client, *server, transport, &parameters).is_none()
        };
        Transport::iter().any(|transport| USES.iter().any(|(_, of)| is_possible(transport, of(1))))
    };
    all.filter(can_run).collect()
}

/// Whether one stream is possible, and if so, how many are.
fn answer(reasons: &mut Vec<String>, unsupported: impl Fn(u32) -> Option<String>) -> String {
    let mut note = |reason: String| {
        let position = reasons.iter().position(|noted| *noted == reason);
        1 + position.unwrap_or_else(|| {
            reasons.push(reason);
            reasons.len() - 1
        })
    };
    if let Some(reason) = unsupported(1) {
        return format!("– ({})", note(reason));
    }
    let first_refused = (2..=STREAMS_MAX).find_map(|streams| Some((streams, unsupported(streams)?)));
    match first_refused {
        Some((streams, reason)) => format!("up to {} ({})", streams - 1, note(reason)),
        None => "yes".to_owned(),
    }
}
