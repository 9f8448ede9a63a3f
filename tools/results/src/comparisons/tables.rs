//! What kept runs show, in Markdown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use perfrun_contract::{
    compare::Finding,
    metric::Metric,
    record::Flag,
    units::{SECONDS, change},
};

use super::{Line, Run, Runs, Trial};
use crate::report::{BUILD, STARTED};

/// Stands in a table in place of a missing value.
const NONE: &str = "–";

/// All tables with their headings.
pub(super) fn all(runs: &Runs) -> Vec<(String, String)> {
    let documents = of_documents(runs);
    let tables = [
        ("Findings", findings(&documents)),
        ("Estimates", estimates(&documents)),
        ("Spread", spread(&documents)),
    ];
    tables
        .map(|(heading, table)| (heading.to_owned(), table.trim_end().to_owned()))
        .into()
}

type Documents<'a> = BTreeMap<&'a str, Vec<&'a Run>>;

fn of_documents(runs: &Runs) -> Documents<'_> {
    let mut documents = Documents::new();
    for ((document, _), run) in runs {
        documents.entry(document).or_default().push(run);
    }
    documents
}

fn findings(documents: &Documents<'_>) -> String {
    let mut table = "\
| document | runs | with better or worse | comparisons | better | worse | same | inconclusive | not comparable | \
disturbed trials |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"
    .to_owned();
    for (document, runs) in documents {
        let differ = runs
            .iter()
            .filter(|run| run.comparisons.iter().any(|line| line.finding.differs()));
        let words = [
            Finding::Better,
            Finding::Worse,
            Finding::Same,
            Finding::Inconclusive,
            Finding::NotComparable,
        ];
        let counts = words.map(|word| {
            let found = comparisons(runs).filter(|line| line.finding == word);
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

| document | pairs | goodput | CPU per GiB | CPU per GiB of the baseline | last trial began after |
| --- | ---: | ---: | ---: | ---: | ---: |
"
    .to_owned();
    let percent = |ratio| format!("{} %", change(ratio));
    for (document, runs) in documents {
        let [goodput, cpu] = [false, true].map(|is_cpu| {
            let of_kind = move |line: &&Line| (line.metric == Metric::CpuSecondsPerGiB) == is_cpu;
            comparisons(runs).filter(of_kind)
        });
        let cost = cpu.clone().filter_map(|line| line.baseline_median);
        let last = runs.iter().filter_map(|run| {
            let moments = run.trials.iter().map(|trial| trial.at_seconds);
            moments.reduce(f64::max)
        });
        let _ = writeln!(
            table,
            "| {document} | {} | {} | {} | {} | {} |",
            range(comparisons(runs).map(|line| f64::from(line.pairs)), |pairs| pairs
                .to_string()),
            range(goodput.filter_map(|line| line.ratio), percent),
            range(cpu.filter_map(|line| line.ratio), percent),
            range(cost, |cost| SECONDS.text(cost)),
            range(last, |last| SECONDS.text(last)),
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
            for line in &run.comparisons {
                let cell_pair = (&line.stack, line.metric, &line.baseline);
                let sample = Sample::of(&run.differences(line));
                cell_pairs.entry(cell_pair).or_default().extend(sample);
            }
        }
        for ((stack, metric, _), runs) in &cell_pairs {
            let row = rows.entry((*stack, subject(*metric), document));
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

/// The builds of documents, and the first and the last day.
pub(super) fn environment(runs: &Runs) -> [(&'static str, String); 2] {
    let mut builds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut days: BTreeSet<&str> = BTreeSet::new();
    for line in runs.values().flat_map(|run| &run.comparisons) {
        builds.entry(&line.build).or_default().insert(&line.document);
        days.extend(line.run.split('T').next());
    }
    let builds = builds
        .into_iter()
        .map(|(build, documents)| format!("{build} ({})", Vec::from_iter(documents).join(", ")));
    let ends: BTreeSet<_> = days.first().into_iter().chain(days.last()).copied().collect();
    [
        (BUILD, builds.collect::<Vec<_>>().join("; ")),
        (STARTED, Vec::from_iter(ends).join(" to ")),
    ]
}

fn comparisons<'a>(runs: &[&'a Run]) -> impl Iterator<Item = &'a Line> + Clone {
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

fn subject(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuSecondsPerGiB => "CPU per GiB",
        _ => "goodput",
    }
}

impl Run {
    /// The logarithms of the candidate's values as shares of the baseline's, in each iteration that has both.
    fn differences(&self, line: &Line) -> Vec<f64> {
        let cells = [&line.baseline, &line.candidate];
        let [baseline, candidate] = cells.map(|cell| self.values(cell, line.metric));
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
        self.flags.split(' ').any(|flag| flag == Flag::Disturbed.as_ref())
    }

    /// A value that ratios can be made of.
    fn value(&self, metric: Metric) -> Option<f64> {
        let value = match metric {
            Metric::CpuSecondsPerGiB => self.cpu_seconds_per_gib,
            _ => self.goodput,
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
    use perfrun_contract::node::Reason;

    use super::{
        super::{Line, Run, Runs, Trial},
        Finding, Metric, all, environment,
    };

    const CELLS: [&str; 2] = ["a.a.tcp.upload-0.2s", "b.b.tcp.upload-0.2s"];

    fn line(document: &str, run: &str, metric: Metric, ratio: f64, finding: Finding) -> Line {
        Line {
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
    fn twice(document: &str, finding: Finding, powers: [[f64; 2]; 2]) -> Runs {
        let runs = powers
            .into_iter()
            .zip(["2026-11-26T08:17:03Z", "2026-11-27T08:17:03Z"]);
        let runs = runs.map(|(powers, started)| {
            let compared = |metric, ratio| line(document, started, metric, ratio, finding);
            let trials = powers.into_iter().zip(1..).flat_map(|(power, iteration)| {
                [
                    trial(0, iteration, 4.0),
                    trial(1, iteration, 4.0 * f64::exp(power)),
                ]
            });
            let run = Run {
                comparisons: vec![
                    compared(Metric::UploadGoodput, 1.0 - powers[0]),
                    compared(Metric::CpuSecondsPerGiB, 1.0 + powers[0]),
                ],
                trials: trials.collect(),
            };
            ((document.to_owned(), started.to_owned()), run)
        });
        runs.collect()
    }

    #[test]
    fn tables_have_findings_estimates_and_spread() {
        let mut runs = twice("aa", Finding::Same, [[0.0, 0.2], [0.4, 0.6]]);
        runs.extend(twice("busy", Finding::Worse, [[0.125, 0.125], [0.125, 0.125]]));
        let tables = all(&runs).into_iter();
        let tables = tables.map(|(heading, table)| format!("## {heading}\n\n{table}\n"));
        assert_eq!(
            tables.collect::<Vec<_>>().join("\n"),
            "\
## Findings

| document | runs | with better or worse | comparisons | better | worse | same | inconclusive | not comparable | \
disturbed trials |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| aa | 2 | 0 | 4 | 0 | 0 | 4 | 0 | 0 | 0 of 8 |
| busy | 2 | 2 | 4 | 0 | 4 | 0 | 0 | 0 | 0 of 8 |

## Estimates

The least and the largest over runs, transports and directions. The differences are those of the candidate.

| document | pairs | goodput | CPU per GiB | CPU per GiB of the baseline | last trial began after |
| --- | ---: | ---: | ---: | ---: | ---: |
| aa | 2 | −40.0 % to +0.0 % | +0.0 % to +40.0 % | 2.50 s | 20.0 s |
| busy | 2 | −12.5 % | +12.5 % | 2.50 s | 20.0 s |

## Spread

Standard deviations of one side, over transports and directions. Between runs: what they differ by beyond what their
trials explain; 0.0 % means that trials explain all of it.

| stack | metric | document | runs | one trial | between runs |
| --- | --- | --- | ---: | ---: | ---: |
| alpha | CPU per GiB | aa | 2 | – | – |
| alpha | CPU per GiB | busy | 2 | – | – |
| alpha | goodput | aa | 2 | 10.0 % | 18.7 % |
| alpha | goodput | busy | 2 | 0.0 % | 0.0 % |
"
        );
        let rows = [
            ("Build", "commit 89abcde (aa, busy)".to_owned()),
            ("Started", "2026-11-26 to 2026-11-27".to_owned()),
        ];
        assert_eq!(environment(&runs), rows);
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
            failure: Some(Reason::NodeLost),
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
        let compared = line("aa", "", Metric::UploadGoodput, 1.0, Finding::Same);
        assert_eq!(run.differences(&compared), [4.0_f64.ln()]);
    }
}
