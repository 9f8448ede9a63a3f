//! PerfRun documents for tests: small and quick by default.

use serde_json::{Value, json};

/// A document under construction.
#[derive(Clone, Debug)]
pub(crate) struct Document(Value);

/// One trial of one ping between raw nodes over TCP.
pub(crate) fn run(name: &str) -> Document {
    Document(json!({
        "apiVersion": "perfrun.io/v1alpha1",
        "kind": "PerfRun",
        "metadata": { "name": name },
        "spec": {
            "workload": { "ping": { "count": 1 } },
            "matrix": { "clients": ["raw"], "servers": ["raw"], "transports": ["tcp"] },
            "iterations": 1,
            "warmup": 0,
        },
    }))
}

/// One cell whose trials take at least this long each, on any machine.
pub(crate) fn steady(name: &str, trial_milliseconds: u32, iterations: u32) -> Document {
    run(name)
        .with(
            "workload",
            json!({ "ping": { "count": trial_milliseconds / 10, "interval": "10ms" } }),
        )
        .with("iterations", json!(iterations))
}

impl Document {
    /// A document in JSON.
    pub(crate) fn parsed(json: &str) -> Self {
        Self(serde_json::from_str(json).unwrap())
    }

    /// Replaces a field of the spec.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Self {
        self.0["spec"][field] = value;
        self
    }

    /// The stacks of a matrix that names none, in all pairs, over TCP and QUIC, and the raw reference.
    pub(crate) fn default_stacks(self) -> Self {
        self.with("matrix", json!({ "transports": ["tcp", "tcp-tls", "quic-v1"] }))
    }

    /// Two variants of litep2p over TCP, of which the second is compared with the first.
    pub(crate) fn comparing(self) -> Self {
        let variant = |name: &str| json!({"name": name, "stack": "litep2p"});
        let side = json!(["main"]);
        let matrix = json!({"clients": side, "servers": side, "transports": ["tcp"], "rawReference": false});
        self.with("stacks", json!([variant("main"), variant("pr")]))
            .with("matrix", matrix)
            .with("compare", json!([{"baseline": "main", "candidate": "pr"}]))
    }

    /// The text of a file: JSON is valid YAML.
    pub(crate) fn text(&self) -> String {
        format!("---\n{:#}\n", self.0)
    }
}
