//! Which stacks are faster than others, in a few sentences. A difference is claimed only where intervals do
//! not overlap.

use std::cmp::Reverse;

use perfrun_contract::{
    matrix::Transport,
    metric::{Better, Metric},
    parameters::Parameters,
    plan::Cell,
    record::Flag,
};
use perfrun_judge::phrase;

use super::{Notes, ResultsIndex, paths};
use crate::{
    order::{distinct, grouped},
    path::Path,
    table,
};

/// With more cases than these, their number is all that a reader can take in.
const SENTENCES_MAX: usize = 6;

/// Why only medians are named in all cases.
const NO_ORDER: &str =
    "Values of fewer than six trials have no interval, so no pair of stacks is called faster.";

/// Why only medians are named in some cases.
const SOME_WITHOUT_ORDER: &str =
    "Where a value is of fewer than six trials, it has no interval, and only medians are named.";

/// What "a or b is fastest" means.
const ALTERNATIVES: &str =
    "Where \"or\" joins stacks, their intervals overlap: this run cannot tell which is faster.";

/// What the sentences after the number of cases are about.
const SELECTED: &str = "One case of each transport follows: the largest difference between stacks whose intervals do not overlap, or the largest of all.";

/// What "of raw" means, for those who divide the values of a table.
const SHARES: &str = "Shares of raw are estimated from the ratios within iterations (Hodges and Lehmann), and may differ from the ratio of the medians.";

/// Where the medians of substreams are: the first table has means, as the published tools do.
const MEDIANS: &str = "Median times to open a substream are in the table Substreams in detail, as p50.";

/// What is left out of the sentences.
const BELOW_PACE: &str = "Stacks that did not keep the pace of their load are not compared.";

/// What follows a share of raw.
const OF_RAW: &str = " of raw";

/// What follows a share of the proxy that raw has in the place of a relay.
const OF_PROXY: &str = " of the raw proxy";

/// The value of a pair of stacks, with its 95 % confidence interval.
#[derive(Clone, Debug, PartialEq)]
struct Value {
    pair: String,
    /// The value as tables write it. The interval is in the table.
    text: String,
    /// The share of raw, or raw's value. Empty without raw.
    share_or_raw: String,
    /// The higher, the better.
    goodness: f64,
    /// In the unit of goodness.
    interval: Option<(f64, f64)>,
}

impl Value {
    fn with_raw(&self) -> String {
        match self.share_or_raw.as_str() {
            "" => self.text.clone(),
            share_or_raw => format!("{}, {share_or_raw}", self.text),
        }
    }
}

/// The values of all pairs with one load, over one path.
struct Case {
    metric: Metric,
    transport: Transport,
    /// The path, and the load if there are several, as the end of a phrase.
    suffix: String,
    /// By how much the best value differs from the worst, as the logarithm of their ratio.
    spread: f64,
    separation: Separation,
}

/// What the values of a case say.
#[derive(Debug, PartialEq)]
enum Separation {
    /// The only value, which is faster than nothing.
    Single(Value),
    /// The first is faster than the last. Each group holds the pairs whose intervals overlap its own.
    Apart { first: Group, last: Group },
    /// Some can be told apart, but not the best median from the worst, or one pair overlaps both groups.
    Partly { faster: String, slower: String },
    /// No two pairs can be told apart. The text says from which median to which they go.
    Overlapping(String),
    /// A value lacks an interval. The text says from which median to which the values go.
    TooFew(String),
}

/// A value at one end of an order.
#[derive(Debug, PartialEq)]
struct Group {
    pair: String,
    text: String,
    /// Pairs that may be in its place: no interval is beyond theirs.
    others: Vec<String>,
}

