//! Runs that compare two variants and expect something: the verdict, and where the variants run.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;
use perfrun_api::{
    cluster::{CELL_PAIR_LABEL, NODE_LABEL, condition::Type},
    results::Results,
    spec::PerfRun,
};
use perfrun_contract::{compare::Verdict, record::Flag, tally::counting};
use perfrun_e2e::{
    Scene,
    run::{describe, has_condition, message, reason},
    seconds, shared,
};

/// Two variants that are the same, whose round trips are far from the bounds.
const COMPARED: &str = "
workload: {ping: {count: 20}}
stacks: [{name: main, stack: litep2p}, {name: pr, stack: litep2p}]
matrix: {clients: [main], servers: [main], rawReference: false}
compare: [{baseline: main, candidate: pr}]
iterations: 10
warmup: 1
topology: {placement: Any, clients: 2}
";

/// The nodes of the baseline, each with that of the candidate.
const NODE_PAIRS: [[&str; 2]; 3] = [
    ["client-0-main", "client-0-pr"],
    ["client-1-main", "client-1-pr"],
    ["server-0-main", "server-0-pr"],
];

#[test]
fn a_comparison_has_a_verdict_in_its_status_and_its_cells_share_kubernetes_nodes() {
    shared(async |scene| {
        let expect = "expect: [{metric: roundTripP50, maxRegression: 90%}]\n";
        scene.create("holds", &format!("{COMPARED}{expect}")).await?;
        let begun = scene.measuring("holds", 1, seconds(60)).await?;
        ensure!(
            reason(&begun, Type::Verdict) == "InProgress",
            "it is {}",
            describe(&begun)
        );
        let pods = async || -> Result<BTreeSet<Option<String>>> {
            Ok(scene.pods("holds").await?.iter().map(ResourceExt::uid).collect())
        };
        let first = pods().await?;
        scene.measuring("holds", 8, seconds(120)).await?;
        ensure!(
            pods().await? == first,
            "a new iteration has new programs, and the same pods"
        );
        let run = scene.succeeded("holds", seconds(240)).await?;
        let results = found_what_the_results_say(scene, &run).await?;
        // Debug builds, which these tests use, are not compared.
        let verdict = run.status.as_ref().and_then(|status| status.verdict);
        let (verdict, status, reasons) = match verdict {
            Some(Verdict::Pass) => ("Pass", "True", ["ExpectationsHold"; 2]),
            Some(Verdict::Inconclusive) => ("Inconclusive", "Unknown", ["DebugBuild", "Disturbed"]),
            other => bail!("the verdict is {other:?}: {}", describe(&run)),
        };
        ensure!(
            has_condition(&run, Type::Verdict, status) && reasons.contains(&reason(&run, Type::Verdict)),
            "it ended as {}",
            describe(&run)
        );
        let wait = format!("--for=jsonpath={{.status.verdict}}={verdict}");
        scene
            .kubectl(&["wait", &wait, "--timeout=10s", "perfrun/holds"])
            .await?;
        let host = |node: &str| results.environment.nodes.get(node).map(|info| info.host.clone());
        for [baseline, candidate] in NODE_PAIRS {
            let hosts = [host(baseline), host(candidate)];
            ensure!(
                hosts[0].is_some() && hosts[0] == hosts[1],
                "{baseline}, {candidate}: {hosts:?}"
            );
        }
        let shown = match verdict {
            "Pass" => "Succeeded",
            _ => reason(&run, Type::Verdict),
        };
        let table = scene.kubectl(&["get", "perfrun", "holds"]).await?;
        let words: Vec<_> = table.split_whitespace().collect();
        ensure!(
            words.starts_with(&["NAME", "PHASE", "VERDICT", "REASON", "TRIALS", "AGE"]),
            "{table}"
        );
        ensure!(
            words[6..].starts_with(&["holds", "Succeeded", verdict, shown, "22/22"]),
            "{table}"
        );
        Ok(())
    });
}

