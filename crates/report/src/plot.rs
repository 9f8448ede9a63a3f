//! Pictures as SVG, without a font or an image library.

mod axis;
mod bars;
mod canvas;
mod content;
mod forest;
mod lines;
mod select;
mod theme;

use perfrun_contract::{
    account::Account,
    compare::Word,
    node::{Role, Sample},
    parameters::{Amount, Parameters},
    plan::Cell,
    record::{Better, Metric},
    units::Unit,
};

use self::{
    bars::Bars,
    content::{bars, line_panel, time_panel},
    forest::{Forest, Row},
    lines::{Lines, Over},
    select::{bandwidth_panels, cells, groups, of_path},
    theme::Look,
};
use crate::{
    path::Path,
    tables::{Source, change, load, pair, paths, push_new},
    units,
};

/// Every plot that the results give, with a file name.
pub fn plots(results: &Account<'_>) -> Vec<(&'static str, String)> {
    let all = [
        ("differences.svg", differences(results)),
        ("size-sweep.svg", size_sweep(results)),
        ("comparison.svg", comparison_bars(results)),
        ("substreams.svg", substreams(results)),
        ("handshakes.svg", handshakes(results)),
        ("handshake-rate.svg", handshake_rate(results)),
        ("ping.svg", ping(results)),
        ("messages.svg", messages(results)),
        ("relay.svg", relay(results)),
        (
            "relay-stress-goodput.svg",
            stress(results, Metric::DownloadGoodput, "Goodput", Unit::BitsPerSecond),
        ),
        (
            "relay-stress-cpu.svg",
            stress(results, Metric::RelayCpu, "CPUs of the relay", Unit::Count),
        ),
        (
            "echo-payload.svg",
            echo(results, ("Payload read", Unit::BitsPerSecond), |sample| {
                per_second(sample, sample.bytes_received as f64 * 8.0)
            }),
        ),
        (
            "echo-cpu.svg",
            echo(results, ("CPUs kept busy", Unit::Count), |sample| {
                per_second(sample, sample.cpu_seconds)
            }),
        ),
        (
            "echo-memory.svg",
            echo(results, ("Memory allocated", Unit::Bytes), |sample| {
                sample.allocated_bytes.map(|bytes| bytes as f64)
            }),
        ),
    ];
    all.into_iter()
        .filter_map(|(name, svg)| Some((name, svg?)))
        .collect()
}

/// Every comparison with its interval, those of one metric together. None without a comparison.
fn differences(results: &Account<'_>) -> Option<String> {
    let judged = results.judged?;
    let mut groups: Vec<(Metric, Vec<Row>)> = vec![];
    for comparison in &judged.comparisons {
        let Some(ratio) = comparison.ratio else {
            continue;
        };
        let row = Row {
            name: format!(
                "{}, {}",
                load(results.plan, &comparison.baseline),
                pair(results.plan, &comparison.candidate)
            ),
            look: match comparison.word {
                Word::Faster => Look::series(2),
                Word::Slower => Look::series(1),
                _ => Look::RAW,
            },
            ratio: ratio.value,
            interval: (ratio.low, ratio.high),
            label: format!(
                "{} %, {}",
                change(ratio.value),
                comparison.word.to_string().to_lowercase()
            ),
        };
        match groups.iter_mut().find(|(metric, _)| *metric == comparison.metric) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((comparison.metric, vec![row])),
        }
    }
    let better = |metric: Metric| match metric.better() {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
        Better::Neither => "neither is better",
    };
    let named = groups.into_iter();
    let groups: Vec<_> = named
        .map(|(metric, rows)| (format!("{metric} ({})", better(metric)), rows))
        .collect();
    let tolerances = judged.comparisons.iter().map(|comparison| comparison.tolerance);
    let tolerance = tolerances.fold(1.0, f64::min);
    let forest = Forest {
        title: format!("{}: differences", results.name),
        description:
            "The difference between candidate and baseline of each comparison, as a share, with its \
                      interval. Differences in the grey band count as equal."
                .to_owned(),
        groups,
        equal: (1.0 - tolerance, 1.0 / (1.0 - tolerance)),
    };
    (!forest.groups.is_empty()).then(|| forest.svg())
}

