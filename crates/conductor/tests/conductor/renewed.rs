//! Nodes that restart in each iteration.

use perfrun_contract::{plan::Renew, run::RunState, tally::EndReason};

use crate::{bench::bench, node::Script};

#[tokio::test]
async fn each_iteration_has_new_nodes() {
    let mut bench = bench()
        .spare("client-0", Script::default())
        .spare("server-0", Script::default());
    bench.plan.renew = Renew::Iteration;
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete, "{:?}", out.end.message);
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let mut between = out.events[3..5].to_vec();
    between.sort_unstable();
    assert_eq!(between, ["client-0 renewed", "server-0 renewed"]);
    let told = out.events.iter().filter(|event| event.ends_with("replaced"));
    assert_eq!(told.count(), 0, "nothing was lost: {:?}", out.events);
}

#[tokio::test]
async fn a_node_that_cannot_be_restarted_ends_the_run() {
    let mut bench = bench().spare("client-0", Script::default());
    bench.plan.renew = Renew::Iteration;
    let out = bench.run().await;
    assert_eq!(
        (out.end.state, out.end.reason),
        (RunState::Failed, Some(EndReason::NodeLost))
    );
    assert_eq!(
        out.end.message.as_deref(),
        Some("server-0 cannot be started again: there is no spare")
    );
    assert_eq!(out.records.len(), 1, "the first iteration is kept");
}
