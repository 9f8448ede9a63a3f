//! Everything that a report says, as text and tables, in reading order.

mod bandwidth;
pub(crate) mod comparisons;
mod echo;
pub(crate) mod environment;
mod failures;
mod grid;
mod handshakes;
mod lateness;
pub(crate) mod links;
mod messages;
mod notes;
mod ping;
mod problems;
mod profiles;
mod ranking;
mod relay;
mod resources;
mod results_index;
mod substreams;

use std::collections::{BTreeMap, BTreeSet};

use perfrun_contract::{
    compare::Verdict,
    matrix::{IpFamily, Transport},
    record::Flag,
    reported_run::ReportedRun,
    role::Role,
    run::{Isolation, Phase, RunState},
    tally::Conclusion,
};

use perfrun_judge::{VALUES_MIN, runs::Basis, summary, verdict_text};

pub(crate) use comparisons::{load, pair};
pub use environment::builds;
pub(crate) use grid::paths;
use grid::{Column, FAILURES, Grid, detail, header, key_fields};
pub use links::line as links_line;
pub(crate) use notes::Notes;
use notes::explained;
pub(crate) use results_index::ResultsIndex;

use crate::{
    selection::ShownResults,
    table::{self, Table},
};

/// A report, not drawn yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportContent {
    /// Name and time of the run.
    pub title: String,
    /// What a reader must know before believing a number.
    pub warnings: Vec<String>,
    /// How the run ended, and whether what was expected holds. Of several runs, what was found.
    pub outcome: String,
    /// What was found, in words.
    pub findings: Vec<String>,
    /// The measured values.
    pub measurements: Vec<Table>,
    /// Whether the first of them has the medians that the others are about.
    pub has_all_in_first: bool,
    /// Cells that were skipped and trials that failed.
    pub problems: Vec<Table>,
    /// What it ran on.
    pub environment: Table,
    /// The IP families that nodes spoke, unless all spoke IPv4.
    pub ip_families: Option<&'static str>,
    /// How to read the values. Empty if there are none.
    pub method: String,
    /// How to read the intervals of medians. Empty if there are none.
    pub intervals: &'static str,
    /// What controlled the congestion of connections.
    pub congestion: Option<String>,
}

impl ReportContent {
    /// How to read the values of these tables.
    pub(crate) fn method<'a>(&self, tables: impl IntoIterator<Item = &'a Table>) -> String {
        let medians = tables
            .into_iter()
            .filter(|table| table.title != comparisons::TITLE);
        let mut fields = medians.flat_map(|table| table.rows.iter().flatten());
        match !self.intervals.is_empty() && fields.any(|field| field.interval.is_some()) {
            true => format!("{} {}", self.method, self.intervals),
            false => self.method.clone(),
        }
    }
}

/// What there is to say of results.
pub(crate) fn content(shown: ShownResults<'_>) -> ReportContent {
    let results = shown.results;
    let index = ResultsIndex::new(results);
    let mut measurements = vec![];
    if index.has_completed() {
        measurements.extend(comparisons::tables(&index));
        measurements.extend(bandwidth::tables(&index));
        measurements.extend(substreams::tables(&index));
        measurements.extend(handshakes::table(&index));
        measurements.extend(ping::tables(&index));
        measurements.extend(relay::tables(&index));
        measurements.extend(echo::tables(&index));
        measurements.extend(messages::tables(&index));
        measurements.extend(failures::table(&index));
        measurements.extend(resources::tables(&index));
    }
    if index.has_completed() || results.trials.iter().any(|record| record.links.is_some()) {
        measurements.extend(links::table(results));
    }
    measurements.extend(lateness::table(&index));
    measurements.extend(profiles::tables(results));
    let has_comparisons = measurements.iter().any(|table| table.title == comparisons::TITLE);
    let method = method(&index, has_comparisons);
    ReportContent {
        title: results.name.to_owned(),
        warnings: warnings(&index),
        outcome: outcome(shown),
        findings: findings(&index),
        has_all_in_first: index.has_completed() && comparisons::have_all_cells(&index),
        measurements,
        problems: problems::tables(results),
        environment: environment::table(results),
        ip_families: ip_families(results),
        method,
        intervals: "[low, high] beside a median is its 95 % confidence interval, for this run only.",
        congestion: congestion(results),
    }
}

