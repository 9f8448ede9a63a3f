//! What was compared and what was expected.

use std::collections::{BTreeMap, BTreeSet};

use perfrun_contract::{
    compare::{Bound, Comparison, Finding, Judged, JudgedExpectation, Ratio},
    metric::Metric,
    plan::{Cell, Plan},
};
use perfrun_judge::runs::Basis;

use super::ResultsIndex;
use crate::{
    path::Path,
    table::{self, Kind, NOTHING, Table},
    units::{self, Scale, change, percent},
};

/// A table of comparisons and one of expectations, where there are any. Sentences give the evidence of
/// expectations that do not hold, and other tables have the values of the rest.
pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let Some(judged) = index.results.judged else {
        return vec![];
    };
    [
        comparisons(index.plan(), |id| index.cell_called(id), judged, Basis::Trials),
        expectations(index.plan(), judged),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether every cell is compared, beside the raw reference, so that the table of comparisons has all
/// medians.
pub(super) fn have_all_cells(index: &ResultsIndex<'_>) -> bool {
    let plan = index.plan();
    let is_compared = |cell: usize| {
        plan.judging
            .cell_pairs
            .iter()
            .any(|cell_pair| cell_pair.cells().any(|other| other == cell))
    };
    let mut numbered = plan.cells.iter().enumerate();
    let compared = index
        .results
        .judged
        .filter(|judged| !judged.comparisons.is_empty());
    compared.is_some() && numbered.all(|(number, cell)| cell.is_raw() || is_compared(number))
}

/// The title of the table, whose intervals are those of differences.
pub(crate) const TITLE: &str = "Comparisons";

/// A column of the table.
struct Column<'a> {
    name: &'a str,
    field: Box<dyn Fn(&Comparison) -> table::Field + 'a>,
}

impl<'a> Column<'a> {
    fn new(name: &'a str, field: impl Fn(&Comparison) -> table::Field + 'a) -> Self {
        let field = Box::new(field);
        Self { name, field }
    }
}

/// `cell_of` finds a cell by its id.
pub(crate) fn comparisons<'a>(
    plan: &Plan,
    cell_of: impl Fn(&str) -> Option<&'a Cell>,
    judged: &Judged,
    basis: Basis,
) -> Option<Table> {
    let (difference_of, counted) = of_basis(basis, has_intervals(judged));
    let medians_of = match basis {
        Basis::Trials => "medians of the pairs that count",
        Basis::TwoRuns | Basis::PairsOfRuns | Basis::EarlierRuns => "medians",
    };
    let pair_of = |id: &str| pair(cell_of(id), id);
    let pairs = |side: fn(&Comparison) -> &str| -> BTreeSet<String> {
        let comparisons = judged.comparisons.iter();
        comparisons.map(|comparison| pair_of(side(comparison))).collect()
    };
    let baselines = pairs(|comparison| &comparison.baseline);
    let candidates = pairs(|comparison| &comparison.candidate);
    // A difference between stacks says nothing without the name of the one that is compared with. Names that
    // hold for all rows are in the caption, so that the rest fits beside each other.
    let names_baselines = plan.compares_stacks();
    let (has_baseline, has_candidate) = (names_baselines && baselines.len() > 1, candidates.len() > 1);
    // Where a column is narrow, it breaks here.
    let broken = |text: String| match has_baseline || has_candidate {
        true => text.replace(" → ", " →\n").replace(", ", ",\n"),
        false => text,
    };
    let keys = [
        Some(Column::new("load", |row| {
            broken(load(cell_of(&row.baseline), &row.baseline)).into()
        })),
        Some(Column::new("metric", |row| row.metric.as_ref().into())),
        has_baseline.then_some(Column::new("baseline", |row| {
            broken(pair_of(&row.baseline)).into()
        })),
        has_candidate.then_some(Column::new("candidate", |row| {
            broken(pair_of(&row.candidate)).into()
        })),
    ];
    let keys: Vec<Column<'_>> = keys.into_iter().flatten().collect();
    let values = [
        Column::new("medians", |row| broken(medians(row)).into()),
        Column::new("difference", |row| difference(row.ratio)),
        Column::new("finding", |row| finding(row).into()),
        Column::new(counted, |row| row.pairs.to_string().into()),
    ];
    let rows = judged.comparisons.iter().map(|comparison| {
        let columns = keys.iter().chain(&values);
        columns.map(|column| (column.field)(comparison)).collect()
    });
    let of_all = [
        ("baseline", &baselines, names_baselines && !has_baseline),
        ("candidate", &candidates, !has_candidate),
    ];
    let of_all = of_all.into_iter().filter(|(.., is_of_all)| *is_of_all);
    // A variant with the name of its side says nothing.
    let of_all = of_all.filter_map(|(side, pairs, _)| {
        let pair = pairs.first()?;
        (*pair != format!("{side} → {side}")).then(|| format!("{side} {pair}"))
    });
    let of = match of_all.collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => names,
        names => format!("{names}; "),
    };
    let key_names: Vec<&str> = keys.iter().map(|column| column.name).collect();
    let value_names = values.iter().map(|column| column.name);
    Table::new(Kind::Main, &key_names, value_names, rows)
        .called(
            TITLE,
            format!("{of}{medians_of}, baseline → candidate; {difference_of}"),
        )
        .unless_empty()
}

