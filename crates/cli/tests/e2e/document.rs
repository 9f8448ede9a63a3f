//! PerfRun documents for tests: small and quick unless told otherwise.

use serde_json::{Value, json};

/// A document under construction.
#[derive(Clone, Debug)]
pub struct Document(Value);

/// One trial of one ping between raw nodes over TCP.
pub fn run(name: &str) -> Document {
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

/// One cell whose trials take so long each, and however slow the machine is not less.
pub fn steady(name: &str, trial_milliseconds: u32, iterations: u32) -> Document {
    run(name)
        .with(
            "workload",
            json!({ "ping": { "count": trial_milliseconds / 10, "interval": "10ms" } }),
        )
        .with("iterations", json!(iterations))
}

impl Document {
    /// A document in JSON.
    pub fn parsed(json: &str) -> Self {
        Self(serde_json::from_str(json).unwrap())
    }

    /// Replaces a field of the spec.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.0["spec"][field] = value;
        self
    }

    /// All that the stacks can do on all transports, and the baseline.
    pub fn all_stacks(self) -> Self {
        self.with("matrix", json!({ "transports": ["tcp", "tcp-tls", "quic-v1"] }))
    }

    /// As a file has it: YAML understands JSON.
    pub fn text(&self) -> String {
        format!("---\n{:#}\n", self.0)
    }
}
