//! What the values of a run show, in a few sentences. A difference is claimed only where intervals do not
//! overlap.

use std::cmp::Reverse;

use perfrun_contract::{
    plan::Cell,
    record::{Better, Metric, TrialRecord},
};
use perfrun_judge::phrase;

use crate::{
    markdown,
    path::Path,
    tables::{Notes, Pair, Source, Style, paths, push_new},
};

/// With more cases than these, their number is all that a reader can take in.
const MOST_SENTENCES: usize = 6;

/// The value of a pair of stacks, with its 95 % confidence interval.
#[derive(Clone, Debug)]
struct Value {
    pair: String,
    /// As tables have it, with the interval and the share of raw.
    text: String,
    /// The higher, the better.
    goodness: f64,
    /// In the unit of goodness.
    interval: Option<(f64, f64)>,
}

/// What the values of a case say: those of all pairs with one load, over one path.
#[derive(Debug, PartialEq)]
enum Shown {
    /// The only value, which is faster than nothing.
    Single(String),
    /// The first is faster than the last. Each has those with it that it cannot be told apart from.
    Apart { first: Group, last: Group },
    /// The first cannot be told apart from the last.
    Overlapping { first: String, last: String },
    /// A value lacks an interval.
    TooFew,
}

/// A value at one end of an order.
#[derive(Debug, PartialEq)]
struct Group {
    pair: String,
    text: String,
    /// Pairs whose intervals overlap its own.
    others: Vec<String>,
}

/// The sentences. None about values that are not there.
pub(crate) fn sentences(source: &Source<'_>) -> Vec<String> {
    let cases = cases(source);
    let shown = cases.iter().map(|(_, shown)| shown);
    let mut compared = shown
        .filter(|shown| !matches!(shown, Shown::Single(_)))
        .peekable();
    if compared.peek().is_some() && compared.all(|shown| *shown == Shown::TooFew) {
        return vec![
            "No pair of stacks is called faster: values of fewer than six trials have no interval."
                .to_owned(),
        ];
    }
    match cases.len() {
        ..=MOST_SENTENCES => cases.iter().map(|(case, shown)| sentence(case, shown)).collect(),
        _ => counted(cases.into_iter().map(|(_, shown)| shown).collect())
            .into_iter()
            .collect(),
    }
}

/// Each load over each path with what its values show, by what it is called.
fn cases(source: &Source<'_>) -> Vec<(String, Shown)> {
    let all: Vec<&Cell> = source.plan().cells.iter().collect();
    let (mut loads, mut metrics) = (vec![], vec![]);
    for cell in &all {
        push_new(&mut loads, &cell.parameters);
        let records = source.counting(cell);
        for (metric, _) in records.flat_map(TrialRecord::headlines) {
            push_new(&mut metrics, metric);
        }
    }
    metrics.retain(|metric| *metric != Metric::Failures);
    let mut cases = vec![];
    for metric in metrics {
        let has_metric = |cell: &&&Cell| source.row(cell, metric).is_some();
        let mut of_metric = vec![];
        all.iter()
            .filter(has_metric)
            .for_each(|cell| push_new(&mut of_metric, &cell.parameters));
        for path in paths(&all) {
            for load in loads.iter().filter(|load| of_metric.contains(load)) {
                let is_here = |cell: &&&Cell| Path::of(cell) == path && cell.parameters == **load;
                let here: Vec<&Cell> = all.iter().filter(is_here).copied().collect();
                // The baseline is faster than all, so it is mentioned only where it is alone.
                let is_alone = here.iter().all(|cell| cell.is_raw());
                let compared = here.into_iter().filter(|cell| is_alone || !cell.is_raw());
                let values = compared.filter_map(|cell| value(source, cell, metric)).collect();
                let load = match of_metric.len() {
                    1 => String::new(),
                    _ => format!(" ({load})"),
                };
                let case = format!("{} over {path}{load}", phrase(metric));
                cases.extend(shown(values).map(|shown| (case, shown)));
            }
        }
    }
    cases
}

