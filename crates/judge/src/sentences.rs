//! Findings in words.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write,
};

use perfrun_contract::{
    compare::{
        ALPHA, Bound, Comparison, Finding, Judged, JudgedExpectation, NoFinding, Overall, PAIRS_MIN, Verdict,
    },
    metric::Metric,
    network::NONE,
    plan::{Cell, Plan},
    record::WINDOW_LIMITED,
    support::STREAM_LAYER,
    units::{Scale, percent},
};

use crate::{
    runs::{Basis, EARLIER_MIN, RUNS_MIN},
    text::{CONTROL_DIFFERS, DIFFERENT_MACHINES, change},
};

/// A finding in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Sentence {
    /// Fail if the candidate is worse or an expectation does not hold, Inconclusive if nothing is decided.
    pub verdict: Verdict,
    /// A sentence.
    pub text: String,
    /// Whether the sentence of an expectation has what this one says.
    pub is_repeated: bool,
}

impl Sentence {
    /// A sentence that no other one repeats.
    pub fn new(verdict: Verdict, text: String) -> Self {
        Self {
            verdict,
            text,
            is_repeated: false,
        }
    }
}

/// One sentence for each finding: first what controls show, then what differs, how much is the same, what is
/// inconclusive or cannot be compared, all together, what was not needed, and at the end whether what was
/// expected holds.
pub fn texts(plan: &Plan, judged: &Judged) -> Vec<String> {
    let sentences = sentences(plan, judged, Basis::Trials).into_iter();
    sentences.map(|sentence| sentence.text).collect()
}

/// The sentences of [`texts`], each with its verdict. If anything was expected, only an expectation can
/// fail.
pub fn sentences(plan: &Plan, judged: &Judged, basis: Basis) -> Vec<Sentence> {
    let names = Names::of(plan);
    let of = |is: fn(Finding) -> bool| {
        let comparisons = judged.comparisons.iter();
        comparisons
            .filter(move |comparison| is(comparison.finding))
            .map(|comparison| Sentence {
                verdict: verdict_of_comparison(comparison, judged),
                text: names.sentence(comparison, basis),
                is_repeated: comparison.finding.differs() && names.has_expectation(judged, comparison),
            })
    };
    let with_verdict = |verdict| move |text| Sentence::new(verdict, text);
    let expectation_sentence = |expectation: &JudgedExpectation| {
        Some(with_verdict(expectation.verdict)(names.expectation(expectation)?))
    };
    let not_needed = judged
        .not_needed
        .iter()
        .map(|not_needed| format!("{not_needed}."));
    names
        .controls(&judged.controls, basis)
        .into_iter()
        .chain(of(Finding::differs))
        .chain(
            same_sentences(&judged.comparisons)
                .into_iter()
                .map(with_verdict(Verdict::Pass)),
        )
        .chain(of(|finding| finding == Finding::Inconclusive))
        .chain(of(is_not_comparable))
        .chain(
            judged
                .overall
                .iter()
                .map(overall_sentence)
                .map(with_verdict(Verdict::Pass)),
        )
        .chain(not_needed.map(with_verdict(Verdict::Pass)))
        .chain(judged.expectations.iter().filter_map(expectation_sentence))
        .chain(
            judged
                .verdict
                .zip(verdict_text(judged))
                .map(|(verdict, text)| with_verdict(verdict)(text)),
        )
        .collect()
}

/// What a report says beside its table of comparisons, in sentences: what controls show, what is not as
/// expected, what else differs, and of the rest how many comparisons there are. No comparison has two
/// sentences.
pub fn summary(plan: &Plan, judged: &Judged, basis: Basis) -> Vec<String> {
    let names = Names::of(plan);
    let controls = names.controls(&judged.controls, basis).into_iter();
    let controls = controls.map(|sentence| sentence.text);
    let expectations = judged
        .expectations
        .iter()
        .filter_map(|expectation| names.expectation(expectation));
    let comparisons = judged.comparisons.iter();
    let differing = comparisons
        .filter(|comparison| comparison.finding.differs() && !names.has_expectation(judged, comparison));
    let differing = differing.map(|comparison| names.sentence(comparison, basis));
    controls
        .chain(expectations)
        .chain(differing)
        .chain(same_sentences(&judged.comparisons))
        .chain(inconclusive_sentence(&judged.comparisons, basis))
        .chain(names.not_comparable(&judged.comparisons, basis))
        .chain(judged.overall.iter().map(overall_sentence))
        .chain(
            judged
                .not_needed
                .iter()
                .map(|not_needed| format!("{not_needed}.")),
        )
        .collect()
}

