//! Nodes whose clocks differ start together.

use std::process::Command;

use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, Scratch, node_program, results},
};
use perfrun_test_kit::{Need, skip};

#[test]
fn a_node_whose_clock_is_an_hour_ahead_starts_with_the_others() {
    let unshare = ["--time", "--monotonic", "3600", "--fork", "--kill-child"];
    let possible = Command::new("unshare").args(unshare).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skip(
            Need::Namespaces,
            "a monotonic clock of its own",
            "time namespaces cannot be had",
        );
    }
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let script = format!(
            "exec unshare {} {} \"$@\"",
            unshare.join(" "),
            node_program().display()
        );
        let ahead = scratch.script("ahead", &script);
        let document = document::run("hours")
            .with("stacks", json!([{ "name": "ahead", "stack": "raw" }]))
            .with(
                "matrix",
                json!({ "clients": ["ahead"], "servers": ["raw"], "transports": ["tcp"], "rawReference": false }),
            )
            .with("topology", json!({ "clients": 3 }))
            .with("iterations", json!(2));
        let program = format!("ahead={}", ahead.display());
        scratch.run(mode, &document, &["--node", &program]).expect(0);
        for record in results(&scratch.only_run()).trials {
            let (skew, lateness) = (
                record.start_skew_seconds.unwrap(),
                record.start_lateness_seconds.unwrap(),
            );
            assert!(
                (0.0..10.0).contains(&skew),
                "{skew} s between the first client and the last"
            );
            assert!((-0.001..10.0).contains(&lateness), "{lateness} s late");
        }
    }
}
