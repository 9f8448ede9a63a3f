//! The page of presets.

use perfrun_contract::network::NONE;

use crate::network::PRESETS;

/// Presets with their figures.
pub fn page() -> String {
    let mut page = format!(
        "# Networks\n\n\
         Made from the types by `cargo xtask crds`.\n\n\
         Names that `spec.matrix.networks` knows by itself; others are described in `spec.networks`\n\
         ([reference](perfrun.md)). Figures are those of one direction: a delay of 25ms each way makes a round trip 50 ms\n\
         longer. Words are those of tc-netem(8); `burst 0.1%,20%,100%,0%` is a link that turns bad after one of a thousand\n\
         packets on average, stays so for five, and loses all of them. Where there is a rate, packets keep their order, as in\n\
         netem: each waits for the latest before it, so that jitter makes a busy link slower than its delay alone.\n\n\
         | name | like | to servers and clients |\n|---|---|---|\n\
         | `{NONE}` | links as they are | none |\n"
    );
    for preset in PRESETS {
        let figures = preset
            .network()
            .conditions()
            .map_or_else(|bad| bad.to_string(), |all| all.to_string());
        page += &format!("| `{}` | {} | {figures} |\n", preset.name, preset.description);
    }
    page
}