/// A comparison in a sentence.
pub fn sentence(plan: &Plan, comparison: &Comparison, basis: Basis) -> String {
    Names::of(plan).sentence(comparison, basis)
}

/// What it means that this control differs, in a sentence.
pub fn control_differs(plan: &Plan, control: &Comparison, basis: Basis) -> String {
    Names::of(plan).control_differs(control, basis)
}

/// Whether a comparison has found nothing that this version knows.
fn is_not_comparable(finding: Finding) -> bool {
    matches!(finding, Finding::NotComparable | Finding::Newer(_))
}

fn verdict_of_comparison(comparison: &Comparison, judged: &Judged) -> Verdict {
    match (comparison.finding, judged.verdict) {
        (Finding::Better | Finding::Same, _) => Verdict::Pass,
        (Finding::Worse, None) => Verdict::Fail,
        _ => Verdict::Inconclusive,
    }
}

/// Cells by what sets them apart from others of the run.
struct Names<'a> {
    plan: &'a Plan,
    cells: HashMap<&'a str, &'a Cell>,
    have_loads: bool,
    have_networks: bool,
    have_pairs: bool,
}

impl<'a> Names<'a> {
    fn of(plan: &'a Plan) -> Self {
        let compared = plan
            .judging
            .cell_pairs
            .iter()
            .map(|cell_pair| cell_pair.candidate);
        let expected = plan
            .judging
            .expect
            .iter()
            .flat_map(|expectation| expectation.cells.iter().copied());
        let judged: Vec<&Cell> = compared
            .chain(expected)
            .filter_map(|cell| plan.cells.get(cell))
            .collect();
        let vary = |axis: fn(&Cell) -> String| {
            let values: BTreeSet<String> = judged.iter().map(|cell| axis(cell)).collect();
            values.len() > 1
        };
        Self {
            plan,
            cells: plan.cells.iter().map(|cell| (cell.id.as_str(), cell)).collect(),
            have_loads: vary(|cell| cell.parameters.to_string()),
            have_networks: vary(|cell| cell.network.clone()),
            have_pairs: vary(|cell| cell.stack_pair().to_string()) || plan.compares_stacks(),
        }
    }

    fn sentence(&self, comparison: &Comparison, basis: Basis) -> String {
        let name = self.metric(comparison.metric, &comparison.candidate)
            + &self.against(&comparison.baseline, &comparison.candidate);
        let values = values(comparison, basis);
        match comparison.finding {
            Finding::NotComparable => format!("Not comparable: {name}: {}.", self.reason(comparison, basis)),
            Finding::Inconclusive => format!(
                "Inconclusive: {name}{values}{}.",
                detection_limits(comparison, basis)
            ),
            finding => format!("{finding}: {name}{values}."),
        }
    }