/// What a difference is, and what is counted.
fn of_basis(basis: Basis, has_intervals: bool) -> (&'static str, &'static str) {
    match basis {
        Basis::TwoRuns if !has_intervals => ("difference of the medians", "runs of each"),
        Basis::Trials => (
            "difference of pairs of neighbouring trials (Hodges and Lehmann), with its 95 % confidence interval",
            "pairs",
        ),
        Basis::TwoRuns => (
            "difference of the medians, with the 95 % confidence interval that follows from both runs",
            "runs of each",
        ),
        Basis::PairsOfRuns => (
            "difference of pairs of runs (Hodges and Lehmann), with its 95 % confidence interval",
            "pairs of runs",
        ),
        Basis::EarlierRuns => (
            "difference from the mean of earlier runs; 0 is in its interval if they predict the new run at 95 %",
            "earlier runs",
        ),
    }
}

fn expectations(plan: &Plan, judged: &Judged) -> Option<Table> {
    let rows = judged.expectations.iter().map(|expectation: &JudgedExpectation| {
        let expected = plan.judging.expect.get(expectation.index);
        let expected = expected.map(|expected| bound(expected.metric, expected.bound));
        vec![
            expectation.cell.as_str().into(),
            expected.unwrap_or_default().into(),
            expectation.verdict.as_ref().into(),
        ]
    });
    Table::new(Kind::Prose, &["cell"], ["expected", "verdict"], rows)
        .called("Expectations", "")
        .unless_empty()
}

/// An expectation, as people read it.
pub(crate) fn bound(metric: Metric, bound: Bound) -> String {
    let text = |value| units::text(metric.unit(), value);
    match bound {
        Bound::MaxRegression(share) => format!("{metric} worse by at most {}", percent(share)),
        Bound::Min(value) => format!("{metric} at least {}", text(value)),
        Bound::Max(value) => format!("{metric} at most {}", text(value)),
        Bound::MinShareOfRaw(share) => format!("{metric} at least {} of raw", percent(share)),
    }
}

/// How many comparisons have which finding, in words. Empty without a comparison.
pub(crate) fn counted(comparisons: &[Comparison]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for comparison in comparisons {
        *counts.entry(word(comparison.finding)).or_default() += 1;
    }
    let of = comparisons.len();
    let counts = counts
        .iter()
        .map(|(finding, count)| format!("{count} of {of} {finding}"));
    Vec::from_iter(counts).join(", ")
}

/// What the cell with this id does, over which path.
pub(crate) fn load(cell: Option<&Cell>, id: &str) -> String {
    let named = |cell: &Cell| format!("{}, {}", cell.parameters, Path::of(cell));
    cell.map_or_else(|| id.to_owned(), named)
}

/// Whether any difference has an interval.
pub(crate) fn has_intervals(judged: &Judged) -> bool {
    let ratios = judged
        .comparisons
        .iter()
        .filter_map(|comparison| comparison.ratio);
    ratios.into_iter().any(|ratio| ratio.low.is_some())
}

/// The pair of stacks of the cell with this id.
pub(crate) fn pair(cell: Option<&Cell>, id: &str) -> String {
    cell.map_or_else(|| id.to_owned(), |cell| cell.stack_pair().to_string())
}

/// The medians of baseline and candidate, in one unit.
fn medians(comparison: &Comparison) -> String {
    let unit = comparison.metric.unit();
    comparison.medians.map_or_else(
        || NOTHING.to_owned(),
        |[baseline, candidate]| {
            let scale = Scale::of(unit, baseline);
            format!("{} → {}", scale.number(baseline), scale.text(candidate))
        },
    )
}

/// A ratio as the change that it is, in percent.
fn difference(ratio: Option<Ratio>) -> table::Field {
    let Some(Ratio { value, low, high }) = ratio else {
        return NOTHING.into();
    };
    table::Field {
        text: format!("{} %", change(value)),
        interval: low
            .zip(high)
            .map(|(low, high)| format!("[{}, {}]", change(low), change(high))),
        ..table::Field::default()
    }
}

/// A finding in a sentence.
fn word(finding: Finding) -> String {
    match finding {
        Finding::NotComparable => "not comparable".to_owned(),
        finding => finding.to_string().to_lowercase(),
    }
}

fn finding(comparison: &Comparison) -> String {
    let finding = match (comparison.finding, comparison.reason) {
        (Finding::NotComparable, Some(reason)) => format!("{}: {reason}", word(Finding::NotComparable)),
        (Finding::Same, _) => format!("same ±{} %", (comparison.tolerance * 1e3).round() / 10.0),
        (finding, _) => word(finding),
    };
    match comparison.failed {
        [0, 0] => finding,
        [baseline, candidate] => format!("{finding}; failed trials {baseline} → {candidate}"),
    }
}
