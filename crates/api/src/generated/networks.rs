//! The page of presets.

use perfrun_contract::network::NONE;

use crate::network::{PRESETS, Preset};

/// All presets with their figures.
pub(super) fn page() -> String {
    let mut page = format!(
        "# Networks\n\n\
         Generated from the types by `cargo xtask crds`.\n\n\
         Presets for `spec.matrix.networks`. Describe other networks in `spec.networks`\n\
         ([reference](perfrun.md)).\n\n\
         Figures are those of one direction: a delay of 25ms each way makes a round trip 50 ms longer. The\n\
         terms are those of tc-netem(8). `burst 0.1%,20%,100%,0%` is a link that turns bad after a thousand\n\
         packets on average, remains bad for five packets, and loses all of these. With a rate, packets keep\n\
         their order, as in netem: each waits for the latest packet before it, so that jitter makes a busy\n\
         link slower than its delay alone.\n\n\
         | name | resembles | to servers and clients |\n|---|---|---|\n\
         | `{NONE}` | unchanged links | none |\n"
    );
    for Preset { network, description } in PRESETS.iter() {
        let impairments = network.impairments();
        let figures = impairments.map_or_else(|error| error.to_string(), |figures| figures.to_string());
        page += &format!("| `{}` | {description} | {figures} |\n", network.name);
    }
    page
}