/// Sentences about which pairs are faster, without those about values that are missing.
pub(super) fn sentences(index: &ResultsIndex<'_>) -> Vec<String> {
    let cases = cases(index);
    let mut compared = cases.iter().filter(|case| case.is_compared()).peekable();
    let has_order = compared.peek().is_none() || !compared.all(Case::is_too_few);
    let mut sentences = vec![];
    let shown: Vec<&Case> = match cases.len() {
        ..=SENTENCES_MAX => cases.iter().collect(),
        _ => {
            if has_order {
                sentences.extend(ranges(&cases));
                sentences.extend(counted(cases.iter().map(|case| &case.separation)));
            }
            furthest(&cases)
        }
    };
    sentences.extend(why_medians(&shown).map(str::to_owned));
    sentences.extend((!shown.is_empty() && shown.len() < cases.len()).then(|| SELECTED.to_owned()));
    sentences.extend(shown.iter().map(|case| case.sentence()));
    let is_share = |sentence: &String| sentence.contains(OF_RAW) || sentence.contains(OF_PROXY);
    let has_shares = sentences.iter().any(is_share);
    let has_alternatives = shown.iter().any(|case| case.separation.has_alternatives());
    let is_of_medians = !sentences.is_empty() && cases.iter().any(|case| case.metric == Metric::OpenP50);
    let is_below_pace = index.limited(Flag::BelowNominal) > 0;
    let explained = [
        (has_alternatives, ALTERNATIVES),
        (has_shares, SHARES),
        (is_of_medians, MEDIANS),
        (is_below_pace, BELOW_PACE),
    ];
    let explained = explained.into_iter().filter(|(is_due, _)| *is_due);
    sentences.extend(explained.map(|(_, text)| text.to_owned()));
    sentences
}

/// Why some of the sentences about these cases name medians only.
fn why_medians(shown: &[&Case]) -> Option<&'static str> {
    let mut compared = shown.iter().filter(|case| case.is_compared());
    match shown.iter().any(|case| case.is_too_few()) {
        true if compared.all(|case| case.is_too_few()) => Some(NO_ORDER),
        true => Some(SOME_WITHOUT_ORDER),
        false => None,
    }
}

/// For each transport the case whose values are furthest apart. One that says which is faster is preferred
/// to all others.
fn furthest(cases: &[Case]) -> Vec<&Case> {
    let compared = cases.iter().filter(|case| case.is_compared());
    let of_transports = grouped(compared.map(|case| (case.transport, case)));
    let furthest = of_transports.into_iter().filter_map(|(_, cases)| {
        let by_spread = |a: &&Case, b: &&Case| a.spread.total_cmp(&b.spread);
        let decided = cases.iter().copied().filter(|case| case.separation.is_decided());
        decided
            .max_by(by_spread)
            .or_else(|| cases.iter().copied().max_by(by_spread))
    });
    furthest.take(SENTENCES_MAX).collect()
}

impl Case {
    fn is_compared(&self) -> bool {
        !matches!(self.separation, Separation::Single(_))
    }

    fn is_too_few(&self) -> bool {
        matches!(self.separation, Separation::TooFew(_))
    }

    fn sentence(&self) -> String {
        sentence(
            &format!("{}{}", phrase(self.metric), self.suffix),
            &self.separation,
        )
    }
}

/// A metric and a pair of stacks that is alone in its cases, and its values, each with the suffix of its
/// case.
type Range<'a> = ((Metric, &'a str), Vec<(&'a str, &'a Value)>);

/// From which median to which each pair goes. Empty if a case has several pairs, or if there are too many
/// pairs.
fn ranges(cases: &[Case]) -> Vec<String> {
    let alone = cases.iter().map(|case| match &case.separation {
        Separation::Single(value) => {
            Some(((case.metric, value.pair.as_str()), (case.suffix.as_str(), value)))
        }
        _ => None,
    });
    let Some(alone) = alone.collect::<Option<Vec<_>>>() else {
        return vec![];
    };
    let ranges = grouped(alone);
    match ranges.len() {
        ..=SENTENCES_MAX => ranges.into_iter().filter_map(range).collect(),
        _ => vec![],
    }
}

fn range(((metric, pair), mut values): Range<'_>) -> Option<String> {
    values.sort_by(|(_, a), (_, b)| a.goodness.total_cmp(&b.goodness));
    let named = |(suffix, value): &(&str, &Value)| match value.share_or_raw.as_str() {
        "" => format!("{}{suffix}", value.text),
        share_or_raw => format!("{} ({share_or_raw}){suffix}", value.text),
    };
    let (worst, best) = (named(values.first()?), named(values.last()?));
    let what = phrase(metric);
    Some(table::sentence(&match values.len() {
        1 => format!("{what}: {pair} has {best}"),
        _ => format!("{what}: the medians of {pair} are from {worst} to {best}"),
    }))
}