/// Goodput over size: a panel for each transport and direction, a line for each pair. None below two sizes.
fn size_sweep(results: &Account<'_>) -> Option<String> {
    let source = Source::new(results);
    let mut panels = vec![];
    for (_, metric, title, cells) in bandwidth_panels(&source) {
        let x_of = |cell: &Cell| match cell.parameters {
            Parameters::Bandwidth {
                amount: Amount::Count(bytes),
                ..
            } => Some((bytes as f64, units::size(bytes))),
            _ => None,
        };
        panels.extend(line_panel(&source, &cells, x_of, (metric, "Goodput"), title));
    }
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: goodput by size", results.name),
            description:
                "Median goodput over the size of a transfer for each pair of stacks, with 95 % confidence \
                          intervals as bands. Both axes are logarithmic."
                    .to_owned(),
            x_title: "Size of the transfer",
            unit: Unit::BitsPerSecond,
            over: Over::Values,
            panels,
        };
        lines.svg()
    })
}

/// Goodput of all pairs, the baseline first: a panel for each transport and direction. Of a sweep, the
/// largest size.
fn comparison_bars(results: &Account<'_>) -> Option<String> {
    let source = Source::new(results);
    let mut rows: Vec<(Path<'_>, Vec<bars::Panel>)> = vec![];
    for (path, metric, title, cells) in bandwidth_panels(&source) {
        let amount = |cell: &Cell| match cell.parameters {
            Parameters::Bandwidth {
                amount: Amount::Count(bytes),
                ..
            } => bytes,
            _ => 0,
        };
        let largest = cells
            .iter()
            .filter(|cell| source.row(cell, metric).is_some())
            .map(|cell| amount(cell))
            .max();
        let cells: Vec<&Cell> = cells
            .into_iter()
            .filter(|cell| Some(amount(cell)) == largest)
            .collect();
        let size = largest
            .filter(|bytes| *bytes > 0)
            .map(|bytes| format!(", {}", units::size(bytes)));
        let panel = bars::Panel {
            title: format!("{title}{}", size.unwrap_or_default()),
            x_title: "Goodput",
            bars: bars(&source, &cells, metric, None),
        };
        push_panel(&mut rows, path, panel);
    }
    bar_plot(
        rows,
        "goodput",
        Unit::BitsPerSecond,
        "Bars: median; whiskers: its 95 % confidence interval.",
        results,
    )
}

/// Time to open substreams over their number: a panel for the mean and one for the maximum, of each
/// transport.
fn substreams(results: &Account<'_>) -> Option<String> {
    let source = Source::new(results);
    let cells = cells(&source, |parameters| {
        matches!(parameters, Parameters::Substreams { .. })
    });
    let x_of = |cell: &Cell| match cell.parameters {
        Parameters::Substreams { count, .. } => Some((f64::from(count), count.to_string())),
        _ => None,
    };
    let mut panels = vec![];
    for path in paths(&cells) {
        for (metric, name) in [(Metric::OpenMean, "mean"), (Metric::OpenMax, "all open")] {
            let title = format!("{path}, {name}");
            panels.extend(line_panel(
                &source,
                &of_path(&cells, path),
                x_of,
                (metric, "Time"),
                title,
            ));
        }
    }
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: time to open substreams", results.name),
            description: "Median over trials of the mean time to open a substream, and of the time until all were \
                          open, over the number of substreams, with 95 % confidence intervals as bands. Both axes are \
                          logarithmic."
                .to_owned(),
            x_title: "Substreams",
            unit: Unit::Seconds,
            over: Over::Values,
            panels,
        };
        lines.svg()
    })
}