fn value(source: &Source<'_>, cell: &Cell, metric: Metric) -> Option<Value> {
    let row = source.row(cell, metric)?;
    let unread = &mut Notes::default();
    let value = source.value(unread, cell, metric, Style::Scaled)?;
    let share = source.share(unread, cell, metric);
    let parts = [
        Some(value.text),
        value.interval.map(|interval| format!(" {interval}")),
        share.map(|share| format!(", {} of raw", share.text)),
    ];
    let sign = match metric.better() {
        Better::Lower => -1.0,
        _ => 1.0,
    };
    let ends = row.ci95_low.zip(row.ci95_high).filter(|_| !metric.is_whole());
    let ends = ends.map(|(low, high)| ((sign * low).min(sign * high), (sign * low).max(sign * high)));
    Some(Value {
        pair: Pair::of(cell).label(),
        text: parts.into_iter().flatten().collect(),
        goodness: sign * row.median,
        interval: ends.filter(|(low, high)| low.is_finite() && high.is_finite()),
    })
}

/// What values say. None if there are none.
fn shown(mut values: Vec<Value>) -> Option<Shown> {
    values.sort_by(|a, b| b.goodness.total_cmp(&a.goodness));
    let (first, last) = (values.first()?, values.last()?);
    if values.len() == 1 {
        return Some(Shown::Single(format!("{} has {}", first.pair, first.text)));
    }
    if values.iter().any(|value| value.interval.is_none()) {
        return Some(Shown::TooFew);
    }
    if overlap(first, last) {
        let named = |value: &Value| format!("{} ({})", value.text, value.pair);
        return Some(Shown::Overlapping {
            first: named(first),
            last: named(last),
        });
    }
    let group = |end: &Value| Group {
        pair: end.pair.clone(),
        text: end.text.clone(),
        others: values
            .iter()
            .filter(|value| value.pair != end.pair && overlap(value, end))
            .map(|value| value.pair.clone())
            .collect(),
    };
    Some(Shown::Apart {
        first: group(first),
        last: group(last),
    })
}