/// The sentence about a comparison of a program with itself.
pub(crate) const IS_SAME_PROGRAM: &str =
    "Baseline and candidate are the same program, so every difference is noise.";

/// What was found of comparisons and expectations. Without a comparison, what the values show. At the end,
/// how many sinks saturate a relay.
fn findings(index: &ResultsIndex<'_>) -> Vec<String> {
    let judged = index.results.judged;
    let has_failed = judged.is_some_and(|judged| {
        judged
            .expectations
            .iter()
            .any(|expectation| expectation.verdict == Verdict::Fail)
    });
    if !index.has_completed() && !has_failed {
        return vec![no_completed_trial(index)];
    }
    let compares = judged.is_some_and(|judged| !judged.comparisons.is_empty());
    let is_noise = compares && index.results.compares_same_program;
    let mut findings: Vec<String> = is_noise.then(|| IS_SAME_PROGRAM.to_owned()).into_iter().collect();
    findings.extend(
        judged
            .into_iter()
            .flat_map(|judged| summary(index.plan(), judged, Basis::Trials)),
    );
    if !compares {
        findings.extend(ranking::sentences(index));
    }
    findings.extend(relay::saturation(index));
    findings
}

/// What a run without a completed trial, warm-up aside, says of all that was expected.
fn no_completed_trial(index: &ResultsIndex<'_>) -> String {
    let trial = match index.results.tally.counts().completed {
        0 => "no trial",
        _ => "no trial after the warm-up",
    };
    let expectations = index
        .results
        .judged
        .into_iter()
        .flat_map(|judged| &judged.expectations);
    match expectations
        .filter(|expectation| expectation.verdict == Verdict::Inconclusive)
        .count()
    {
        0 => table::sentence(&format!("{trial} completed")),
        1 => format!("1 expectation is not decided, because {trial} completed."),
        count => format!("{count} expectations are not decided, because {trial} completed."),
    }
}

/// How the run ended, in a few words.
fn outcome(shown: ShownResults<'_>) -> String {
    let results = shown.results;
    let counts = results.tally.counts();
    let phase = results.conclusion.phase;
    let trials = format!("{} of {} trials", counts.completed, counts.needed());
    if let Some(verdict) = shown.verdict_of_whole_run {
        return format!("{phase} · {trials} of these cells completed · {verdict}");
    }
    let ended = format!("{phase} · {trials} completed");
    match results.judged.and_then(verdict_text) {
        Some(verdict) if phase == Phase::Succeeded => verdict,
        Some(verdict) => format!("{ended} · {verdict}"),
        None => match results
            .judged
            .map(|judged| comparisons::counted(&judged.comparisons))
        {
            Some(found) if !found.is_empty() => format!("{ended} · {found}"),
            _ => ended,
        },
    }
}

fn warnings(index: &ResultsIndex<'_>) -> Vec<String> {
    let results = index.results;
    let mut warnings: Vec<String> = busy(index).into_iter().collect();
    let Conclusion {
        phase,
        reason,
        message,
    } = &results.conclusion;
    match phase {
        Phase::Succeeded => {}
        Phase::Running => {
            warnings.push(table::ended(&format!("The run is in progress: {message}")));
        }
        Phase::Cancelled => {
            let kept = match results.tally.counts().completed {
                0 => "",
                _ => " Their results are kept.",
            };
            warnings.push(table::ended(&format!("Cancelled: {message}")) + kept);
        }
        _ => warnings.push(
            format!("{reason}: {} {}", table::ended(message), reason.meaning())
                .trim_end()
                .to_owned(),
        ),
    }
    let is_debug = results
        .environment
        .nodes
        .values()
        .any(|node| node.profile != "release")
        || results
            .trials
            .iter()
            .any(|trial| trial.flags.contains(&Flag::DebugBuild));
    if is_debug {
        warnings.push("A node was not built with the release profile, so its numbers say little: build it with `cargo build \
                       --release`.".to_owned());
    }
    if results.environment.isolation == Isolation::Loopback {
        warnings.push(
            "All nodes shared one loopback interface (no network namespaces): no link to share, and segments \
             of 64 KiB. Compare only with runs of the same kind."
                .to_owned(),
        );
    }
    let counts = results.tally.counts();
    if counts.failed > 0 && results.state != RunState::Complete {
        warnings.push(format!(
            "{} of {} trials failed; see the list of failed trials.",
            counts.failed,
            counts.needed()
        ));
    }
    warnings.extend(LIMITING_FLAGS.into_iter().filter_map(|flag| limited(index, flag)));
    warnings
}