    /// One sentence for each control that differs, one about those that do not, and one for each reason why
    /// some say nothing.
    fn controls(&self, controls: &[Comparison], basis: Basis) -> Vec<Sentence> {
        let (not_comparable, comparable): (Vec<&Comparison>, Vec<_>) = controls
            .iter()
            .partition(|control| is_not_comparable(control.finding));
        let (differing, alike): (Vec<&Comparison>, Vec<_>) = comparable
            .into_iter()
            .partition(|control| control.finding.differs());
        let differing = differing
            .into_iter()
            .map(|control| self.control_differs(control, basis));
        let all = controls.len();
        let alike = (!alike.is_empty()).then(|| {
            let verdict = match alike
                .iter()
                .all(|control| control.detectable_difference.is_some())
            {
                true => Verdict::Pass,
                false => Verdict::Inconclusive,
            };
            let text = format!(
                "The control shows no difference in {} of {all} comparisons with its baseline{}.",
                alike.len(),
                control_detection_limits(&alike)
            );
            Sentence::new(verdict, text)
        });
        let not_comparable = self
            .reasons(not_comparable, basis)
            .into_iter()
            .map(|(reason, count)| {
                format!(
                    "The control says nothing of {count} of {all} comparisons with its baseline: {reason}."
                )
            });
        let inconclusive = |text| Sentence::new(Verdict::Inconclusive, text);
        differing
            .map(inconclusive)
            .chain(alike)
            .chain(not_comparable.map(inconclusive))
            .collect()
    }

    fn control_differs(&self, control: &Comparison, basis: Basis) -> String {
        format!(
            "The control differs: {}{}. It is the baseline once more, so nothing in this comparison can be \
             believed: look for what else differs between trials, such as their machines.",
            self.metric(control.metric, &control.candidate),
            values(control, basis)
        )
    }

    /// A metric of the cell with this id, e.g. `upload over tcp`.
    fn metric(&self, metric: Metric, id: &str) -> String {
        let mut name = phrase(metric).to_owned();
        let Some(cell) = self.cells.get(id) else {
            return name;
        };
        let parts = [
            (true, format!(" over {}", cell.transport)),
            (!cell.ip_family.is_default(), format!(" over {}", cell.ip_family)),
            (
                self.have_networks && cell.network != NONE,
                format!(" on {}", cell.network),
            ),
            (self.have_loads, format!(" ({})", cell.parameters)),
            (self.have_pairs, format!(", {}", cell.stack_pair())),
        ];
        name.extend(
            parts
                .into_iter()
                .filter(|(is_shown, _)| *is_shown)
                .map(|(_, part)| part),
        );
        name
    }

    /// The pair of stacks of the baseline, where they are not the candidate's. Both are ids of cells.
    fn against(&self, baseline: &str, candidate: &str) -> String {
        let cells = self.cells.get(baseline).zip(self.cells.get(candidate));
        cells
            .filter(|(baseline, candidate)| !candidate.has_stacks_of(baseline))
            .map_or_else(String::new, |(baseline, candidate)| {
                let layer = if baseline.is_stream_layer() == candidate.is_stream_layer() {
                    String::new()
                } else {
                    format!(" ({STREAM_LAYER})")
                };
                format!(" against {}{layer}", baseline.stack_pair())
            })
    }

    /// The id of the cell that a candidate is compared with.
    fn baseline(&self, candidate: &str) -> Option<&str> {
        let cell_pairs = self.plan.judging.cell_pairs.iter();
        let mut compared = cell_pairs.filter_map(|cell_pair| self.plan.compared(*cell_pair));
        let (baseline, _) = compared.find(|(_, other)| other.id == candidate)?;
        Some(&baseline.id)
    }

    /// How many comparisons say nothing, for each reason.
    fn not_comparable(&self, comparisons: &[Comparison], basis: Basis) -> Vec<String> {
        let not_comparable = comparisons
            .iter()
            .filter(|comparison| is_not_comparable(comparison.finding));
        let of = comparisons.len();
        let reasons = self.reasons(not_comparable, basis).into_iter();
        reasons
            .map(|(reason, count)| format!("Not comparable: {count} of {of}: {reason}."))
            .collect()
    }

