//! Runs with impaired links: the rights of their pods, the measured links, and recovery from failures.

use std::{fs, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use perfrun_api::{
    cluster::{NODE_LABEL, ROLE_LABEL, condition::Type},
    results::Results,
    spec::PerfRun,
};
use perfrun_contract::{metric::Metric, node::Reason, record::TrialRecord, role::Role, run::Phase};
use perfrun_e2e::{
    Scene, e2e,
    lab::Lab,
    operators::kill_link_agent,
    results::{check_every_trial_once, failures, only_failure},
    run::{check_links_verified, condition, describe, has_condition, message, phase, reason},
    seconds, shared, until,
};
use perfrun_test_kit::{Need, skip};
use serde_json::json;
use tokio::time::sleep;

/// Four trials, two of them over links of 100 ms each way. The tolerance of links, 1 % of that, is more than
/// what a busy machine adds.
const TWO_NETWORKS: &str = "
workload: {ping: {count: 3}}
matrix: {clients: [libp2p], servers: [libp2p], networks: [none, far], rawReference: false}
networks: [{name: far, delay: 100ms, backend: userspace}]
iterations: 2
warmup: 0
topology: {placement: Any}
template: {link: {realTime: true}}
";

/// Three trials of six seconds over such links.
const LONG: &str = "
workload: {ping: {count: 30}}
matrix: {clients: [libp2p], servers: [litep2p], networks: [far], rawReference: false}
networks: [{name: far, delay: 100ms, backend: userspace}]
iterations: 3
warmup: 0
topology: {placement: Any}
timeouts: {provision: 1m}
template: {link: {realTime: true}}
";

/// Two uploads that lose a tenth of what the client sends. Raw TCP connects with one packet, which the kernel
/// sends again often enough within the time of a dial.
const LOSSY: &str = "
workload: {bandwidth: {sizes: [128Ki], directions: [upload]}}
matrix: {clients: [raw], servers: [raw], networks: [lossy], rawReference: false}
networks: [{name: lossy, delay: 200ms, loss: 10%, direction: toServer, backend: userspace}]
iterations: 2
warmup: 0
topology: {placement: Any}
template: {link: {realTime: true}}
";

/// The limit that a lab removes so that pods get real-time priority.
const REAL_TIME_LIMIT: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// Time until the status of a run names a failure that is known immediately: far less than
/// timeouts.provision.
const FAILURE_TIMEOUT: Duration = seconds(30);

#[test]
fn trials_are_run_over_links_that_were_set_and_measured() {
    e2e(async |scene| {
        scene.create("links", TWO_NETWORKS).await?;
        scene.measuring("links", 0, seconds(60)).await?;
        let pods = scene.pods("links").await?;
        ensure!(pods.len() == 2, "it has {} pods", pods.len());
        for pod in &pods {
            has_an_agent_with_few_rights(scene, pod).await?;
        }
        let run = scene.succeeded("links", seconds(60)).await?;
        ensure!(
            has_condition(&run, Type::LinksVerified, "True")
                && message(&run, Type::LinksVerified).starts_with("2 of 2 networks")
                && message(&run, Type::LinksVerified).contains("; impaired by: "),
            "it ended as {}",
            describe(&run)
        );
        let results = scene.checked_results(&run).await?;
        check_links(&results)?;
        check_priority(&results)?;
        for row in results
            .summary
            .iter()
            .filter(|row| row.metric == Metric::RoundTripP50)
        {
            let expected = if row.cell.ends_with(".far") {
                0.2..0.3
            } else {
                0.0..0.1
            };
            ensure!(
                expected.contains(&row.median),
                "cell {} has a round trip of {} s",
                row.cell,
                row.median
            );
        }
        scene.no_pods("links").await?;
        scene.events_with("AsConfigured").await?;
        Ok(())
    });
}

#[test]
fn packets_lost_on_a_link_are_measured_and_retransmitted_in_trials() {
    e2e(async |scene| {
        scene.create("lossy", LOSSY).await?;
        let run = scene.succeeded("lossy", seconds(150)).await?;
        check_links_verified(&run)?;
        let results = scene.checked_results(&run).await?;
        let check = results.trials.iter().find_map(|record| record.links.as_ref());
        let probe = &check.context("the link was not measured")?.legs[0].measured;
        ensure!(
            probe.forward.lost() > 0 && probe.backward.lost() == 0,
            "only what is sent to the server should be lost: {probe:?}"
        );
        // The probability that none of the 180 packets of both uploads is lost is 6e-9.
        let (mut lost, mut sent_again) = (0, 0);
        for record in results.trials.iter().filter(|record| record.failure.is_none()) {
            let client = record.nodes.values().find(|node| node.role == Role::Client);
            let client = client.context("a trial has a client")?;
            let link = client
                .link
                .as_ref()
                .context("the client's link was not impaired")?;
            lost += link
                .traffic
                .iter()
                .filter_map(|traffic| json!(traffic)["lost"].as_u64())
                .sum::<u64>();
            sent_again += client
                .measured
                .resources
                .tcp_retransmits
                .context("the kernel does not count retransmissions")?;
        }
        ensure!(
            lost > 0 && sent_again > 0,
            "the link lost {lost} packets of trials, and {sent_again} were sent again"
        );
        Ok(())
    });
}

#[test]
fn a_link_agent_that_is_killed_takes_its_link_over_and_the_trial_is_repeated() {
    e2e(async |scene| {
        let pod = in_a_trial(scene, "killed").await?;
        if !kill_link_agent(&pod).await? {
            skip(
                Need::Lab,
                "all of it",
                "needs to be root on the computer that the pod runs on, to kill its process",
            );
            return Ok(());
        }
        let name = pod.name_any();
        let again = until("the link agent was started again", seconds(30), async || {
            let pod: Pod = scene.api().get(&name).await?;
            Ok(restarts(&pod).filter(|count| *count == 1).map(|_| pod))
        })
        .await?;
        ensure!(again.uid() == pod.uid(), "the pod was replaced");
        let run = scene.succeeded("killed", seconds(90)).await?;
        let results = scene.results(&run).await?;
        let repeated = repeated(&run, &results)?;
        let why = &failures(&results)[0]
            .failure
            .as_ref()
            .context("it failed")?
            .message;
        ensure!(
            why.contains("was started again"),
            "it failed for another reason: {why}"
        );
        ensure!(
            repeated.links.is_some(),
            "the links were not measured again after that"
        );
        Ok(())
    });
}

#[test]
fn links_of_a_replaced_client_are_measured_before_its_trial_is_repeated() {
    e2e(async |scene| {
        let pod = in_a_trial(scene, "replaced").await?;
        scene
            .kubectl(&["delete", "pod", &pod.name_any(), "--grace-period=0", "--force"])
            .await?;
        let run = scene.succeeded("replaced", seconds(120)).await?;
        let results = scene.results(&run).await?;
        let repeated = repeated(&run, &results)?;
        let check = repeated
            .links
            .as_ref()
            .context("the new links were not measured")?;
        let client = pod.labels().get(NODE_LABEL);
        ensure!(
            check.legs.iter().any(|leg| Some(&leg.client) == client),
            "{client:?} is in none of {:?}",
            check.legs
        );
        Ok(())
    });
}

#[test]
fn a_namespace_that_forbids_link_agents_is_reported_immediately() {
    shared(async |scene| {
        for level in ["restricted", "baseline"] {
            let strict = scene
                .another(&[("pod-security.kubernetes.io/enforce", level)])
                .await?;
            let said = async {
                strict.create("forbidden", TWO_NETWORKS).await?;
                let fix = format!(
                    "`kubectl label --overwrite namespace {} pod-security.kubernetes.io/enforce=privileged`",
                    strict.namespace
                );
                is_unsupported(&strict, "forbidden", &[&fix, "violates PodSecurity"]).await
            }
            .await;
            if said.is_err() {
                strict.explain().await;
            }
            strict.remove().await?;
            said?;
        }
        Ok(())
    });
}

#[test]
fn a_kernel_that_cannot_impair_is_reported_immediately() {
    shared(async |scene| {
        let by_kernel = TWO_NETWORKS.replace("backend: userspace", "backend: kernel");
        scene.create("by-kernel", &by_kernel).await?;
        let judged = scene
            .run_until("by-kernel", "knows its links", FAILURE_TIMEOUT, |run| {
                has_condition(run, Type::LinksVerified, "True")
                    || has_condition(run, Type::LinksVerified, "False")
            })
            .await?;
        if has_condition(&judged, Type::LinksVerified, "True") {
            let run = scene.succeeded("by-kernel", seconds(60)).await?;
            check_links(&scene.results(&run).await?)?;
            skip(Need::NoNetem, "all of it", "needs a kernel without sch_netem");
            return Ok(());
        }
        is_unsupported(scene, "by-kernel", &["network far on ", "modprobe sch_netem"]).await
    });
}

#[test]
fn an_operator_that_takes_over_knows_which_links_were_measured() {
    e2e(async |scene| {
        in_a_trial(scene, "orphan").await?;
        let operators = scene.operators();
        let before = operators.holder().await?;
        operators.delete_leader().await?;
        operators.await_another_than(&before).await?;
        let run = scene.measuring("orphan", 2, seconds(60)).await?;
        check_links_verified(&run)?;
        let run = scene.succeeded("orphan", seconds(60)).await?;
        check_links_verified(&run)?;
        let results = scene.checked_results(&run).await?;
        ensure!(
            failures(&results).is_empty(),
            "a trial was lost: {:?}",
            failures(&results)
        );
        // The next leader does not touch links during a trial, and measures them before the next one.
        let last = results.trials.last().and_then(|record| record.links.as_ref());
        ensure!(
            last.is_some_and(|check| check.is_effective()),
            "the links were not measured again: {last:?}"
        );
        Ok(())
    });
}

#[test]
fn a_run_that_is_cancelled_on_impaired_links_leaves_no_pod() {
    e2e(async |scene| {
        in_a_trial(scene, "cancelled").await?;
        scene.change("cancelled", json!({"cancel": true})).await?;
        let run = scene.ended("cancelled", seconds(30)).await?;
        ensure!(
            phase(&run) == Some(Phase::Cancelled) && has_condition(&run, Type::LinksVerified, "True"),
            "it ended as {}",
            describe(&run)
        );
        let results = scene.results(&run).await?;
        ensure!(
            results.trials.len() == 1 && failures(&results).is_empty(),
            "what was measured is lost: {:?}",
            results.trials
        );
        scene.no_pods("cancelled").await
    });
}

/// A client in the middle of the second trial.
async fn in_a_trial(scene: &Scene, run: &str) -> Result<Pod> {
    scene.create(run, LONG).await?;
    scene.measuring(run, 1, seconds(90)).await?;
    // A trial takes six seconds.
    sleep(Duration::from_millis(500)).await;
    scene.pod(run, ROLE_LABEL, "client").await
}

async fn has_an_agent_with_few_rights(scene: &Scene, pod: &Pod) -> Result<()> {
    let name = pod.name_any();
    let spec = pod.spec.as_ref().context("a pod has a spec")?;
    let [agent] = spec.init_containers.as_deref().unwrap_or_default() else {
        bail!("{name} does not have exactly one sidecar")
    };
    let rights = |context: Option<&k8s_openapi::api::core::v1::SecurityContext>| {
        json!(context.and_then(|context| context.capabilities.as_ref()))
    };
    let requested = json!({"add": ["NET_ADMIN", "MKNOD", "SYS_NICE"], "drop": ["ALL"]});
    let has = rights(agent.security_context.as_ref());
    ensure!(has == requested, "the link agent of {name} has {has}");
    let none = json!({"drop": ["ALL"]});
    let has = rights(spec.containers[0].security_context.as_ref());
    ensure!(has == none, "the node of {name} has {has}");
    let version = scene.client().apiserver_version().await?;
    let minor: u32 = version.minor.trim_end_matches('+').parse()?;
    let sysctls = spec
        .security_context
        .as_ref()
        .and_then(|context| context.sysctls.as_ref());
    ensure!(
        sysctls.is_some_and(|all| all.len() == 2) == (minor >= 32),
        "{name} has {sysctls:?} on Kubernetes 1.{minor}"
    );
    Ok(())
}

/// Checks that every trial that counts ran over measured links, and that the links of `far` were impaired.
fn check_links(results: &Results) -> Result<()> {
    let mut current = None;
    for record in &results.trials {
        let network = &results.plan.cells[record.trial.cell].network;
        if let Some(check) = &record.links {
            ensure!(
                check.network == *network,
                "{} measured {}",
                record.trial.id,
                check.network
            );
            current = check.is_effective().then_some(network);
            for leg in &check.legs {
                let median = leg.measured.round_trip.context("no echo came back")?.p50_ns;
                let expected = if network == "far" {
                    200_000_000..210_000_000
                } else {
                    0..50_000_000
                };
                ensure!(
                    expected.contains(&median),
                    "{network}: {median} ns from {} to {}",
                    leg.client,
                    leg.server
                );
            }
        }
        if record.failure.is_some() {
            current = None;
            continue;
        }
        ensure!(
            current == Some(network),
            "{} was run over links that nobody measured",
            record.trial.id
        );
        for (name, node) in &record.nodes {
            let link = node.link.as_ref().map(|link| json!(link.backend));
            let planned = results.plan.network(network).context("a network of the plan")?;
            let expected = (!planned.is_none()).then(|| json!(planned.backend));
            ensure!(
                link == expected,
                "{}: the link of {name} was of {link:?}",
                record.trial.id
            );
        }
    }
    Ok(())
}

/// Checks that the link agents had the requested real-time priority.
fn check_priority(results: &Results) -> Result<()> {
    let nodes = results.trials.iter().flat_map(|record| record.nodes.values());
    let workers: Vec<_> = nodes
        .filter_map(|node| node.link.as_ref()?.worker.as_ref())
        .collect();
    ensure!(!workers.is_empty(), "no thread served a link");
    let without = workers
        .iter()
        .find(|worker| json!(worker.scheduling) != "realTime");
    if let Some(worker) = without {
        if Lab::find().is_err() || fs::File::options().write(true).open(REAL_TIME_LIMIT).is_err() {
            skip(
                Need::RealTime,
                "real-time priority",
                "needs a cluster whose kernel gives it to pods, as a lab does where /proc/sys can be written",
            );
            return Ok(());
        }
        bail!("a link was served without real-time priority: {worker:?}");
    }
    Ok(())
}

/// The second attempt of the trial in which a node was lost.
fn repeated<'a>(run: &PerfRun, results: &'a Results) -> Result<&'a TrialRecord> {
    check_every_trial_once(run, results)?;
    check_links(results)?;
    check_links_verified(run)?;
    let (record, failure) = only_failure(results)?;
    ensure!(
        matches!(failure.reason, Reason::NodeLost | Reason::Stopped) && record.attempt == 0,
        "the trial failed for another reason: {failure:?}"
    );
    let mut trials = results.trials.iter();
    let again = trials.find(|again| again.trial == record.trial && again.attempt == 1);
    again.context("the trial was not repeated")
}

async fn is_unsupported(scene: &Scene, name: &str, words: &[&str]) -> Result<()> {
    let run = scene.ended(name, FAILURE_TIMEOUT).await?;
    ensure!(
        phase(&run) == Some(Phase::Failed)
            && reason(&run, Type::Complete) == "ImpairmentUnsupported"
            && condition(&run, Type::LinksVerified)
                .is_some_and(|links| links.status == "False" && links.reason == "ImpairmentUnsupported"),
        "it ended as {}",
        describe(&run)
    );
    let message = message(&run, Type::LinksVerified);
    for expected in words {
        ensure!(
            message.contains(expected),
            "the message lacks {expected}: {message}"
        );
    }
    scene.no_pods(name).await
}

fn restarts(pod: &Pod) -> Option<i32> {
    let status = pod.status.as_ref()?.init_container_statuses.as_ref()?.first()?;
    Some(status.restart_count)
}
