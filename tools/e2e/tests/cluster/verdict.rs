//! One account of a run: its status, its results and its metrics give the same reason and the same numbers.
//! The end-to-end tests of `perfrun run` run the same document and expect the same.

use anyhow::{Context, ensure};
use kube::api::PostParams;
use perfrun_api::{cluster::condition::Type, document};
use perfrun_contract::{
    run::Phase,
    tally::{Conclusion, Counts, EndReason},
};
use perfrun_e2e::{
    run::{describe, message, phase, reason},
    seconds, shared,
};
use perfrun_test_kit::documents::TIMES_OUT;

#[test]
fn status_and_results_have_one_reason() {
    shared(async |scene| {
        let mut run = document::parse(TIMES_OUT)?.remove(0);
        run.spec.topology.exclusive = false;
        let name = run.metadata.name.clone().context("it has no name")?;
        scene.api().create(&PostParams::default(), &run).await?;
        let run = scene.ended(&name, seconds(90)).await?;
        ensure!(
            phase(&run) == Some(Phase::Failed) && reason(&run, Type::Complete) == "TrialTimeout",
            "it ended as {}",
            describe(&run)
        );
        let trials = &run.status.as_ref().context("it has no status")?.trials;
        ensure!(
            (trials.total, trials.completed, trials.failed) == (2, 1, 1),
            "it ended as {}",
            describe(&run)
        );
        let results = scene.results(&run).await?;
        let counts = results.tally().counts();
        let expected = Counts {
            planned: 2,
            completed: 1,
            failed: 1,
            not_needed: 0,
        };
        ensure!(counts == expected, "the results count {counts:?}");
        let conclusion = results.conclusion.context("the results have no conclusion")?;
        let said = Conclusion {
            phase: Phase::Failed,
            reason: EndReason::TrialTimeout,
            message: message(&run, Type::Complete).to_owned(),
        };
        ensure!(
            conclusion == said && said.message.starts_with("1 of 2 trials failed; the first: "),
            "the results have {conclusion:?}, and the status says {}",
            describe(&run)
        );
        Ok(())
    });
}