    /// Why comparisons say nothing, and how many of them for each reason.
    fn reasons<'c>(
        &self,
        not_comparable: impl IntoIterator<Item = &'c Comparison>,
        basis: Basis,
    ) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        for comparison in not_comparable {
            *reasons.entry(self.reason(comparison, basis)).or_default() += 1;
        }
        reasons
    }

    fn reason(&self, comparison: &Comparison, basis: Basis) -> String {
        if let Finding::Newer(finding) = comparison.finding {
            return format!("a newer version of perfrun calls them {finding}");
        }
        match comparison.reason {
            Some(NoFinding::TooFewPairs) | None => {
                let (one, several) = match basis {
                    Basis::Trials => ("pair of trials", "pairs of trials"),
                    Basis::TwoRuns => ("run", "runs"),
                    Basis::PairsOfRuns => ("pair of runs", "pairs of runs"),
                    Basis::EarlierRuns => ("earlier run", "earlier runs"),
                };
                let counting = match comparison.pairs {
                    1 => format!("1 {one} counts"),
                    pairs => format!("{pairs} {several} count"),
                };
                let excluded = comparison.excluded_pairs;
                let excluded = match excluded {
                    0 => String::new(),
                    some => format!(", and {some} do not"),
                };
                let least = match basis {
                    Basis::Trials => PAIRS_MIN as usize,
                    Basis::TwoRuns | Basis::PairsOfRuns => RUNS_MIN,
                    Basis::EarlierRuns => EARLIER_MIN,
                };
                let mut trials = self.plan.trials.iter();
                let has_enough = trials.any(|trial| !trial.warmup && trial.iteration + 1 >= PAIRS_MIN);
                let more = match basis {
                    Basis::Trials if has_enough => {
                        "measure the trials that are missing or failed, or increase `iterations`"
                    }
                    Basis::Trials => "increase `iterations`",
                    _ => "measure more runs",
                };
                format!("only {counting}{excluded}, and a finding needs {least}: {more}")
            }
            Some(NoFinding::Disturbed) => {
                let most = if basis == Basis::Trials { "pairs" } else { "trials" };
                format!(
                    "more than half of the {most} were disturbed by other work on the machine: stop it, and run with \
                     --wait-quiet 60s"
                )
            }
            Some(NoFinding::DifferentMachines) => DIFFERENT_MACHINES.to_owned(),
            Some(NoFinding::ControlDiffers) => CONTROL_DIFFERS.to_owned(),
            Some(NoFinding::Newer(name)) => format!("a newer version of perfrun gives the reason {name}"),
            Some(NoFinding::NotMeasured) => {
                "the baseline or the candidate has no trial with a value of it".to_owned()
            }
            Some(NoFinding::DebugBuild) => "a node was a debug build".to_owned(),
            Some(NoFinding::WindowLimited) => format!("{WINDOW_LIMITED} of most trials"),
        }
    }

    /// Whether the sentence about an expectation has what a comparison found.
    fn has_expectation(&self, judged: &Judged, comparison: &Comparison) -> bool {
        let mut expectations = judged.expectations.iter();
        expectations.any(|expectation| {
            self.is_about(expectation, comparison) && self.expectation(expectation).is_some()
        })
    }

    /// Whether an expectation allows a regression of what is compared.
    fn is_about(&self, expectation: &JudgedExpectation, comparison: &Comparison) -> bool {
        let expected = self.plan.judging.expect.get(expectation.index);
        expected.is_some_and(|expected| {
            matches!(expected.bound, Bound::MaxRegression(_))
                && expected.metric == comparison.metric
                && expectation.cell == comparison.candidate
        })
    }

    /// What an expectation that does not hold, or may not, is based on.
    fn expectation(&self, expectation: &JudgedExpectation) -> Option<String> {
        let expected = self.plan.judging.expect.get(expectation.index)?;
        let what = match expectation.verdict {
            Verdict::Fail => "Not as expected",
            Verdict::Inconclusive | Verdict::Newer(_) => "Inconclusive",
            Verdict::Pass => return None,
        };
        let against = match expected.bound {
            Bound::MaxRegression(_) => self.baseline(&expectation.cell),
            _ => None,
        };
        Some(format!(
            "{what}: {}{}, {}.",
            self.metric(expected.metric, &expectation.cell),
            against.map_or_else(String::new, |baseline| self.against(baseline, &expectation.cell)),
            expectation.evidence
        ))
    }
}

