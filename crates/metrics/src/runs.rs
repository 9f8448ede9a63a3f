//! Runs and their results as metrics: the same of the operator as of `perfrun run --metrics-listen`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use perfrun_contract::{
    compare::{Comparison, Verdict},
    metric::Metric,
    metrics::run,
    plan::Cell,
    run::Phase,
    summary::SummaryRow,
    tally::Counts,
    units::Unit,
};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, registry::Registry};

use crate::{encode, encode_samples};

/// A run, as far as it got.
#[derive(Clone, Debug)]
pub struct RunView {
    /// The namespace of the run, or [`LOCAL`](perfrun_contract::metrics::LOCAL).
    pub namespace: String,
    /// The name of the run.
    pub name: String,
    /// What it measures.
    pub workload: &'static str,
    /// Where it stands.
    pub phase: Phase,
    /// Why it ended, for programs.
    pub reason: Option<String>,
    /// When it began, in seconds of Unix time.
    pub started: Option<f64>,
    /// When it ended.
    pub ended: Option<f64>,
    /// The numbers of its trials.
    pub trials: Counts,
    /// Measured iterations of each cell, at least.
    pub iterations: u32,
    /// The cells of its plan.
    pub cells: Arc<[Cell]>,
    /// Cells that cannot be measured.
    pub skipped: usize,
    /// The results.
    pub summary: Vec<SummaryRow>,
    /// Whether what it expects holds, once it has ended.
    pub verdict: Option<Verdict>,
    /// What was found in its comparisons, once it has ended.
    pub comparisons: Vec<Comparison>,
}

type Labels = Vec<(&'static str, Cow<'static, str>)>;
type Value<T> = fn(&T) -> Option<f64>;

/// Writes all families of these runs, seen `now`, in seconds of Unix time.
pub fn encode_runs(encoder: &mut DescriptorEncoder<'_>, runs: &[RunView], now: f64) -> fmt::Result {
    let of_runs = |value: fn(&RunView) -> Option<f64>| {
        runs.iter()
            .filter_map(move |run| Some((run.labels(), value(run)?)))
    };
    encode_samples(encoder, &run::INFO, runs.iter().map(|run| (run.info(), 1.0)))?;
    encode_samples(encoder, &run::SEEN, runs.iter().map(|run| (run.info(), now)))?;
    encode_samples(encoder, &run::STARTED, of_runs(|run| run.started))?;
    encode_samples(encoder, &run::ENDED, of_runs(|run| run.ended))?;
    let trials = runs.iter().flat_map(|run| {
        let states = [
            ("planned", run.trials.needed()),
            ("completed", run.trials.completed),
            ("failed", run.trials.failed),
        ];
        states.map(|(state, count)| (with(run.labels(), [("state", state.into())]), count as f64))
    });
    encode_samples(encoder, &run::TRIALS, trials)?;
    encode_samples(encoder, &run::SKIPPED, of_runs(|run| Some(run.skipped as f64)))?;
    encode_samples(encoder, &run::RANK, runs.iter().flat_map(RunView::ranks))?;
    let values: [(_, Value<SummaryRow>); 5] = [
        (run::MEDIAN, |row| Some(row.median)),
        (run::CI_LOW, |row| row.ci95_low),
        (run::CI_HIGH, |row| row.ci95_high),
        (run::SHARE_OF_RAW, |row| row.share_of_raw),
        (run::COUNT, |row| Some(row.count.into())),
    ];
    for (family, value) in values {
        let rows = runs.iter().flat_map(|run| {
            run.rows()
                .filter_map(move |(cell, row)| Some((run.row(cell, row), value(row)?)))
        });
        encode_samples(encoder, &family, rows)?;
    }
    encode_samples(encoder, &run::MISSING, runs.iter().flat_map(RunView::missing))?;
    encode_samples(encoder, &run::FLAGS, runs.iter().flat_map(RunView::flags))?;
    let verdicts = runs.iter().filter_map(|run| {
        Some((
            with(run.labels(), [("verdict", run.verdict?.to_string().into())]),
            1.0,
        ))
    });
    encode_samples(encoder, &run::VERDICT, verdicts)?;
    let ends: [(_, Value<Comparison>); 3] = [
        (run::COMPARISON_RATIO, |row| Some(row.ratio?.value)),
        (run::COMPARISON_LOW, |row| row.ratio?.low),
        (run::COMPARISON_HIGH, |row| row.ratio?.high),
    ];
    for (family, value) in ends {
        let rows = runs.iter().flat_map(|run| {
            run.compared()
                .filter_map(move |(cell, row)| Some((run.comparison(cell, row), value(row)?)))
        });
        encode_samples(encoder, &family, rows)?;
    }
    Ok(())
}

/// The page of these runs, seen `now`, in seconds of Unix time.
pub fn page_of_runs(runs: Vec<RunView>, now: f64) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Runs { runs, now }));
    encode(&registry)
}

