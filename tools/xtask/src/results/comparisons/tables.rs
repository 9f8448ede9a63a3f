//! What kept runs show, in Markdown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::{Comparison, Metric, Outcome, Run, Runs, Trial};

/// Stands in a table in place of a missing value.
const NONE: &str = "–";

/// A report with these tables.
pub(super) fn markdown(runs: &Runs) -> String {
    let mut documents: Documents<'_> = BTreeMap::new();
    for ((document, _), run) in runs {
        documents.entry(document).or_default().push(run);
    }
    let tables = [
        ("Findings", findings(&documents)),
        ("Estimates", estimates(&documents)),
        ("Spread", spread(&documents)),
        ("Environment", environment(&documents)),
    ];
    let mut text = "# Comparisons\n".to_owned();
    for (heading, table) in tables {
        let _ = write!(text, "\n## {heading}\n\n{table}");
    }
    text
}

type Documents<'a> = BTreeMap<&'a str, Vec<&'a Run>>;

fn findings(documents: &Documents<'_>) -> String {
    let mut table = "\
| document | runs | with faster or slower | comparisons | faster | slower | same | undecided | not comparable | \
disturbed trials |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"
    .to_owned();
    for (document, runs) in documents {
        let differ = runs
            .iter()
            .filter(|run| run.comparisons.iter().any(Comparison::differs));
        let words = [
            Outcome::Better,
            Outcome::Worse,
            Outcome::Same,
            Outcome::Undecided,
            Outcome::NotComparable,
        ];
        let counts = words.map(|word| {
            let found = comparisons(runs).filter(|comparison| comparison.finding == word);
            found.count().to_string()
        });
        let trials = || runs.iter().flat_map(|run| &run.trials);
        let _ = writeln!(
            table,
            "| {document} | {} | {} | {} | {} | {} of {} |",
            runs.len(),
            differ.count(),
            comparisons(runs).count(),
            counts.join(" | "),
            trials().filter(|trial| trial.is_disturbed()).count(),
            trials().count(),
        );
    }
    table
}

fn estimates(documents: &Documents<'_>) -> String {
    let mut table = "\
The least and the largest over runs, transports and directions. The differences are those of the candidate.

| document | pairs | goodput | CPU time per GiB | CPU time per GiB of the baseline | last trial began after |
| --- | ---: | ---: | ---: | ---: | ---: |
"
    .to_owned();
    for (document, runs) in documents {
        let [goodput, cpu] = [false, true].map(|is_cpu| {
            let of_kind =
                move |comparison: &&Comparison| (comparison.metric == Metric::CpuSecondsPerGib) == is_cpu;
            comparisons(runs).filter(of_kind)
        });
        let cost = cpu.clone().filter_map(|comparison| comparison.baseline_median);
        let last = runs.iter().filter_map(|run| {
            let moments = run.trials.iter().map(|trial| trial.at_seconds);
            moments.reduce(f64::max)
        });
        let _ = writeln!(
            table,
            "| {document} | {} | {} | {} | {} | {} |",
            range(
                comparisons(runs).map(|comparison| f64::from(comparison.pairs)),
                |pairs| pairs.to_string()
            ),
            range(goodput.filter_map(|comparison| comparison.ratio), change),
            range(cpu.filter_map(|comparison| comparison.ratio), change),
            range(cost, seconds),
            range(last, seconds),
        );
    }
    table
}