/// What a metric is, in a sentence.
pub fn phrase(metric: Metric) -> &'static str {
    match metric {
        Metric::UploadGoodput => "upload",
        Metric::DownloadGoodput => "download",
        Metric::TotalSeconds => "time of an exchange",
        Metric::UploadSeconds => "time of an upload",
        Metric::DownloadSeconds => "time of a download",
        Metric::OpenMean => "mean time to open a substream",
        Metric::OpenP50 => "median time to open a substream",
        Metric::HandshakeFirstByteP50 => "time to the first byte",
        Metric::HandshakesPerSecond => "rate of handshakes",
        Metric::RoundTripP50 => "round trip",
        Metric::OneWayP50 => "time of a message",
        Metric::MessagesPerSecond => "messages per second",
        Metric::CpuSecondsPerGiB => "CPU per GiB",
        Metric::RelayCpuSecondsPerGiB => "relay CPU per GiB",
        Metric::CpuSecondsPerOperation => "CPU per operation",
        Metric::CpuSecondsPerMessage => "CPU per message",
        Metric::ClientAllocatedPerStream => "memory of a client per stream",
        other => other.into(),
    }
}

/// Medians, change, pairs and failures of a comparison, e.g. `, 4.70 → 4.46 Gbit/s, −5.1 % [−7.0, −3.1] (40
/// pairs)`.
fn values(comparison: &Comparison, basis: Basis) -> String {
    let mut values = String::new();
    if let Some([baseline, candidate]) = comparison.medians {
        let scale = Scale::of(comparison.metric.unit(), baseline);
        let _ = write!(values, ", {} → {}", scale.number(baseline), scale.text(candidate));
    }
    // From none to some is a change without a ratio.
    if comparison.ratio.is_some() || comparison.medians.is_none() {
        let _ = write!(values, ", {}", change(comparison.ratio.as_ref()));
    }
    let _ = write!(values, " ({})", basis.number(comparison.pairs));
    let [baseline, candidate] = comparison.failed;
    if baseline + candidate > 0 {
        let _ = write!(values, ", failed trials {baseline} → {candidate}");
    }
    values
}

/// The differences that an inconclusive comparison detects, and the pairs that it would need.
fn detection_limits(comparison: &Comparison, basis: Basis) -> String {
    let detectable = comparison
        .detectable_difference
        .map_or_else(String::new, |share| {
            format!(
                "; this comparison detects differences from {} in four of five cases",
                at_least(share)
            )
        });
    let needed = comparison.pairs_needed;
    detectable + &pairs_needed(needed.map(|pairs| (pairs, comparison.tolerance)), basis)
}

/// A number of pairs, and the difference that they would detect.
fn pairs_needed(needed: Option<(u32, f64)>, basis: Basis) -> String {
    needed.map_or_else(String::new, |(pairs, difference)| {
        format!(
            "; about {} would detect a difference of {}",
            basis.number(pairs),
            percent(difference)
        )
    })
}

/// How small a difference controls without one could have shown.
fn control_detection_limits(alike: &[&Comparison]) -> String {
    let seen = detectable_range(alike).map_or_else(String::new, |least| {
        format!("; differences from {least} would be detected in four of five cases")
    });
    let blind = alike
        .iter()
        .filter(|control| control.detectable_difference.is_none());
    let blind = match blind.count() {
        0 => String::new(),
        count => format!("; {count} of them could show none, for too few pairs or too many failures"),
    };
    seen + &blind
}

/// The smallest differences that comparisons could have shown, from the best of them to the worst.
fn detectable_range(comparisons: &[&Comparison]) -> Option<String> {
    let seen = || {
        comparisons
            .iter()
            .filter_map(|comparison| comparison.detectable_difference)
    };
    let (least, most) = seen().reduce(f64::min).zip(seen().reduce(f64::max))?;
    let (least, most) = (at_least(least), at_least(most));
    Some(match least == most {
        true => most,
        false => format!("{least} to {most}"),
    })
}