/// Flags of trials whose values may not be those of the stacks on the links that the document describes.
const LIMITING_FLAGS: [Flag; 5] = [
    Flag::BelowNominal,
    Flag::ImpairmentLate,
    Flag::ImpairmentDrops,
    Flag::WindowLimited,
    Flag::Throttled,
];

/// The cells in which more than half of the trials have a flag. `None` if there are none.
fn limited(index: &ResultsIndex<'_>, flag: Flag) -> Option<String> {
    let count = index.limited(flag);
    (count > 0).then(|| {
        let of = index.plan().cells.len();
        format!(
            "In {count} of {of} cells, more than half of the completed trials have this note: {}.",
            explained(flag)
        )
    })
}

/// How many trials that count were measured beside something else.
fn busy(index: &ResultsIndex<'_>) -> Option<String> {
    let disturbed = index.disturbed()?;
    let advice = match index.results.environment.isolation {
        Isolation::Pods => "",
        _ => " Repeat the run on a quiet machine; the option --wait-quiet 60s waits for one.",
    };
    Some(format!(
        "The machine was busy: other work disturbed {disturbed}, so values are less certain than they look.{advice}"
    ))
}

fn method(index: &ResultsIndex<'_>, has_comparisons: bool) -> String {
    let warmup = match index.results.settings.warmup {
        0 => "no warm-up".to_owned(),
        1 => "after 1 warm-up trial that does not count".to_owned(),
        n => format!("after {n} warm-up trials that do not count"),
    };
    let [least, most] = index.completed();
    if most == 0 {
        return String::new();
    }
    let few = match most < VALUES_MIN as usize {
        true => "; fewer than six trials have no 95 % confidence interval of the median",
        false => "",
    };
    let count = match most {
        1 => "1 trial".to_owned(),
        _ if least < most => format!("{least} to {most} trials"),
        _ => format!("{most} trials"),
    };
    let median = match has_comparisons {
        true => "Each median outside of Comparisons",
        false => "Each median",
    };
    format!("{median} is over {count}, {warmup}{few}.")
}

fn ip_families(results: &ReportedRun<'_>) -> Option<&'static str> {
    if results.trials.is_empty() {
        return None;
    }
    let speaks = |ip_family| {
        let mut cells = results.plan.cells.iter();
        cells.any(|cell| cell.ip_family == ip_family)
    };
    match (speaks(IpFamily::IPv4), speaks(IpFamily::IPv6)) {
        (true, true) => Some("Nodes spoke IPv4, and IPv6 where a transport is over IPv6."),
        (false, true) => Some("Nodes spoke IPv6."),
        (_, false) => None,
    }
}

/// The congestion control of each transport: as raw, and libp2p over TCP, found it on their connections, and
/// otherwise the default of the kernel or of the stack's QUIC. Where a transport has several, which stack has
/// which.
fn congestion(results: &ReportedRun<'_>) -> Option<String> {
    let mut used: BTreeMap<Transport, BTreeMap<&String, BTreeSet<&str>>> = BTreeMap::new();
    for record in results.trials {
        let Some(cell) = results.plan.cells.get(record.trial.cell) else {
            continue;
        };
        for node in record.nodes.values() {
            if let Some(name) = &node.measured.congestion_control {
                let stack: &str = match node.role {
                    Role::Client => &cell.client.0,
                    Role::Server => &cell.server.0,
                    Role::Relay => "relay",
                };
                let of_transport = used.entry(cell.transport).or_default();
                of_transport.entry(name).or_default().insert(stack);
            }
        }
    }
    let texts = used.into_iter().map(|(transport, used)| {
        let is_one = used.len() == 1;
        let of = |(name, stacks): (&String, BTreeSet<&str>)| match is_one {
            true => name.clone(),
            false => format!("{name} ({})", Vec::from_iter(stacks).join(", ")),
        };
        let used: Vec<String> = used.into_iter().map(of).collect();
        format!("{transport} {}", used.join(", "))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| format!("Congestion control: {}.", texts.join("; ")))
}
