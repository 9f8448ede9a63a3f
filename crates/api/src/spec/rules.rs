//! Rules on a PerfRun as a whole and on its matrix, each of which reads several fields.

use kube::core::Rule;
use perfrun_contract::{matrix::Stack, network::NONE};
use schemars::{JsonSchema, schema_for};
use serde_json::Value;

use crate::{
    compare::Compare,
    network::{self, Network},
    rule::{self, list},
};

/// Fields that define what is measured. A run whose fields changed on the way would have results of two
/// documents.
const FROZEN: [&str; 10] = [
    "workload",
    "matrix",
    "stacks",
    "iterations",
    "warmup",
    "order",
    "expect",
    "topology",
    "template",
    "timeouts",
];

/// Lists that define what is measured, and the defaults of fields of their entries. Earlier versions stored
/// these defaults.
const FROZEN_LISTS: [(&str, [(&str, &str); 2]); 2] = [
    ("networks", [("direction", "'both'"), ("backend", "'auto'")]),
    ("compare", [("replaces", "'both'"), ("control", "false")]),
];

/// Fields that define what is measured or where results are, and that may be absent.
const FROZEN_IF_SET: [&str; 5] = ["seed", "renew", "maxIterations", "targetInterval", "results"];

/// The name of the resource is part of the names of its pods, which have at most 63 characters and no dot.
pub(crate) fn resource_name(longest: usize) -> Rule {
    let inner = longest - 2;
    Rule::new(format!(
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{{0,{inner}}}[a-z0-9])?$')"
    ))
    .message(
        format!(
            "metadata.name must be 1 to {longest} lower-case letters, digits or '-', and begin and end with a \
             letter or digit"
        )
        .as_str(),
    )
}

/// Most fields cannot change once the resource exists.
pub(super) fn immutable() -> Rule {
    let unchanged = FROZEN
        .iter()
        .map(|field| format!("self.{field} == oldSelf.{field}"));
    let as_absent = FROZEN_IF_SET.iter().map(|field| {
        format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == \
             oldSelf.{field})"
        )
    });
    let [networks, comparisons] = FROZEN_LISTS;
    let same = [
        same_entries::<Network>(networks),
        same_entries::<Compare>(comparisons),
    ];
    let all: Vec<_> = unchanged.chain(as_absent).chain(same).collect();
    Rule::new(all.join(" && "))
        .message("only suspend, cancel and cleanup can change: create a new PerfRun for everything else")
}

/// A list whose entries are the same, field by field: one with its default equals one without.
fn same_entries<Entry: JsonSchema>((list, defaults): (&str, [(&str, &str); 2])) -> String {
    let schema = schema_for!(Entry);
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.expect("an entry has fields").keys();
    let all: Vec<_> = fields
        .map(|field| {
            let beyond = defaults.iter().find(|(name, _)| name == field);
            let beyond =
                beyond.map_or_else(String::new, |(_, default)| format!(" && e.{field} != {default}"));
            let values = format!("map(e, has(e.{field}){beyond} ? [e.{field}] : [])");
            format!("self.{list}.{values} == oldSelf.{list}.{values}")
        })
        .collect();
    all.join(" && ")
}

/// The matrix uses stacks that exist. A misspelt name would otherwise fail only when the run is planned.
pub(super) fn known_stacks() -> Rule {
    let built_in: Vec<&str> = Stack::built_in().map(Into::into).collect();
    let named = "(self.matrix.clients + self.matrix.servers + (has(self.topology.relay) ? [self.topology.relay] : []) \
                 + self.matrix.include.map(c, c.client) + self.matrix.include.map(c, c.server) \
                 + self.matrix.exclude.filter(c, has(c.client)).map(c, c.client) \
                 + self.matrix.exclude.filter(c, has(c.server)).map(c, c.server))";
    rule::known(
        ".matrix",
        named,
        &format!("n in {} || self.stacks.exists(s, s.name == n)", list(&built_in)),
        &format!(
            "must name only built-in stacks ({}) or stacks listed in spec.stacks",
            built_in.join(", ")
        ),
    )
}