/// Messages per second over their size: a panel for each transport and mode, a line for each pair. None below
/// two sizes.
fn messages(results: &Account<'_>) -> Option<String> {
    let source = Source::new(results);
    let cells = cells(&source, |parameters| {
        matches!(parameters, Parameters::Messages(_))
    });
    let load = |cell: &Cell| match cell.parameters {
        Parameters::Messages(load) => Some(load),
        _ => None,
    };
    let x_of = |cell: &Cell| {
        let bytes = load(cell)?.message_bytes.0;
        Some((bytes as f64, units::size(bytes)))
    };
    let mut modes = vec![];
    let loads = cells.iter().filter_map(|cell| load(cell));
    loads.for_each(|load| push_new(&mut modes, load.mode));
    let mut panels = vec![];
    for path in paths(&cells) {
        for &mode in &modes {
            let is_wanted = |cell: &&Cell| load(cell).is_some_and(|load| load.mode == mode);
            let of_mode: Vec<&Cell> = cells.iter().copied().filter(is_wanted).collect();
            panels.extend(line_panel(
                &source,
                &of_path(&of_mode, path),
                x_of,
                (Metric::MessagesPerSecond, "Messages"),
                format!("{path}, {mode}"),
            ));
        }
    }
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: messages by size", results.name),
            description:
                "Median of messages per second over the size of a message for each pair of stacks, with 95 % \
                          confidence intervals as bands. Both axes are logarithmic."
                    .to_owned(),
            x_title: "Size of a message",
            unit: Unit::PerSecond,
            over: Over::Values,
            panels,
        };
        lines.svg()
    })
}

/// Goodput without a relay and through one: a panel for each transport, size and path.
fn relay(results: &Account<'_>) -> Option<String> {
    let source = Source::new(results);
    let mut rows: Vec<(Path<'_>, Vec<bars::Panel>)> = vec![];
    for (path, title, cells) in groups(&source, |p| matches!(p, Parameters::Relay { .. })) {
        let panel = bars::Panel {
            title,
            x_title: "Goodput",
            bars: bars(&source, &cells, Metric::DownloadGoodput, None),
        };
        push_panel(&mut rows, path, panel);
    }
    bar_plot(
        rows,
        "goodput without a relay and through one",
        Unit::BitsPerSecond,
        "Bars: median; whiskers: its 95 % confidence interval. The raw bar of a relayed transfer is a plain TCP proxy.",
        results,
    )
}

/// A metric over the number of sinks: a panel for each transport, a line for each pair. None below two
/// levels.
fn stress(results: &Account<'_>, metric: Metric, y_title: &'static str, unit: Unit) -> Option<String> {
    let source = Source::new(results);
    let cells = cells(&source, |parameters| {
        matches!(parameters, Parameters::RelayStress { .. })
    });
    let x_of = |cell: &Cell| match cell.parameters {
        Parameters::RelayStress { sinks, .. } => Some((f64::from(sinks), sinks.to_string())),
        _ => None,
    };
    let panel = |path: Path<'_>| {
        let of_path = of_path(&cells, path);
        line_panel(&source, &of_path, x_of, (metric, y_title), path.to_string())
    };
    let panels: Vec<_> = paths(&cells).into_iter().filter_map(panel).collect();
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: {} by sinks of one relay", results.name, y_title.to_lowercase()),
            description: format!(
                "Median over trials of {y_title} while all sinks fetch through one relay, over their number, with 95 % \
                 confidence intervals as bands. Both axes are logarithmic."
            ),
            x_title: "Sinks",
            unit,
            over: Over::Values,
            panels,
        };
        lines.svg()
    })
}

fn per_second(sample: &Sample, amount: f64) -> Option<f64> {
    (sample.interval_seconds > 0.0).then(|| amount / sample.interval_seconds)
}

/// An echo over time, ramp and all: a panel for clients and one for servers, of each transport and load.
fn echo(
    results: &Account<'_>,
    (y_title, unit): (&'static str, Unit),
    value: fn(&Sample) -> Option<f64>,
) -> Option<String> {
    let source = Source::new(results);
    let mut panels = vec![];
    for (path, _, cells) in groups(&source, |p| matches!(p, Parameters::Echo(_))) {
        let Some(load) = cells.first().map(|cell| &cell.parameters) else {
            continue;
        };
        for (role, side) in [(Role::Client, "client"), (Role::Server, "server")] {
            if !cells.iter().any(|cell| cell.has_process(role)) {
                continue;
            }
            let title = format!("{path}, {load}, {side}");
            panels.extend(time_panel(&source, &cells, role, (y_title, value), title));
        }
    }
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: {} over time", results.name, y_title.to_lowercase()),
            description: format!(
                "{y_title} of each node, in each sample of the first measured trial of each pair of stacks, while streams are opened and \
                 afterwards. Both axes are linear."
            ),
            x_title: "Time since the start",
            unit,
            over: Over::Time,
            panels,
        };
        lines.svg()
    })
}