/// How much of the noise is between runs. If the processes of a pair of cells are the same for a whole run,
/// its mean difference varies more from run to run than its trials explain: by how much processes differ.
fn spread(documents: &Documents<'_>) -> String {
    let mut rows: BTreeMap<_, Vec<Variances>> = BTreeMap::new();
    for (document, runs) in documents {
        let mut cell_pairs: BTreeMap<_, Vec<Sample>> = BTreeMap::new();
        for run in runs {
            for comparison in &run.comparisons {
                let cell_pair = (&comparison.stack, comparison.metric, &comparison.baseline);
                let sample = Sample::of(&run.differences(comparison));
                cell_pairs.entry(cell_pair).or_default().extend(sample);
            }
        }
        for ((stack, metric, _), runs) in &cell_pairs {
            let row = rows.entry((*stack, metric.subject(), document));
            row.or_default().extend(Variances::of(runs));
        }
    }

    let mut table = "\
Standard deviations of one side, over transports and directions. Between runs: what they differ by beyond what their
trials explain; 0.0 % means that trials explain all of it.

| stack | metric | document | runs | one trial | between runs |
| --- | --- | --- | ---: | ---: | ---: |
"
    .to_owned();
    for ((stack, subject, document), variances) in rows {
        let runs = documents[document].len();
        let deviation = |variance: fn(&Variances) -> f64| {
            let variances: Vec<_> = variances.iter().map(variance).collect();
            if variances.is_empty() {
                return NONE.to_owned();
            }
            format!("{:.1} %", mean(&variances).max(0.0).sqrt() * 100.0)
        };
        let _ = writeln!(
            table,
            "| {stack} | {subject} | {document} | {runs} | {} | {} |",
            deviation(|variances| variances.trial),
            deviation(|variances| variances.run),
        );
    }
    table
}

fn environment(documents: &Documents<'_>) -> String {
    let mut builds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut days: BTreeSet<&str> = BTreeSet::new();
    for comparison in documents.values().flat_map(|runs| comparisons(runs)) {
        let documents = builds.entry(&comparison.build).or_default();
        documents.insert(&comparison.document);
        days.extend(comparison.run.split('T').next());
    }
    let builds = builds.into_iter().map(|(build, documents)| {
        let documents: Vec<_> = documents.into_iter().collect();
        format!("{build} ({})", documents.join(", "))
    });
    let builds: Vec<_> = builds.collect();
    let ends: BTreeSet<_> = days.first().into_iter().chain(days.last()).copied().collect();
    let ends: Vec<_> = ends.into_iter().collect();
    format!(
        "|  |  |\n| --- | --- |\n| Build | {} |\n| Started | {} |\n",
        builds.join("; "),
        ends.join(" to ")
    )
}

fn comparisons<'a>(runs: &[&'a Run]) -> impl Iterator<Item = &'a Comparison> + Clone {
    runs.iter().flat_map(|run| &run.comparisons)
}

/// The least and the largest value, or the only one.
fn range(values: impl Iterator<Item = f64>, shown: impl Fn(f64) -> String) -> String {
    let values: Vec<_> = values.collect();
    let least = values.iter().copied().reduce(f64::min).map(&shown);
    let largest = values.iter().copied().reduce(f64::max).map(&shown);
    match (least, largest) {
        (Some(least), Some(largest)) if least == largest => least,
        (Some(least), Some(largest)) => format!("{least} to {largest}"),
        _ => NONE.to_owned(),
    }
}

fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−")
}

/// Seconds with three significant digits.
fn seconds(value: f64) -> String {
    let decimals = (2.0 - value.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$} s")
}

impl Comparison {
    fn differs(&self) -> bool {
        matches!(self.finding, Outcome::Better | Outcome::Worse)
    }
}

impl Metric {
    fn subject(self) -> &'static str {
        match self {
            Self::UploadGoodput | Self::DownloadGoodput => "goodput",
            Self::CpuSecondsPerGib => "CPU time per GiB",
        }
    }
}

impl Run {
    /// The logarithms of the candidate's values as shares of the baseline's, in each iteration that has both.
    fn differences(&self, comparison: &Comparison) -> Vec<f64> {
        let cells = [&comparison.baseline, &comparison.candidate];
        let [baseline, candidate] = cells.map(|cell| self.values(cell, comparison.metric));
        let in_both = baseline
            .iter()
            .filter_map(|(iteration, value)| Some((candidate.get(iteration)? / value).ln()));
        in_both.collect()
    }