/// The matrix uses networks that exist.
pub(super) fn known_networks() -> Rule {
    let presets = network::preset_names();
    let named = "(self.matrix.networks + self.matrix.include.filter(c, has(c.network)).map(c, c.network) \
                 + self.matrix.exclude.filter(c, has(c.network)).map(c, c.network))";
    rule::known(
        ".matrix",
        named,
        &format!(
            "n in {} || (has(self.networks) && self.networks.exists(s, s.name == n))",
            list(&presets)
        ),
        &format!(
            "must name only presets ({}) or networks listed in spec.networks",
            presets.join(", ")
        ),
    )
}

/// The loads of an echo already set the number of peers: each of their connections is one.
pub(super) fn echo_sets_peers() -> Rule {
    Rule::new("!has(self.workload.echo) || self.topology.peersPerClient == 1")
        .message(
            "must be 1 with workload.echo: each connection is a peer of its own, and loads sets their number",
        )
        .field_path(".topology.peersPerClient")
}

/// An impaired link is the interface of a pod. With the host's network it would be the machine's, with all
/// its traffic.
pub(super) fn host_network_unimpaired() -> Rule {
    Rule::new(format!(
        "!self.topology.hostNetwork || (self.matrix.networks.all(n, n == '{NONE}') \
         && self.matrix.include.all(c, !has(c.network) || c.network == '{NONE}'))"
    ))
    .message("must be false if matrix.networks impairs links: the Kubernetes node itself would be impaired")
    .field_path(".topology.hostNetwork")
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use serde_json::json;

    use super::*;
    use crate::{
        network::PRESETS,
        rule::evaluation::{judges, refusal},
        spec::PerfRun,
    };

    /// A spec with this matrix, completed by what the rules read.
    fn with_matrix(mut matrix: Value) -> Value {
        for field in ["clients", "servers", "networks", "include", "exclude"] {
            matrix.as_object_mut().unwrap().entry(field).or_insert(json!([]));
        }
        json!({"matrix": matrix, "stacks": [{"name": "next"}], "networks": [{"name": "far"}], "topology": {}})
    }

    /// A spec with what the rule about changes reads.
    fn frozen() -> Value {
        let mut spec =
            json!({"networks": [{"name": "far"}], "compare": [{"baseline": "last", "candidate": "next"}]});
        for field in FROZEN {
            spec[field] = json!(1);
        }
        spec
    }

    #[test]
    fn a_resource_has_the_name_of_a_label() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        judges(
            &resource_name(63),
            &named("a-1"),
            &named("a.1"),
            "metadata.name must be 1 to 63 lower-case letters, digits or '-', and begin and end with a \
             letter or digit",
        );
    }

    #[test]
    fn fields_that_decide_what_is_measured_cannot_change() {
        let before = frozen();
        let change = |field: &str, value: Value| {
            let mut after = before.clone();
            after[field] = value;
            refusal(&immutable(), Some(&before), &after)
        };
        assert_eq!(change("suspend", json!(2)), None);
        let fields = FROZEN.into_iter().chain(FROZEN_IF_SET);
        let changes = fields.map(|field| (field, json!(2)));
        for (field, value) in changes.chain(FROZEN_LISTS.map(|(list, _)| (list, json!([])))) {
            assert_eq!(
                change(field, value).as_deref(),
                Some("only suspend, cancel and cleanup can change: create a new PerfRun for everything else"),
                "{field}"
            );
        }
    }

    #[test]
    fn a_field_of_an_entry_equals_its_default_only() {
        let before = frozen();
        for (list, defaults) in FROZEN_LISTS {
            for (field, default) in defaults {
                let with = |value: Value| {
                    let mut spec = before.clone();
                    spec[list][0][field] = value;
                    spec
                };
                let default = match default.trim_matches('\'') {
                    "false" => json!(false),
                    word => json!(word),
                };
                let (stored, other) = (with(default), with(json!("other")));
                for (old, new) in [(&before, &stored), (&stored, &before)] {
                    assert_eq!(refusal(&immutable(), Some(old), new), None, "{list} {field}");
                }
                for (old, new) in [(&before, &other), (&stored, &other), (&other, &before)] {
                    assert!(refusal(&immutable(), Some(old), new).is_some(), "{list} {field}");
                }
            }
        }
    }

    #[test]
    fn no_field_of_an_entry_can_be_added_or_changed() {
        let before = frozen();
        for (list, added) in [
            ("networks", json!({"delay": "1ms"})),
            ("networks", json!({"toClient": {}})),
            ("networks", json!({"relay": {"client": {"loss": "1%"}}})),
            ("networks", json!({"name": "near"})),
            ("compare", json!({"candidate": "last"})),
        ] {
            let mut after = before.clone();
            for (field, value) in added.as_object().unwrap() {
                after[list][0][field] = value.clone();
            }
            assert!(refusal(&immutable(), Some(&before), &after).is_some(), "{added}");
        }
    }

    #[test]
    fn every_field_is_frozen_or_may_change() {
        let crd = serde_json::to_value(PerfRun::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut fields: Vec<_> = schema["properties"]["spec"]["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        fields.retain(|field| {
            let is_list = FROZEN_LISTS.iter().any(|(list, _)| list == field);
            !is_list && !FROZEN.contains(field) && !FROZEN_IF_SET.contains(field)
        });
        fields.sort_unstable();
        assert_eq!(fields, ["cancel", "cleanup", "suspend"]);
    }

    #[test]
    fn stacks_of_the_matrix_exist() {
        let message = "must name only built-in stacks (libp2p, litep2p, go-libp2p, commonware, raw) or stacks listed in spec.stacks; it names other";
        judges(
            &known_stacks(),
            &with_matrix(json!({"clients": ["raw", "next"]})),
            &with_matrix(json!({"clients": ["other"]})),
            message,
        );
        judges(
            &known_stacks(),
            &with_matrix(json!({"exclude": [{"transport": "tcp"}]})),
            &with_matrix(json!({"exclude": [{"server": "other"}]})),
            message,
        );
    }

    #[test]
    fn networks_of_the_matrix_exist() {
        let presets: Vec<_> = PRESETS
            .iter()
            .map(|preset| preset.network.name.as_str())
            .collect();
        let message = format!(
            "must name only presets (none, {}) or networks listed in spec.networks; it names moon",
            presets.join(", ")
        );
        judges(
            &known_networks(),
            &with_matrix(json!({"networks": ["none", "wan", "far"]})),
            &with_matrix(json!({"networks": ["moon"]})),
            &message,
        );
        judges(
            &known_networks(),
            &with_matrix(json!({"include": [{"network": "far"}, {}]})),
            &with_matrix(json!({"include": [{"network": "moon"}]})),
            &message,
        );
    }

    #[test]
    fn an_echo_sets_its_own_number_of_peers() {
        let spec = |workload: &str, peers: u32| json!({"workload": {workload: {}}, "topology": {"peersPerClient": peers}});
        judges(
            &echo_sets_peers(),
            &spec("ping", 2),
            &spec("echo", 2),
            "must be 1 with workload.echo: each connection is a peer of its own, and loads sets their number",
        );
    }

    #[test]
    fn the_network_of_a_kubernetes_node_is_not_impaired() {
        let spec = |network: &str| {
            let mut spec = with_matrix(json!({"networks": [network]}));
            spec["topology"] = json!({"hostNetwork": true});
            spec
        };
        judges(
            &host_network_unimpaired(),
            &spec("none"),
            &spec("wan"),
            "must be false if matrix.networks impairs links: the Kubernetes node itself would be impaired",
        );
    }
}