/// Each load over each path with what its values show.
fn cases(index: &ResultsIndex<'_>) -> Vec<Case> {
    let all: Vec<&Cell> = index.plan().cells.iter().collect();
    let loads = distinct(all.iter().map(|cell| &cell.parameters));
    let loads: Vec<(&Parameters, Vec<Metric>)> = loads
        .into_iter()
        .map(|load| (load, speeds(index, load)))
        .collect();
    let mut cases = vec![];
    for metric in distinct(loads.iter().flat_map(|(_, speeds)| speeds.iter().copied())) {
        let of_metric = loads.iter().filter(|(_, speeds)| speeds.contains(&metric));
        let of_metric: Vec<&Parameters> = of_metric.map(|(load, _)| *load).collect();
        for path in paths(&all) {
            for load in &of_metric {
                let is_here = |cell: &&&Cell| Path::of(cell) == path && cell.parameters == **load;
                let here: Vec<&Cell> = all.iter().filter(is_here).copied().collect();
                // Others are compared with the raw reference, so it is mentioned only where it is alone.
                let is_alone = here.iter().all(|cell| cell.is_raw());
                let compared = here.into_iter().filter(|cell| is_alone || !cell.is_raw());
                // Round trips of a stack that does not keep up with its load are those of a smaller load.
                let compared = compared.filter(|cell| !index.is_limited(cell, Flag::BelowNominal));
                let values: Vec<Value> = compared.filter_map(|cell| value(index, cell, metric)).collect();
                let spread = spread(&values);
                // The metric of a transfer says its direction.
                let is_clear = of_metric.len() == 1 && (loads.len() == 1 || load.transfer().is_some());
                let load = if is_clear {
                    String::new()
                } else {
                    format!(" ({load})")
                };
                let suffix = format!(" over {path}{load}");
                cases.extend(separation(values).map(|separation| Case {
                    metric,
                    transport: path.transport,
                    suffix,
                    spread,
                    separation,
                }));
            }
        }
    }
    cases
}

/// What a load is for: of a transfer that is too small to have a goodput, its time.
fn speeds(index: &ResultsIndex<'_>, load: &Parameters) -> Vec<Metric> {
    let cells = index.plan().cells.iter();
    let cells: Vec<&Cell> = cells.filter(|cell| cell.parameters == *load).collect();
    let is_measured = |metric: &Metric| cells.iter().any(|cell| index.row(cell, *metric).is_some());
    let time = |metric| match metric {
        Metric::UploadGoodput => Metric::UploadSeconds,
        Metric::DownloadGoodput => Metric::DownloadSeconds,
        other => other,
    };
    let speeds = load.speeds().into_iter();
    speeds
        .map(|metric| {
            if is_measured(&metric) {
                metric
            } else {
                time(metric)
            }
        })
        .filter(is_measured)
        .collect()
}

fn value(index: &ResultsIndex<'_>, cell: &Cell, metric: Metric) -> Option<Value> {
    let row = index.row(cell, metric)?;
    let unread = &mut Notes::default();
    let value = index.value(unread, cell, metric)?;
    let share = index.share(unread, cell, metric);
    let raw = || {
        let raw = index.plan().cells.get(index.plan().raw_of(cell)?)?;
        index.value(&mut Notes::default(), raw, metric)
    };
    let (of_reference, reference) = match cell.parameters.is_relayed() {
        true => (OF_PROXY, "the raw proxy"),
        false => (OF_RAW, "raw"),
    };
    let share_or_raw = match (share, cell.is_raw()) {
        (Some(share), _) => format!("{}{of_reference}", share.text),
        (None, true) => String::new(),
        (None, false) => raw().map_or_else(String::new, |raw| format!("{reference} {}", raw.text)),
    };
    let sign = match metric.better() {
        Better::Lower => -1.0,
        _ => 1.0,
    };
    let ends = row.interval().filter(|_| !metric.is_whole());
    let ends = ends.map(|(low, high)| ((sign * low).min(sign * high), (sign * low).max(sign * high)));
    Some(Value {
        pair: cell.stack_pair().to_string(),
        text: value.text,
        share_or_raw,
        goodness: sign * row.median,
        interval: ends.filter(|(low, high)| low.is_finite() && high.is_finite()),
    })
}

/// See [`Case::spread`].
fn spread(values: &[Value]) -> f64 {
    let sizes = || values.iter().map(|value| value.goodness.abs().ln());
    sizes().fold(f64::MIN, f64::max) - sizes().fold(f64::MAX, f64::min)
}

