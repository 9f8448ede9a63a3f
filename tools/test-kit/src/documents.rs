//! Documents that tests of several crates run.

/// A run of two trials, as JSON. One takes milliseconds; the other has so much to send that it takes longer
/// than `timeouts.trial` on any machine.
pub const TIMES_OUT: &str = r#"{
  "apiVersion": "perfrun.io/v1alpha1",
  "kind": "PerfRun",
  "metadata": { "name": "times-out" },
  "spec": {
    "workload": { "bandwidth": { "sizes": ["1Ki", "1Ti"], "directions": ["upload"] } },
    "matrix": { "clients": ["raw"], "servers": ["raw"], "transports": ["tcp"] },
    "iterations": 1,
    "warmup": 0,
    "topology": { "placement": "Any" },
    "timeouts": { "trial": "3s" }
  }
}"#;