#[derive(Debug)]
struct Runs {
    runs: Vec<RunView>,
    now: f64,
}

impl Collector for Runs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_runs(&mut encoder, &self.runs, self.now)
    }
}

impl RunView {
    fn labels(&self) -> Labels {
        vec![
            ("run_namespace", self.namespace.clone().into()),
            ("run", self.name.clone().into()),
        ]
    }

    fn info(&self) -> Labels {
        with(
            self.labels(),
            [
                ("workload", self.workload.into()),
                ("phase", self.phase.to_string().into()),
                ("reason", self.reason.clone().unwrap_or_default().into()),
            ],
        )
    }

    fn cells_by_id(&self) -> HashMap<&str, &Cell> {
        self.cells.iter().map(|cell| (cell.id.as_str(), cell)).collect()
    }

    /// Rows of the summary with their cells.
    fn rows(&self) -> impl Iterator<Item = (&Cell, &SummaryRow)> {
        let cells = self.cells_by_id();
        self.summary
            .iter()
            .filter_map(move |row| Some((*cells.get(row.cell.as_str())?, row)))
    }

    /// Comparisons with the cells of their candidates.
    fn compared(&self) -> impl Iterator<Item = (&Cell, &Comparison)> {
        let cells = self.cells_by_id();
        self.comparisons
            .iter()
            .filter_map(move |row| Some((*cells.get(row.candidate.as_str())?, row)))
    }

    fn comparison(&self, cell: &Cell, row: &Comparison) -> Labels {
        with(
            self.labels(),
            [
                ("baseline", row.baseline.clone().into()),
                ("candidate", row.candidate.clone().into()),
                ("load", cell.parameters.to_string().into()),
                ("transport", cell.transport.to_string().into()),
                ("ip_family", cell.ip_family.to_string().into()),
                ("network", cell.network.clone().into()),
                ("metric", row.metric.to_string().into()),
                ("finding", row.finding.to_string().into()),
            ],
        )
    }

    fn cell(&self, cell: &Cell) -> Labels {
        with(
            self.labels(),
            [
                ("cell", cell.id.clone().into()),
                ("load", cell.parameters.to_string().into()),
                ("client", cell.client.to_string().into()),
                ("server", cell.server.to_string().into()),
                ("transport", cell.transport.to_string().into()),
                ("ip_family", cell.ip_family.to_string().into()),
                ("network", cell.network.clone().into()),
            ],
        )
    }

    fn row(&self, cell: &Cell, row: &SummaryRow) -> Labels {
        with(self.cell(cell), metric(row.metric, row.unit))
    }

    /// Metrics that there are results of, the one that stands for the workload first.
    fn ranks(&self) -> impl Iterator<Item = (Labels, f64)> {
        let mut units: BTreeMap<Metric, Unit> = self.rows().map(|(_, row)| (row.metric, row.unit)).collect();
        let first = Metric::HEADLINES
            .into_iter()
            .find_map(|metric| units.remove_entry(&metric));
        let ranked = first.into_iter().chain(units).zip(1_u32..);
        ranked.map(|((name, unit), rank)| (with(self.labels(), metric(name, unit)), rank.into()))
    }

    /// Iterations that are not in the results, of all cells of a run that has ended.
    fn missing(&self) -> impl Iterator<Item = (Labels, f64)> {
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for row in &self.summary {
            // A trial may lack a metric, but not all of them.
            let count = counts.entry(&row.cell).or_default();
            *count = row.count.max(*count);
        }
        let cells = self.cells.iter().filter(|_| self.ended.is_some());
        cells.map(move |cell| {
            let measured = counts.get(cell.id.as_str()).copied().unwrap_or(0);
            (self.cell(cell), self.iterations.saturating_sub(measured).into())
        })
    }

    fn flags(&self) -> impl Iterator<Item = (Labels, f64)> {
        let mut flags = BTreeMap::new();
        for (cell, row) in self.rows() {
            for (flag, count) in &row.flags {
                let (_, most) = flags.entry((&cell.id, *flag)).or_insert((cell, 0));
                *most = (*most).max(*count);
            }
        }
        flags.into_iter().map(move |((_, flag), (cell, count))| {
            let labels = with(self.cell(cell), [("flag", flag.to_string().into())]);
            (labels, count.into())
        })
    }
}

fn metric(name: Metric, unit: Unit) -> [(&'static str, Cow<'static, str>); 2] {
    let unit = match unit {
        Unit::BitsPerSecond => "bits_per_second",
        Unit::Seconds => "seconds",
        Unit::PerSecond => "per_second",
        Unit::Bytes => "bytes",
        Unit::Share => "ratio",
        Unit::Count => "count",
        Unit::Newer(name) => name.into(),
    };
    [("metric", name.to_string().into()), ("unit", unit.into())]
}

fn with<const N: usize>(labels: Labels, more: [(&'static str, Cow<'static, str>); N]) -> Labels {
    labels.into_iter().chain(more).collect()
}
