//! Networks that every document can use by name.

use std::sync::LazyLock;

use perfrun_contract::network::NONE;
use serde::Deserialize;

use super::Network;

/// A network that every document can use by name.
#[derive(Clone, Debug, Deserialize)]
pub struct Preset {
    /// What the network resembles, in a few words.
    pub description: String,
    /// The preset as an entry of `spec.networks`.
    #[serde(flatten)]
    pub network: Network,
}

/// All presets except [`NONE`], from near to far.
pub static PRESETS: LazyLock<Vec<Preset>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("presets.yaml")).expect("presets are networks"));

static UNIMPAIRED: LazyLock<Network> = LazyLock::new(|| {
    serde_saphyr::from_str(&format!("name: {NONE}")).expect("a network needs no more than its name")
});

/// The preset of this name, including [`NONE`].
pub fn preset(name: &str) -> Option<Network> {
    networks().find(|network| network.name == name).cloned()
}

/// Names of all presets, [`NONE`] first.
pub(crate) fn names() -> Vec<&'static str> {
    networks().map(|network| network.name.as_str()).collect()
}

fn networks() -> impl Iterator<Item = &'static Network> {
    [&*UNIMPAIRED]
        .into_iter()
        .chain(PRESETS.iter().map(|preset| &preset.network))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value};

    use super::*;

    #[test]
    fn no_field_of_a_preset_is_misspelt() {
        let written: Vec<Map<String, Value>> = serde_saphyr::from_str(include_str!("presets.yaml")).unwrap();
        for (mut written, preset) in written.into_iter().zip(PRESETS.iter()) {
            written.remove("description").unwrap();
            let read = serde_json::to_value(&preset.network).unwrap();
            let fields = |object: &Map<String, Value>| object.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(
                fields(&written),
                fields(read.as_object().unwrap()),
                "{}",
                preset.network.name
            );
            for (name, value) in written.iter().filter(|(_, value)| value.is_object()) {
                assert_eq!(
                    fields(value.as_object().unwrap()),
                    fields(read[name].as_object().unwrap())
                );
            }
        }
    }
}