    /// The values of a cell by iteration: of repeated trials that of the last, and none of disturbed ones.
    fn values(&self, cell: &str, metric: Metric) -> BTreeMap<u32, f64> {
        let is_valid = |trial: &&Trial| !trial.warmup && trial.failure.is_none() && !trial.is_disturbed();
        let of_cell = self.trials.iter().filter(|trial| trial.cell == cell);
        let mut trials: Vec<_> = of_cell.filter(is_valid).collect();
        trials.sort_by_key(|trial| trial.attempt);
        let values = trials
            .iter()
            .filter_map(|trial| Some((trial.iteration, trial.value(metric)?)));
        values.collect()
    }
}

impl Trial {
    fn is_disturbed(&self) -> bool {
        self.flags.split(' ').any(|flag| flag == "Disturbed")
    }

    /// A value that ratios can be made of.
    fn value(&self, metric: Metric) -> Option<f64> {
        let value = match metric {
            Metric::UploadGoodput | Metric::DownloadGoodput => self.goodput,
            Metric::CpuSecondsPerGib => self.cpu_seconds_per_gib,
        };
        value.filter(|value| *value > 0.0)
    }
}

/// Values that are assumed to vary randomly.
struct Sample {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Sample {
    /// `None` if there are too few to vary.
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = mean(values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (values.len() > 1).then(|| Self {
            count,
            mean,
            variance: squares / (count - 1.0),
        })
    }
}

/// The variances of one side of a pair of cells, each of which is half of that of a difference.
struct Variances {
    trial: f64,
    /// Beyond what trials explain. Negative by chance, if that is all.
    run: f64,
}

impl Variances {
    /// From the differences of each run. `None` with a single run.
    fn of(runs: &[Sample]) -> Option<Self> {
        let means: Vec<_> = runs.iter().map(|run| run.mean).collect();
        let explained: Vec<_> = runs.iter().map(|run| run.variance / run.count).collect();
        let within: Vec<_> = runs.iter().map(|run| run.variance).collect();
        let between = Sample::of(&means)?.variance - mean(&explained);
        Some(Self {
            trial: mean(&within) / 2.0,
            run: between / 2.0,
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Comparison, Metric, Outcome, Run, Runs, Trial},
        markdown, seconds,
    };

    const CELLS: [&str; 2] = ["a.a.tcp.upload-0.2s", "b.b.tcp.upload-0.2s"];

    fn comparison(document: &str, run: &str, metric: Metric, ratio: f64, finding: Outcome) -> Comparison {
        Comparison {
            document: document.to_owned(),
            run: run.to_owned(),
            build: "commit 89abcde".to_owned(),
            stack: "alpha".to_owned(),
            baseline: CELLS[0].to_owned(),
            candidate: CELLS[1].to_owned(),
            metric,
            pairs: 2,
            excluded_pairs: 0,
            baseline_median: Some(2.5),
            ratio: Some(ratio),
            low: None,
            high: None,
            finding,
            reason: None,
        }
    }

    fn trial(cell: usize, iteration: u32, goodput: f64) -> Trial {
        Trial {
            document: String::new(),
            run: String::new(),
            cell: CELLS[cell].to_owned(),
            iteration,
            warmup: false,
            attempt: 0,
            at_seconds: f64::from(iteration) * 10.0,
            flags: String::new(),
            failure: None,
            goodput: Some(goodput),
            cpu_seconds_per_gib: None,
        }
    }

    /// Two runs of a document. Their candidates differ from their baselines by a factor of e to these powers.
    fn twice(document: &str, finding: Outcome, powers: [[f64; 2]; 2]) -> Runs {
        let runs = powers
            .into_iter()
            .zip(["2026-11-26T08:17:03Z", "2026-11-27T08:17:03Z"]);
        let runs = runs.map(|(powers, started)| {
            let compared = |metric, ratio| comparison(document, started, metric, ratio, finding);
            let trials = powers.into_iter().zip(1..).flat_map(|(power, iteration)| {
                [
                    trial(0, iteration, 4.0),
                    trial(1, iteration, 4.0 * f64::exp(power)),
                ]
            });
            let run = Run {
                comparisons: vec![
                    compared(Metric::UploadGoodput, 1.0 - powers[0]),
                    compared(Metric::CpuSecondsPerGib, 1.0 + powers[0]),
                ],
                trials: trials.collect(),
            };
            ((document.to_owned(), started.to_owned()), run)
        });
        runs.collect()
    }

    #[test]
    fn tables_have_findings_estimates_and_spread() {
        let mut runs = twice("aa", Outcome::Same, [[0.0, 0.2], [0.4, 0.6]]);
        runs.extend(twice("busy", Outcome::Worse, [[0.125, 0.125], [0.125, 0.125]]));
        assert_eq!(
            markdown(&runs),
            "\
# Comparisons

## Findings

| document | runs | with faster or slower | comparisons | faster | slower | same | undecided | not comparable | \
disturbed trials |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| aa | 2 | 0 | 4 | 0 | 0 | 4 | 0 | 0 | 0 of 8 |
| busy | 2 | 2 | 4 | 0 | 4 | 0 | 0 | 0 | 0 of 8 |

## Estimates

The least and the largest over runs, transports and directions. The differences are those of the candidate.

| document | pairs | goodput | CPU time per GiB | CPU time per GiB of the baseline | last trial began after |
| --- | ---: | ---: | ---: | ---: | ---: |
| aa | 2 | −40.0 % to +0.0 % | +0.0 % to +40.0 % | 2.50 s | 20.0 s |
| busy | 2 | −12.5 % | +12.5 % | 2.50 s | 20.0 s |

## Spread

Standard deviations of one side, over transports and directions. Between runs: what they differ by beyond what their
trials explain; 0.0 % means that trials explain all of it.

| stack | metric | document | runs | one trial | between runs |
| --- | --- | --- | ---: | ---: | ---: |
| alpha | CPU time per GiB | aa | 2 | – | – |
| alpha | CPU time per GiB | busy | 2 | – | – |
| alpha | goodput | aa | 2 | 10.0 % | 18.7 % |
| alpha | goodput | busy | 2 | 0.0 % | 0.0 % |

## Environment

|  |  |
| --- | --- |
| Build | commit 89abcde (aa, busy) |
| Started | 2026-11-26 to 2026-11-27 |
"
        );
    }

    #[test]
    fn trials_count_as_perfrun_counts_them() {
        let warmup = Trial {
            warmup: true,
            ..trial(1, 1, 8.0)
        };
        let disturbed = Trial {
            flags: "LateStart Disturbed".to_owned(),
            ..trial(1, 2, 8.0)
        };
        let failed = Trial {
            failure: Some("NodeLost".to_owned()),
            ..trial(1, 3, 8.0)
        };
        let repeated = Trial {
            attempt: 1,
            ..trial(1, 4, 16.0)
        };
        let trials = [
            warmup,
            disturbed,
            failed,
            repeated,
            trial(1, 4, 8.0),
            trial(1, 5, 0.0),
            trial(1, 6, 4.0),
        ];
        let baselines = (1..6).map(|iteration| trial(0, iteration, 4.0));
        let run = Run {
            comparisons: vec![],
            trials: trials.into_iter().chain(baselines).collect(),
        };
        let compared = comparison("aa", "", Metric::UploadGoodput, 1.0, Outcome::Same);
        assert_eq!(run.differences(&compared), [4.0_f64.ln()]);
    }

    #[test]
    fn seconds_have_three_digits() {
        let shown = [0.5218, 2.4245, 35.04, 112.7].map(seconds);
        assert_eq!(shown, ["0.522 s", "2.42 s", "35.0 s", "113 s"]);
    }
}