fn overlap(a: &Value, b: &Value) -> bool {
    match (a.interval, b.interval) {
        (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
        _ => true,
    }
}

fn sentence(case: &str, shown: &Shown) -> String {
    let what = match shown {
        Shown::Single(value) => value.clone(),
        Shown::Apart { first, last } => format!("{}; {}", first.is("fastest"), last.is("slowest")),
        Shown::Overlapping { first, last } => {
            format!("from {last} to {first}, whose intervals overlap: no difference shows")
        }
        Shown::TooFew => "a pair has too few trials for an interval, so none is called faster".to_owned(),
    };
    markdown::sentence(&format!("{case}: {what}"))
}

impl Group {
    fn is(&self, what: &str) -> String {
        let Self { pair, text, others } = self;
        match others.as_slice() {
            [] => format!("{pair} is {what}, {text}"),
            others => format!(
                "{pair} is among the {what}, {text} (its interval overlaps that of {})",
                others.join(", ")
            ),
        }
    }
}

/// How often each pair is the fastest. None if there is nothing to be faster than.
fn counted(cases: Vec<Shown>) -> Option<String> {
    let (mut fastest, mut open, mut all): (Vec<(String, usize)>, usize, usize) = (vec![], 0, 0);
    for case in cases {
        all += usize::from(!matches!(case, Shown::Single(_)));
        match case {
            Shown::Apart { first, .. } if first.others.is_empty() => {
                match fastest.iter_mut().find(|(pair, _)| *pair == first.pair) {
                    Some((_, count)) => *count += 1,
                    None => fastest.push((first.pair, 1)),
                }
            }
            Shown::Single(_) => {}
            _ => open += 1,
        }
    }
    fastest.sort_by_key(|(_, count)| Reverse(*count));
    let mut parts: Vec<String> = fastest
        .iter()
        .map(|(pair, count)| format!("{pair} in {count} of {all} cases"))
        .collect();
    if open > 0 {
        parts.push(format!(
            "none in {open}, because intervals overlap or there is none"
        ));
    }
    (all > 0).then(|| format!("Fastest: {}.", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of pairs by their intervals, the median in the middle.
    fn values(intervals: &[(&str, f64, f64)]) -> Vec<Value> {
        let value = |(pair, low, high): &(&str, f64, f64)| Value {
            pair: (*pair).to_owned(),
            text: format!("{} Gbit/s [{low}, {high}]", (low + high) / 2.0),
            goodness: (low + high) / 2.0,
            interval: Some((*low, *high)),
        };
        intervals.iter().map(value).collect()
    }

    fn said(values: Vec<Value>) -> String {
        sentence("upload over tcp", &shown(values).unwrap())
    }

    #[test]
    fn the_fastest_and_the_slowest_are_named_with_their_values() {
        assert_eq!(
            said(values(&[("b", 5.0, 6.0), ("a", 8.0, 9.0), ("c", 1.0, 2.0)])),
            "Upload over tcp: a is fastest, 8.5 Gbit/s [8, 9]; c is slowest, 1.5 Gbit/s [1, 2]."
        );
    }

    #[test]
    fn pairs_whose_intervals_overlap_are_not_told_apart() {
        assert_eq!(
            said(values(&[
                ("a", 8.0, 9.0),
                ("b", 7.5, 8.0),
                ("c", 1.0, 3.0),
                ("d", 1.0, 2.0)
            ])),
            "Upload over tcp: a is among the fastest, 8.5 Gbit/s [8, 9] (its interval overlaps that of b); d is among \
             the slowest, 1.5 Gbit/s [1, 2] (its interval overlaps that of c)."
        );
        assert_eq!(
            said(values(&[("a", 5.0, 7.0), ("b", 4.0, 6.0)])),
            "Upload over tcp: from 5 Gbit/s [4, 6] (b) to 6 Gbit/s [5, 7] (a), whose intervals overlap: no difference \
             shows."
        );
    }

    #[test]
    fn a_value_without_an_interval_decides_nothing() {
        let mut all = values(&[("a", 8.0, 9.0), ("b", 1.0, 2.0)]);
        all[1].interval = None;
        assert_eq!(shown(all), Some(Shown::TooFew));
        assert_eq!(shown(vec![]), None);
        assert_eq!(
            said(values(&[("a", 8.0, 9.0)])),
            "Upload over tcp: a has 8.5 Gbit/s [8, 9]."
        );
    }

    #[test]
    fn no_pair_is_called_faster_than_one_that_it_overlaps() {
        // All orders of the ends of three intervals.
        let ends: Vec<f64> = (0..6).map(f64::from).collect();
        let mut intervals = vec![];
        for low in &ends {
            intervals.extend(ends.iter().filter(|high| *high >= low).map(|high| (*low, *high)));
        }
        for &(a0, a1) in &intervals {
            for &(b0, b1) in &intervals {
                for &(c0, c1) in &intervals {
                    let all = values(&[("a", a0, a1), ("b", b0, b1), ("c", c0, c1)]);
                    let Some(Shown::Apart { first, last }) = shown(all.clone()) else {
                        continue;
                    };
                    let of = |pair: &str| all.iter().find(|value| value.pair == pair).unwrap();
                    assert!(!overlap(of(&first.pair), of(&last.pair)));
                    for end in [first, last] {
                        for value in all.iter().filter(|value| value.pair != end.pair) {
                            let is_named = end.others.contains(&value.pair);
                            assert_eq!(is_named, overlap(value, of(&end.pair)), "{end:?} {all:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn many_cases_are_counted() {
        let apart = |first: &str| shown(values(&[(first, 8.0, 9.0), ("z", 1.0, 2.0)])).unwrap();
        let open = shown(values(&[("a", 1.0, 3.0), ("b", 2.0, 4.0)])).unwrap();
        assert_eq!(
            counted(vec![apart("a"), apart("b"), open, apart("b")]).unwrap(),
            "Fastest: b in 2 of 4 cases; a in 1 of 4 cases; none in 1, because intervals overlap or there is none."
        );
        assert_eq!(counted(vec![shown(values(&[("a", 1.0, 3.0)])).unwrap()]), None);
    }
}