/// What values say. `None` if there are none.
fn separation(mut values: Vec<Value>) -> Option<Separation> {
    values.sort_by(|a, b| b.goodness.total_cmp(&a.goodness));
    let (first, last) = (values.first()?, values.last()?);
    if values.len() == 1 {
        return Some(Separation::Single(first.clone()));
    }
    let named = |value: &Value| format!("{} ({})", value.pair, value.with_raw());
    let medians = format!("the medians are from {} to {}", named(last), named(first));
    let Some(intervals) = values
        .iter()
        .map(|value| value.interval)
        .collect::<Option<Vec<_>>>()
    else {
        return Some(Separation::TooFew(medians));
    };
    // The two that are furthest apart.
    let faster = (0..values.len()).max_by(|a, b| intervals[*a].0.total_cmp(&intervals[*b].0))?;
    let slower = (0..values.len()).min_by(|a, b| intervals[*a].1.total_cmp(&intervals[*b].1))?;
    if intervals[faster].0 <= intervals[slower].1 {
        return Some(Separation::Overlapping(medians));
    }
    let is_below = |a: &Value, b: &Value| matches!((a.interval, b.interval), (Some(a), Some(b)) if a.1 < b.0);
    let group = |end: &Value, is_beaten: &dyn Fn(&Value, &Value) -> bool| {
        let others = values
            .iter()
            .filter(|value| value.pair != end.pair && !values.iter().any(|other| is_beaten(value, other)));
        Group {
            pair: end.pair.clone(),
            text: end.with_raw(),
            others: others.map(|value| value.pair.clone()).collect(),
        }
    };
    let first = group(first, &is_below);
    let last = group(last, &|a, b| is_below(b, a));
    let may_be_last = |pair: &String| *pair == last.pair || last.others.contains(pair);
    let is_either = may_be_last(&first.pair) || first.others.iter().any(may_be_last);
    Some(match is_either {
        true => Separation::Partly {
            faster: named(&values[faster]),
            slower: named(&values[slower]),
        },
        false => Separation::Apart { first, last },
    })
}

impl Separation {
    fn is_decided(&self) -> bool {
        matches!(self, Self::Apart { .. } | Self::Partly { .. })
    }

    fn has_alternatives(&self) -> bool {
        matches!(self, Self::Apart { first, last } if !first.others.is_empty() || !last.others.is_empty())
    }
}

fn sentence(case: &str, separation: &Separation) -> String {
    let what = match separation {
        Separation::Single(value) => format!("{} has {}", value.pair, value.with_raw()),
        Separation::Apart { first, last } => {
            format!(
                "{} is fastest, {} slowest",
                first.with_others(),
                last.with_others()
            )
        }
        Separation::Partly { faster, slower } => {
            format!(
                "{faster} is faster than {slower}, and their intervals are furthest apart; no single one is fastest or slowest"
            )
        }
        Separation::Overlapping(medians) => {
            format!("no difference shows: all intervals overlap; {medians}")
        }
        Separation::TooFew(medians) => medians.clone(),
    };
    table::sentence(&format!("{case}: {what}"))
}

impl Group {
    fn with_others(&self) -> String {
        let first = format!("{} ({})", self.pair, self.text);
        let names = [first].into_iter().chain(self.others.iter().cloned());
        Vec::from_iter(names).join(" or ")
    }
}