/// How many comparisons are inconclusive, and the differences that they detect.
fn inconclusive_sentence(comparisons: &[Comparison], basis: Basis) -> Option<String> {
    let inconclusive: Vec<&Comparison> = comparisons
        .iter()
        .filter(|comparison| comparison.finding == Finding::Inconclusive)
        .collect();
    let seen = detectable_range(&inconclusive).map_or_else(String::new, |least| {
        format!("; differences from {least} are detected in four of five cases")
    });
    // The pairs of the comparison that needs most are enough for all.
    let most = inconclusive
        .iter()
        .filter_map(|comparison| Some((comparison.pairs_needed?, comparison.tolerance)))
        .max_by_key(|(pairs, _)| *pairs);
    let needed = pairs_needed(most, basis);
    let (count, of) = (inconclusive.len(), comparisons.len());
    (count > 0).then(|| format!("Inconclusive: {count} of {of}{seen}{needed}."))
}

/// A share, not less than it is, in tenths of a per cent below 10 %.
fn at_least(share: f64) -> String {
    let percent = share * 100.0;
    match percent < 10.0 {
        true => format!("{} %", (percent * 10.0).ceil() / 10.0),
        false => format!("{} %", percent.ceil()),
    }
}

/// How many comparisons found no difference: a sentence for each tolerance, from the least.
fn same_sentences(comparisons: &[Comparison]) -> Vec<String> {
    let mut tolerances: Vec<f64> = comparisons
        .iter()
        .map(|comparison| comparison.tolerance)
        .collect();
    tolerances.sort_unstable_by(f64::total_cmp);
    tolerances.dedup();
    let sentence = |tolerance: f64| {
        let of_tolerance = comparisons
            .iter()
            .filter(|comparison| comparison.tolerance == tolerance);
        let (same, others): (Vec<&Comparison>, Vec<_>) =
            of_tolerance.partition(|comparison| comparison.finding == Finding::Same);
        let is_real = |same: &&&Comparison| same.p_adjusted.is_some_and(|p| p <= ALPHA);
        let real = match same.iter().filter(is_real).count() {
            0 => String::new(),
            count => format!(", {count} of them with a real difference within that"),
        };
        let of = same.len() + others.len();
        (!same.is_empty()).then(|| {
            format!(
                "{} of {of} the same within {}{real}.",
                same.len(),
                percent(tolerance)
            )
        })
    };
    tolerances.into_iter().filter_map(sentence).collect()
}

fn overall_sentence(overall: &Overall) -> String {
    let all = match overall.cell_pairs {
        2 => "Both".to_owned(),
        pairs => format!("All {pairs}"),
    };
    format!(
        "{all} comparisons of {} together: {} ({} iterations).",
        phrase(overall.metric),
        change(Some(&overall.ratio)),
        overall.iterations
    )
}

/// The verdict and what it counts. `None` if nothing was expected.
pub fn verdict_text(judged: &Judged) -> Option<String> {
    Some(format!("Verdict: {}", counted_verdict(judged)?))
}

/// The verdict and what it counts, for a report that shows a part of the run. `None` if nothing was expected.
pub fn verdict_text_of_whole_run(judged: &Judged) -> Option<String> {
    Some(format!("Verdict of the whole run: {}", counted_verdict(judged)?))
}

fn counted_verdict(judged: &Judged) -> Option<String> {
    let verdict = judged.verdict?;
    let count = |verdict| {
        judged
            .expectations
            .iter()
            .filter(|expectation| expectation.verdict == verdict)
            .count()
    };
    let (all, hold, fail) = (
        judged.expectations.len(),
        count(Verdict::Pass),
        count(Verdict::Fail),
    );
    let are = |count: usize, one: &str, several: &str| {
        let is = if count == 1 { one } else { several };
        format!("{count} of {all} expectations {is}")
    };
    let what = match verdict {
        Verdict::Pass => are(hold, "holds", "hold"),
        Verdict::Inconclusive | Verdict::Newer(_) => {
            are(all - hold - fail, "is inconclusive", "are inconclusive")
        }
        Verdict::Fail => are(fail, "does not hold", "do not hold"),
    };
    Some(format!("{verdict} · {what}"))
}
