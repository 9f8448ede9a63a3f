//! What a run ran on, and how precisely it was steered.

use std::fmt;

use perfrun_contract::{
    node::Info, plan::Order, record::TrialRecord, reported_run::ReportedRun, role::Role, units::Unit,
};
use perfrun_judge::Statistics;

use crate::{
    order::grouped,
    table::{Kind, Table},
    units,
};

pub(crate) fn table(results: &ReportedRun<'_>) -> Table {
    let environment = &results.environment;
    let mut rows: Vec<(&str, Option<String>)> = vec![("perfrun", Some(environment.perfrun.clone()))];
    rows.extend(of_nodes(results));
    rows.extend([
        ("Isolation", Some(environment.isolation.to_string())),
        ("Topology", Some(topology(results))),
        ("Settings of stacks", settings(results)),
        ("Order", Some(order(results))),
        ("Started", Some(format!("{:.0}", results.started))),
        ("Took", Some(took(results))),
        ("Clients started apart by", skew(results.trials)),
        ("Time beside the workload", overhead(results.trials)),
    ]);
    let rows = rows
        .into_iter()
        .filter_map(|(name, value)| Some(vec![name.into(), value?.into()]))
        .collect();
    Table {
        title: "Environment".to_owned(),
        keys: 1,
        header: vec![String::new(), String::new()],
        rows,
        kind: Kind::Prose,
        ..Table::default()
    }
}

/// What nodes say of themselves and of their machine.
fn of_nodes(results: &ReportedRun<'_>) -> Vec<(&'static str, Option<String>)> {
    vec![
        ("Node program", agreed(results, |node| Some(node.version.clone()))),
        ("Stacks", agreed(results, |node| Some(stacks(node)))),
        (
            "Build profile",
            agreed(results, |node| Some(node.profile.clone())),
        ),
        ("Build", builds(results)),
        ("Compiler", agreed(results, compiler)),
        ("Allocator", agreed(results, |node| node.allocator.clone())),
        ("Kernel", agreed(results, |node| Some(node.kernel.clone()))),
        (
            "CPU",
            agreed(results, |node| Some(format!("{} × {}", node.cpus, node.cpu))),
        ),
        (
            "CPU limit",
            agreed(results, |node| {
                node.cpu_limit.map(|limit| format!("{limit} CPUs"))
            }),
        ),
        (
            "Memory limit",
            agreed(results, |node| node.memory_limit_bytes.map(units::size)),
        ),
        ("CPU governor", agreed(results, |node| node.governor.clone())),
        (
            "SMT",
            agreed(results, |node| {
                node.smt.map(|on| if on { "on" } else { "off" }.to_owned())
            }),
        ),
        ("Hypervisor", agreed(results, |node| node.hypervisor.clone())),
        (
            "CPU mitigations",
            agreed(results, |node| node.mitigations.clone()),
        ),
        (
            "MTU",
            agreed(results, |node| {
                node.mtu_bytes.map(|bytes| format!("{bytes} bytes"))
            }),
        ),
        (
            "TCP congestion control",
            agreed(results, |node| node.congestion_control.clone()),
        ),
        (
            "UDP buffer limits",
            agreed(results, |node| {
                let limits = node.socket_buffer_limits_bytes?;
                Some(buffers(limits, |bytes| units::text(Unit::Bytes, bytes as f64)))
            }),
        ),
    ]
}

/// What the nodes of a run say.
#[derive(PartialEq)]
pub(crate) enum NodeAnswers<'a, T> {
    /// All say the same.
    Same(T),
    /// Who says what; `None` is nothing.
    Apart(Vec<(Option<T>, Vec<&'a str>)>),
}

impl<'a, T: PartialEq> NodeAnswers<'a, T> {
    /// `None` if no node says anything.
    pub(crate) fn of(results: &ReportedRun<'a>, of: impl Fn(&'a Info) -> Option<T>) -> Option<Self> {
        let nodes = results.environment.nodes.iter();
        let mut values = grouped(nodes.map(|(name, info)| (of(info), name.as_str())));
        match values.len() {
            0 | 1 => values.pop()?.0.map(Self::Same),
            _ => Some(Self::Apart(values)),
        }
    }
}