/// Time to set up a connection: bars for the median, whiskers up to the 99th percentile.
fn handshakes(results: &Account<'_>) -> Option<String> {
    let phases = [
        (
            "established",
            Metric::HandshakeEstablishedP50,
            Metric::HandshakeEstablishedP99,
        ),
        (
            "first byte",
            Metric::HandshakeFirstByteP50,
            Metric::HandshakeFirstByteP99,
        ),
    ];
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Handshakes { .. });
    percentile_bars(
        results,
        is_wanted,
        "Time since the dial",
        &phases,
        "time to set up a connection",
    )
}

/// Connections per second.
fn handshake_rate(results: &Account<'_>) -> Option<String> {
    let source = Source::new(results);
    let mut rows = vec![];
    for (path, title, cells) in groups(&source, |p| matches!(p, Parameters::Handshakes { .. })) {
        let bars = bars(&source, &cells, Metric::HandshakesPerSecond, None);
        push_panel(
            &mut rows,
            path,
            bars::Panel {
                title,
                x_title: "Connections per second",
                bars,
            },
        );
    }
    let caption = "Bars: median; whiskers: its 95 % confidence interval.";
    bar_plot(rows, "connections per second", Unit::PerSecond, caption, results)
}

/// Round trips: bars for the median, whiskers up to the 99th percentile.
fn ping(results: &Account<'_>) -> Option<String> {
    let phases = [("", Metric::RoundTripP50, Metric::RoundTripP99)];
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Ping { .. });
    percentile_bars(results, is_wanted, "Round trip", &phases, "round trips")
}

fn percentile_bars(
    results: &Account<'_>,
    is_wanted: impl Fn(&Parameters) -> bool,
    x_title: &'static str,
    phases: &[(&str, Metric, Metric)],
    subject: &str,
) -> Option<String> {
    let source = Source::new(results);
    let mut rows: Vec<Vec<bars::Panel>> = vec![];
    for (_, title, cells) in groups(&source, is_wanted) {
        let panel = |(phase, p50, p99): &(&str, Metric, Metric)| {
            let title = if phase.is_empty() {
                title.clone()
            } else {
                format!("{title}, {phase}")
            };
            bars::Panel {
                title,
                x_title,
                bars: bars(&source, &cells, *p50, Some(*p99)),
            }
        };
        rows.push(
            phases
                .iter()
                .map(panel)
                .filter(|panel| !panel.bars.is_empty())
                .collect(),
        );
    }
    // Single panels stand two and two.
    if phases.len() == 1 {
        rows = vec![rows.into_iter().flatten().collect()];
    }
    let rows = rows.into_iter().enumerate().collect();
    bar_plot(
        rows,
        subject,
        Unit::Seconds,
        "Bars: p50; whiskers: up to p99; beside them both. Each is the median over trials.",
        results,
    )
}

fn bar_plot<K>(
    rows: Vec<(K, Vec<bars::Panel>)>,
    subject: &str,
    unit: Unit,
    caption: &str,
    results: &Account<'_>,
) -> Option<String> {
    let rows: Vec<Vec<bars::Panel>> = rows
        .into_iter()
        .map(|(_, panels)| panels)
        .filter(|p| !p.is_empty())
        .collect();
    let has_whiskers = rows
        .iter()
        .flatten()
        .flat_map(|panel| &panel.bars)
        .any(|bar| bar.whisker.is_some());
    let caption = if has_whiskers {
        caption
    } else {
        "Bars: median; too few trials for an interval."
    };
    let bars = Bars {
        title: format!("{}: {subject}", results.name),
        description: format!(
            "{caption} A panel for each transport, network and setting, a bar for each pair of stacks."
        ),
        caption: caption.to_owned(),
        unit,
        rows,
    };
    (!bars.rows.is_empty()).then(|| bars.svg())
}

fn push_panel<'a>(rows: &mut Vec<(Path<'a>, Vec<bars::Panel>)>, path: Path<'a>, panel: bars::Panel) {
    if panel.bars.is_empty() {
        return;
    }
    match rows.iter_mut().find(|(known, _)| *known == path) {
        Some((_, panels)) => panels.push(panel),
        None => rows.push((path, vec![panel])),
    }
}