#[test]
fn an_expectation_that_does_not_hold_is_a_condition_and_an_event() {
    shared(async |scene| {
        let expect =
            "expect: [{metric: roundTripP50, maxRegression: 90%}, {metric: roundTripP50, max: 1us}]\n";
        scene
            .create("fails", &format!("{COMPARED}renew: never\n{expect}"))
            .await?;
        scene.measuring("fails", 1, seconds(60)).await?;
        pairs_of_cells_share_a_host(scene, "fails").await?;
        let run = scene.succeeded("fails", seconds(120)).await?;
        let results = found_what_the_results_say(scene, &run).await?;
        let status = run.status.as_ref().context("it has no status")?;
        if most_were_disturbed(&results) {
            ensure!(
                status.verdict == Some(Verdict::Inconclusive),
                "it ended as {}",
                describe(&run)
            );
            return Ok(());
        }
        ensure!(
            status.verdict == Some(Verdict::Fail),
            "it ended as {}",
            describe(&run)
        );
        ensure!(
            has_condition(&run, Type::Verdict, "False") && reason(&run, Type::Verdict) == "AboveMaximum",
            "it ended as {}",
            describe(&run)
        );
        let events = scene.events_with("AboveMaximum").await?;
        let warnings: Vec<_> = events
            .iter()
            .filter(|event| event.type_.as_deref() == Some("Warning"))
            .filter_map(|event| Some((event.reason.as_deref()?, event.note.as_deref()?)))
            .collect();
        let evidence = message(&run, Type::Verdict);
        ensure!(
            matches!(warnings[..], [("AboveMaximum", note)] if note.starts_with(evidence)),
            "the events are {warnings:?}"
        );
        Ok(())
    });
}

/// Whether a cell has fewer than the six undisturbed trials that an interval needs: the machine of these
/// tests runs a whole cluster.
fn most_were_disturbed(results: &Results) -> bool {
    let undisturbed = |cell| {
        let of_cell =
            counting(&results.trials).filter(|record| record.trial.cell == cell && !record.trial.warmup);
        of_cell
            .filter(|record| !record.flags.contains(&Flag::Disturbed))
            .count()
    };
    (0..results.plan.cells.len()).all(|cell| undisturbed(cell) < 6)
}

/// Checks that the status has the verdict and the comparisons of the results.
async fn found_what_the_results_say(scene: &Scene, run: &PerfRun) -> Result<Results> {
    let results = scene.results(run).await?;
    let judged = results.judged.as_ref().context("nothing was judged")?;
    let status = run.status.as_ref().context("it has no status")?;
    ensure!(
        status.verdict == judged.verdict,
        "the results have {:?}",
        judged.verdict
    );
    ensure!(
        !status.comparisons.is_empty() && status.comparisons == judged.comparisons,
        "the status has {:?}, and the results have {:?}",
        status.comparisons,
        judged.comparisons
    );
    Ok(results)
}

/// Checks that the nodes of baselines and candidates are on one Kubernetes node, for each pair of cells.
async fn pairs_of_cells_share_a_host(scene: &Scene, run: &str) -> Result<()> {
    let mut hosts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let pods = scene.pods(run).await?;
    for pod in &pods {
        let label = |key| pod.labels().get(key).cloned();
        let cell_pair = label(CELL_PAIR_LABEL)
            .with_context(|| format!("{:?} has no label of a pair of cells", label(NODE_LABEL)))?;
        let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        hosts.entry(cell_pair).or_default().extend(host);
    }
    let names: Vec<_> = hosts.keys().map(String::as_str).collect();
    ensure!(names == NODE_PAIRS.map(|[baseline, _]| baseline), "{names:?}");
    ensure!(
        pods.len() == 6 && hosts.values().all(|hosts| hosts.len() == 1),
        "they are on {hosts:?}"
    );
    Ok(())
}