impl<T: fmt::Display> fmt::Display for NodeAnswers<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(value, names): &(Option<T>, Vec<&str>)| {
            let value = value.as_ref().map_or_else(|| "unknown".to_owned(), T::to_string);
            format!("{value} ({})", names.join(", "))
        };
        match self {
            Self::Same(value) => value.fmt(f),
            Self::Apart(values) => f.write_str(&Vec::from_iter(values.iter().map(text)).join("; ")),
        }
    }
}

/// What all nodes say; where they differ, who says what.
fn agreed(results: &ReportedRun<'_>, of: impl Fn(&Info) -> Option<String>) -> Option<String> {
    NodeAnswers::of(results, of).map(|text| text.to_string())
}

/// What tells the programs of the nodes apart from others of their version.
pub fn builds(results: &ReportedRun<'_>) -> Option<String> {
    agreed(results, build)
}

/// Twelve digits of a digest do not collide by chance.
fn build(node: &Info) -> Option<String> {
    let commit = node.commit.as_ref().map(|commit| format!("commit {commit}"));
    let digest = node
        .program_sha256
        .as_ref()
        .map(|digest| format!("sha256 {digest:.12}"));
    let parts: Vec<String> = [node.label.clone(), commit, digest]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn compiler(node: &Info) -> Option<String> {
    let compiler = node.compiler.as_ref()?;
    let features = node.target_features.as_ref();
    Some(features.map_or_else(
        || compiler.clone(),
        |features| format!("{compiler}, for {features}"),
    ))
}

fn stacks(node: &Info) -> String {
    node.stacks
        .iter()
        .map(|(stack, version)| format!("{stack} {version}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Limits of receiving and sending, each in this form.
pub(crate) fn buffers(limits_bytes: [u64; 2], text: fn(u64) -> String) -> String {
    let [receive, send] = limits_bytes.map(text);
    if receive == send {
        receive
    } else {
        format!("receive {receive}, send {send}")
    }
}

fn topology(results: &ReportedRun<'_>) -> String {
    let settings = results.settings;
    let count = |n: u32, thing: &str| {
        if n == 1 {
            format!("1 {thing}")
        } else {
            format!("{n} {thing}s")
        }
    };
    let peers = count(settings.peers_per_client, "peer");
    format!(
        "{}, {} with {peers} each",
        count(settings.servers, "server"),
        count(settings.clients, "client")
    )
}

fn settings(results: &ReportedRun<'_>) -> Option<String> {
    let settings = results.plan.settings();
    let all: Vec<String> = settings
        .into_iter()
        .map(|(name, settings)| format!("{name}: {settings}"))
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn order(results: &ReportedRun<'_>) -> String {
    let settings = results.settings;
    let order = match settings.order {
        Order::Interleaved => "interleaved",
        Order::Sequential => "sequential",
    };
    format!(
        "{order}, {} measured and {} warm-up trials of each cell",
        settings.measured(),
        settings.warmup
    )
}

/// How long the run took, without the time between its sessions.
fn took(results: &ReportedRun<'_>) -> String {
    let text = |seconds: f64| units::text(Unit::Seconds, seconds.max(0.0));
    let all = results.ended.duration_since(results.started).as_secs_f64();
    match results.paused_seconds {
        None => text(all),
        Some(paused) => format!(
            "{} in several sessions, without {} between them",
            text(all - paused),
            text(paused)
        ),
    }
}

/// How far apart clients started. `None` if no trial had several.
fn skew(trials: &[TrialRecord]) -> Option<String> {
    let clients = |trial: &TrialRecord| {
        trial
            .nodes
            .values()
            .filter(|node| node.role == Role::Client)
            .count()
    };
    if trials.iter().all(|trial| clients(trial) < 2) {
        return None;
    }
    let largest =
        |of: fn(&TrialRecord) -> Option<f64>| Statistics::of(trials.iter().filter_map(of)).map(|s| s.max);
    let skew = largest(|trial| trial.start_skew_seconds)?;
    let uncertainty = largest(|trial| trial.clock_uncertainty_seconds)
        .map(|seconds| format!(", known to ± {}", units::text(Unit::Seconds, seconds)))
        .unwrap_or_default();
    Some(format!(
        "{} at most{uncertainty}",
        units::text(Unit::Seconds, skew)
    ))
}

fn overhead(trials: &[TrialRecord]) -> Option<String> {
    let overhead = Statistics::of(trials.iter().map(|trial| trial.overhead_seconds))?;
    let [median, max] = [overhead.median, overhead.max].map(|seconds| units::text(Unit::Seconds, seconds));
    Some(format!("{median} per trial (median), {max} at most"))
}