/// How often each pair is the fastest. `None` if there is nothing to be faster than.
fn counted<'a>(cases: impl IntoIterator<Item = &'a Separation>) -> Option<String> {
    let (mut fastest, mut open, mut all): (Vec<(&str, usize)>, usize, usize) = (vec![], 0, 0);
    for case in cases {
        all += usize::from(!matches!(case, Separation::Single(_)));
        match case {
            Separation::Apart { first, .. } if first.others.is_empty() => {
                match fastest.iter_mut().find(|(pair, _)| *pair == first.pair) {
                    Some((_, count)) => *count += 1,
                    None => fastest.push((first.pair.as_str(), 1)),
                }
            }
            Separation::Single(_) => {}
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
            "not decided in {open} of {all}, where intervals overlap or are missing"
        ));
    }
    match (all, fastest.len()) {
        (0, _) => None,
        (_, 0) => Some(format!(
            "No pair is the fastest in any of {all} cases: intervals overlap or are missing."
        )),
        _ => Some(format!("Fastest: {}.", parts.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(a: &Value, b: &Value) -> bool {
        match (a.interval, b.interval) {
            (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
            _ => true,
        }
    }

    /// Values of pairs by their intervals, the median in the middle.
    fn values(intervals: &[(&str, f64, f64)]) -> Vec<Value> {
        let value = |(pair, low, high): &(&str, f64, f64)| Value {
            pair: (*pair).to_owned(),
            text: format!("{} Gbit/s", (low + high) / 2.0),
            share_or_raw: String::new(),
            goodness: (low + high) / 2.0,
            interval: Some((*low, *high)),
        };
        intervals.iter().map(value).collect()
    }

    fn sentences_of(values: Vec<Value>) -> String {
        sentence("upload over tcp", &separation(values).unwrap())
    }

    #[test]
    fn the_fastest_and_the_slowest_are_named_with_their_values() {
        assert_eq!(
            sentences_of(values(&[("b", 5.0, 6.0), ("a", 8.0, 9.0), ("c", 1.0, 2.0)])),
            "Upload over tcp: a (8.5 Gbit/s) is fastest, c (1.5 Gbit/s) slowest."
        );
    }

    #[test]
    fn pairs_whose_intervals_overlap_have_no_order() {
        assert_eq!(
            sentences_of(values(&[
                ("a", 8.0, 9.0),
                ("b", 7.5, 8.0),
                ("c", 1.0, 3.0),
                ("d", 1.0, 2.0)
            ])),
            "Upload over tcp: a (8.5 Gbit/s) or b is fastest, d (1.5 Gbit/s) or c slowest."
        );
        assert_eq!(
            sentences_of(values(&[("a", 5.0, 7.0), ("b", 4.0, 6.0)])),
            "Upload over tcp: no difference shows: all intervals overlap; the medians are from b (5 Gbit/s) to a (6 Gbit/s)."
        );
        // The best median has an interval that reaches the worst.
        assert_eq!(
            sentences_of(values(&[
                ("wide", 1.0, 9.0),
                ("high", 4.0, 4.5),
                ("low", 1.0, 2.0)
            ])),
            "Upload over tcp: high (4.25 Gbit/s) is faster than low (1.5 Gbit/s), and their intervals are furthest apart; no single one is fastest \
             or slowest."
        );
    }

    #[test]
    fn a_value_without_an_interval_gives_no_order() {
        let mut all = values(&[("a", 8.0, 9.0), ("b", 1.0, 2.0)]);
        all[1].interval = None;
        assert_eq!(
            sentences_of(all),
            "Upload over tcp: the medians are from b (1.5 Gbit/s) to a (8.5 Gbit/s)."
        );
        assert_eq!(separation(vec![]), None);
        assert_eq!(
            sentences_of(values(&[("a", 8.0, 9.0)])),
            "Upload over tcp: a has 8.5 Gbit/s."
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
                    let Some(Separation::Apart { first, last }) = separation(all.clone()) else {
                        continue;
                    };
                    let of = |pair: &str| all.iter().find(|value| value.pair == pair).unwrap();
                    assert!(!overlap(of(&first.pair), of(&last.pair)));
                    for (end, is_first) in [(first, true), (last, false)] {
                        for value in all.iter().filter(|value| value.pair != end.pair) {
                            let is_beyond = |other: &Value| match is_first {
                                true => other.goodness > value.goodness && !overlap(other, value),
                                false => other.goodness < value.goodness && !overlap(other, value),
                            };
                            let is_named = end.others.contains(&value.pair);
                            assert_eq!(is_named, !all.iter().any(is_beyond), "{end:?} {all:?}");
                            assert!(!is_named || overlap(value, of(&end.pair)), "{end:?} {all:?}");
                        }
                    }
                }
            }
        }
    }

    fn of(transport: Transport, suffix: &str, intervals: &[(&str, f64, f64)]) -> Case {
        Case {
            metric: Metric::UploadGoodput,
            transport,
            suffix: suffix.to_owned(),
            spread: spread(&values(intervals)),
            separation: separation(values(intervals)).unwrap(),
        }
    }

    #[test]
    fn only_medians_are_announced_where_a_value_has_too_few_trials() {
        let apart = || of(Transport::Tcp, "", &[("a", 8.0, 9.0), ("b", 5.0, 6.0)]);
        let too_few = || Case {
            separation: Separation::TooFew(String::new()),
            ..apart()
        };
        assert_eq!(why_medians(&[&apart()]), None);
        assert_eq!(why_medians(&[&too_few(), &too_few()]), Some(NO_ORDER));
        assert_eq!(why_medians(&[&apart(), &too_few()]), Some(SOME_WITHOUT_ORDER));
    }

    #[test]
    fn of_many_cases_each_transport_has_the_one_whose_values_are_furthest_apart() {
        let cases = [
            of(
                Transport::Tcp,
                " over tcp (1Ki)",
                &[("a", 8.0, 9.0), ("b", 5.0, 6.0)],
            ),
            of(
                Transport::Tcp,
                " over tcp (4Ki)",
                &[("a", 8.0, 9.0), ("b", 1.0, 2.0)],
            ),
            // Further apart, but with overlapping intervals.
            of(
                Transport::Tcp,
                " over tcp (8Ki)",
                &[("a", 0.1, 9.0), ("b", 0.1, 0.2)],
            ),
            of(
                Transport::QuicV1,
                " over quic-v1",
                &[("a", 1.0, 3.0), ("b", 2.0, 4.0)],
            ),
            of(Transport::Ws, " over ws", &[("a", 1.0, 3.0)]),
        ];
        let sentences: Vec<String> = furthest(&cases).into_iter().map(Case::sentence).collect();
        assert_eq!(
            sentences,
            [
                "Upload over tcp (4Ki): a (8.5 Gbit/s) is fastest, b (1.5 Gbit/s) slowest.",
                "Upload over quic-v1: no difference shows: all intervals overlap; the medians are from a (2 Gbit/s) to \
                 b (3 Gbit/s).",
            ]
        );
    }

    #[test]
    fn a_pair_that_is_alone_in_many_cases_has_a_range() {
        let case = |suffix: &str, low: f64, high: f64| {
            of(Transport::Tcp, &format!(" over {suffix}"), &[("a", low, high)])
        };
        let cases = [
            case("ws", 2.0, 3.0),
            case("tcp", 8.0, 9.0),
            case("quic-v1", 1.0, 2.0),
        ];
        assert_eq!(
            ranges(&cases),
            ["Upload: the medians of a are from 1.5 Gbit/s over quic-v1 to 8.5 Gbit/s over tcp."]
        );
        assert_eq!(ranges(&cases[..1]), ["Upload: a has 2.5 Gbit/s over ws."]);
        let pairs = |count: usize| -> Vec<Case> {
            let alone = |pair: usize| Case {
                separation: separation(values(&[(&pair.to_string(), 1.0, 2.0)])).unwrap(),
                ..case("tcp", 1.0, 2.0)
            };
            (0..count).map(alone).collect()
        };
        assert_eq!(ranges(&pairs(SENTENCES_MAX)).len(), SENTENCES_MAX);
        assert_eq!(ranges(&pairs(SENTENCES_MAX + 1)).len(), 0);
        let compared = Case {
            separation: separation(values(&[("a", 1.0, 2.0), ("b", 3.0, 4.0)])).unwrap(),
            ..case("memory", 1.0, 2.0)
        };
        assert_eq!(ranges(&[case("ws", 2.0, 3.0), compared]).len(), 0);
    }

    #[test]
    fn raw_is_in_parentheses_where_a_path_follows_the_value() {
        let mut all = values(&[("a", 2.0, 3.0), ("a", 8.0, 9.0)]);
        all[0].share_or_raw = "25 % of raw".to_owned();
        all[1].share_or_raw = "50 % of raw".to_owned();
        let named = [" over ws", " over tcp"].into_iter().zip(&all).collect();
        assert_eq!(
            range(((Metric::UploadGoodput, "a"), named)).unwrap(),
            "Upload: the medians of a are from 2.5 Gbit/s (25 % of raw) over ws to 8.5 Gbit/s (50 % of raw) over tcp."
        );
        assert_eq!(
            sentences_of(all[..1].to_vec()),
            "Upload over tcp: a has 2.5 Gbit/s, 25 % of raw."
        );
    }

    #[test]
    fn many_cases_are_counted() {
        let apart = |first: &str| separation(values(&[(first, 8.0, 9.0), ("z", 1.0, 2.0)])).unwrap();
        let open = separation(values(&[("a", 1.0, 3.0), ("b", 2.0, 4.0)])).unwrap();
        assert_eq!(
            counted(&[apart("a"), apart("b"), open, apart("b")]).unwrap(),
            "Fastest: b in 2 of 4 cases; a in 1 of 4 cases; not decided in 1 of 4, where intervals overlap or are missing."
        );
        assert_eq!(counted(&[separation(values(&[("a", 1.0, 3.0)])).unwrap()]), None);
        let open = || separation(values(&[("a", 1.0, 3.0), ("b", 2.0, 4.0)])).unwrap();
        assert_eq!(
            counted(&[open(), open()]).unwrap(),
            "No pair is the fastest in any of 2 cases: intervals overlap or are missing."
        );
    }
}
