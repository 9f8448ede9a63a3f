//! Pictures as SVG, without a font or an image library.

mod axis;
mod bars;
mod canvas;
mod content;
mod course;
mod forest;
mod heat;
mod hover;
mod latencies;
mod lines;
mod networks;
mod select;
mod theme;

use perfrun_contract::{
    account::Account,
    compare::Outcome,
    metric::{Better, Metric},
    parameters::{Amount, Parameters},
    plan::Cell,
    role::Role,
    units::Unit,
};

pub(crate) use self::canvas::Plot;
use self::{
    bars::Bars,
    content::{bars, line_panel, lowered},
    course::Quantity,
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

/// Every plot that the results give, as SVG with a file name.
pub fn plots(results: &Account<'_>) -> Vec<(&'static str, String)> {
    let drawn = drawn(results).into_iter();
    drawn.map(|(name, plot)| (name, plot.svg)).collect()
}

/// Every plot that the results give, with a file name.
pub(crate) fn drawn(results: &Account<'_>) -> Vec<(&'static str, Plot)> {
    let source = Source::new(results);
    let all = [
        ("differences.svg", differences(&source)),
        ("size-sweep.svg", size_sweep(&source)),
        ("comparison.svg", comparison_bars(&source)),
        ("substreams.svg", substreams(&source)),
        ("handshakes.svg", handshakes(&source)),
        ("handshake-rate.svg", handshake_rate(&source)),
        ("ping.svg", ping(&source)),
        ("messages.svg", messages(&source)),
        ("relay.svg", relay(&source)),
        (
            "relay-stress-goodput.svg",
            stress(&source, Metric::DownloadGoodput, "Goodput", Unit::BitsPerSecond),
        ),
        (
            "relay-stress-cpu.svg",
            stress(&source, Metric::RelayCpu, "CPUs of the relay", Unit::Count),
        ),
        (
            "relay-stress-circuits-over-time.svg",
            stress_course(&source, Role::Relay, course::CIRCUITS),
        ),
        (
            "relay-stress-payload-over-time.svg",
            stress_course(&source, Role::Client, course::RECEIVED),
        ),
        (
            "relay-stress-cpu-over-time.svg",
            stress_course(&source, Role::Relay, course::CPU),
        ),
        ("echo-payload.svg", echo(&source, course::RECEIVED)),
        ("echo-cpu.svg", echo(&source, course::CPU)),
        ("echo-memory.svg", echo(&source, course::MEMORY)),
        (
            "echo-transports-cpu.svg",
            course::transports(&source, course::CPU),
        ),
        (
            "echo-transports-memory.svg",
            course::transports(&source, course::MEMORY),
        ),
        ("delay-loss.svg", networks::delay_and_loss(&source)),
        ("latencies.svg", latencies::latencies(&source)),
        ("payload.svg", course::payload(&source)),
        ("trials.svg", course::trials(&source)),
    ];
    all.into_iter()
        .filter_map(|(name, plot)| Some((name, plot?)))
        .collect()
}

/// Every comparison with its interval, those of one metric together. None without a comparison.
fn differences(source: &Source<'_>) -> Option<Plot> {
    let judged = source.results.judged?;
    let mut groups: Vec<(Metric, Vec<Row>)> = vec![];
    for comparison in &judged.comparisons {
        let Some(ratio) = comparison.ratio else {
            continue;
        };
        let name = format!(
            "{}, {}",
            load(source.cell_called(&comparison.baseline), &comparison.baseline),
            pair(source.cell_called(&comparison.candidate), &comparison.candidate)
        );
        let interval = ratio.low.zip(ratio.high).map_or_else(String::new, |(low, high)| {
            format!(" [{}, {}]", change(low), change(high))
        });
        let row = Row {
            hint: format!(
                "{name}, {}: {} %{interval}",
                comparison.metric,
                change(ratio.value)
            ),
            name,
            look: match comparison.finding {
                Outcome::Better => Look::series(2),
                Outcome::Worse => Look::series(1),
                _ => Look::RAW,
            },
            ratio: ratio.value,
            interval: (ratio.low, ratio.high),
            label: format!(
                "{} %, {}",
                change(ratio.value),
                comparison.finding.to_string().to_lowercase()
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
        title: format!("{}: differences", source.results.name),
        description:
            "The difference between candidate and baseline of each comparison, as a share, with its \
                      interval. Differences in the grey band count as equal."
                .to_owned(),
        groups,
        equal: (1.0 - tolerance, 1.0 / (1.0 - tolerance)),
    };
    (!forest.groups.is_empty()).then(|| forest.plot())
}

/// Goodput over size: a panel for each transport and direction, a line for each pair. None below two sizes.
fn size_sweep(source: &Source<'_>) -> Option<Plot> {
    let mut panels = vec![];
    for (_, metric, title, cells) in bandwidth_panels(source) {
        let x_of = |cell: &Cell| match cell.parameters.transfer() {
            Some((_, Amount::Count(bytes), _)) => Some((bytes as f64, units::size(bytes))),
            _ => None,
        };
        panels.extend(line_panel(source, &cells, x_of, (metric, "Goodput"), title));
    }
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: goodput by size", source.results.name),
            description:
                "Median goodput over the size of a transfer for each pair of stacks, with 95 % confidence \
                          intervals as bands. Both axes are logarithmic."
                    .to_owned(),
            x_title: "Size of the transfer",
            unit: Unit::BitsPerSecond,
            over: Over::Values,
            panels,
        };
        lines.plot()
    })
}

/// Goodput of all pairs, the baseline first: a panel for each transport and direction. Of a sweep, the
/// largest size.
fn comparison_bars(source: &Source<'_>) -> Option<Plot> {
    let mut rows: Vec<(Path<'_>, Vec<bars::Panel>)> = vec![];
    for (path, metric, title, cells) in bandwidth_panels(source) {
        let amount = |cell: &Cell| match cell.parameters.transfer() {
            Some((_, Amount::Count(bytes), _)) => bytes,
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
            bars: bars(source, &cells, metric, None),
        };
        push_panel(&mut rows, path, panel);
    }
    bar_plot(
        rows,
        "goodput",
        Unit::BitsPerSecond,
        "Bars: median; whiskers: its 95 % confidence interval.",
        source,
    )
}

/// Time to open substreams over their number: a panel for the mean and one for the maximum, of each
/// transport.
fn substreams(source: &Source<'_>) -> Option<Plot> {
    let cells = cells(source, |parameters| {
        matches!(parameters, Parameters::Substreams(_))
    });
    let x_of = |cell: &Cell| match cell.parameters {
        Parameters::Substreams(load) => Some((f64::from(load.count), load.count.to_string())),
        _ => None,
    };
    let mut panels = vec![];
    for path in paths(&cells) {
        for (metric, name) in [(Metric::OpenMean, "mean"), (Metric::OpenMax, "all open")] {
            let title = format!("{path}, {name}");
            panels.extend(line_panel(
                source,
                &of_path(&cells, path),
                x_of,
                (metric, "Time"),
                title,
            ));
        }
    }
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: time to open substreams", source.results.name),
            description: "Median over trials of the mean time to open a substream, and of the time until all were \
                          open, over the number of substreams, with 95 % confidence intervals as bands. Both axes are \
                          logarithmic."
                .to_owned(),
            x_title: "Substreams",
            unit: Unit::Seconds,
            over: Over::Values,
            panels,
        };
        lines.plot()
    })
}

/// Messages per second over their size: a panel for each transport and mode, a line for each pair. None below
/// two sizes.
fn messages(source: &Source<'_>) -> Option<Plot> {
    let cells = cells(source, |parameters| parameters.messages().is_some());
    let x_of = |cell: &Cell| {
        let bytes = cell.parameters.messages()?.message_bytes.0;
        Some((bytes as f64, units::size(bytes)))
    };
    let mut modes = vec![];
    let loads = cells.iter().filter_map(|cell| cell.parameters.messages());
    loads.for_each(|load| push_new(&mut modes, load.mode));
    let mut panels = vec![];
    for path in paths(&cells) {
        for &mode in &modes {
            let is_wanted = |cell: &&Cell| {
                let load = cell.parameters.messages();
                load.is_some_and(|load| load.mode == mode)
            };
            let of_mode: Vec<&Cell> = cells.iter().copied().filter(is_wanted).collect();
            panels.extend(line_panel(
                source,
                &of_path(&of_mode, path),
                x_of,
                (Metric::MessagesPerSecond, "Messages"),
                format!("{path}, {mode}"),
            ));
        }
    }
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: messages by size", source.results.name),
            description:
                "Median of messages per second over the size of a message for each pair of stacks, with 95 % \
                          confidence intervals as bands. Both axes are logarithmic."
                    .to_owned(),
            x_title: "Size of a message",
            unit: Unit::PerSecond,
            over: Over::Values,
            panels,
        };
        lines.plot()
    })
}

/// Goodput without a relay and through one: a panel for each transport, size and path.
fn relay(source: &Source<'_>) -> Option<Plot> {
    let mut rows: Vec<(Path<'_>, Vec<bars::Panel>)> = vec![];
    for (path, title, cells) in groups(source, |p| matches!(p, Parameters::Relay(_))) {
        let panel = bars::Panel {
            title,
            x_title: "Goodput",
            bars: bars(source, &cells, Metric::DownloadGoodput, None),
        };
        push_panel(&mut rows, path, panel);
    }
    bar_plot(
        rows,
        "goodput without a relay and through one",
        Unit::BitsPerSecond,
        "Bars: median; whiskers: its 95 % confidence interval. The raw bar of a relayed transfer is a plain TCP proxy.",
        source,
    )
}

/// A metric over the number of sinks: a panel for each transport, a line for each pair. None below two
/// levels.
fn stress(source: &Source<'_>, metric: Metric, y_title: &'static str, unit: Unit) -> Option<Plot> {
    let cells = cells(source, |parameters| parameters.sinks_and_sources().is_some());
    let x_of = |cell: &Cell| {
        let (sinks, _) = cell.parameters.sinks_and_sources()?;
        Some((f64::from(sinks), sinks.to_string()))
    };
    let panel = |path: Path<'_>| {
        let of_path = of_path(&cells, path);
        line_panel(source, &of_path, x_of, (metric, y_title), path.to_string())
    };
    let panels: Vec<_> = paths(&cells).into_iter().filter_map(panel).collect();
    (!panels.is_empty()).then(|| {
        let lines = Lines {
            title: format!("{}: {} by sinks of one relay", source.results.name, lowered(y_title)),
            description: format!(
                "Median over trials of {y_title} while all sinks fetch through one relay, over their number, with 95 % \
                 confidence intervals as bands. Both axes are logarithmic."
            ),
            x_title: "Sinks",
            unit,
            over: Over::Values,
            panels,
        };
        lines.plot()
    })
}

/// A stress test over time: the ramp of its sinks, and the plateau after it.
fn stress_course(source: &Source<'_>, role: Role, quantity: Quantity) -> Option<Plot> {
    let is_wanted = |parameters: &Parameters| parameters.sinks_and_sources().is_some();
    course::nodes(source, is_wanted, &[role], quantity)
}

/// An echo over time: a panel for clients and one for servers, of each transport and load.
fn echo(source: &Source<'_>, quantity: Quantity) -> Option<Plot> {
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Echo(_));
    course::nodes(source, is_wanted, &[Role::Client, Role::Server], quantity)
}

/// Time to set up a connection: bars for the median, whiskers up to the 99th percentile.
fn handshakes(source: &Source<'_>) -> Option<Plot> {
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
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Handshakes(_));
    percentile_bars(
        source,
        is_wanted,
        "Time since the dial",
        &phases,
        "time to set up a connection",
    )
}

/// Connections per second.
fn handshake_rate(source: &Source<'_>) -> Option<Plot> {
    let mut rows = vec![];
    for (path, title, cells) in groups(source, |p| matches!(p, Parameters::Handshakes(_))) {
        let bars = bars(source, &cells, Metric::HandshakesPerSecond, None);
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
    bar_plot(rows, "connections per second", Unit::PerSecond, caption, source)
}

/// Round trips: bars for the median, whiskers up to the 99th percentile.
fn ping(source: &Source<'_>) -> Option<Plot> {
    let phases = [("", Metric::RoundTripP50, Metric::RoundTripP99)];
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Ping(_));
    percentile_bars(source, is_wanted, "Round trip", &phases, "round trips")
}

fn percentile_bars(
    source: &Source<'_>,
    is_wanted: impl Fn(&Parameters) -> bool,
    x_title: &'static str,
    phases: &[(&str, Metric, Metric)],
    subject: &str,
) -> Option<Plot> {
    let mut rows: Vec<Vec<bars::Panel>> = vec![];
    for (_, title, cells) in groups(source, is_wanted) {
        let panel = |(phase, p50, p99): &(&str, Metric, Metric)| {
            let title = if phase.is_empty() {
                title.clone()
            } else {
                format!("{title}, {phase}")
            };
            bars::Panel {
                title,
                x_title,
                bars: bars(source, &cells, *p50, Some(*p99)),
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
        source,
    )
}

fn bar_plot<K>(
    rows: Vec<(K, Vec<bars::Panel>)>,
    subject: &str,
    unit: Unit,
    caption: &str,
    source: &Source<'_>,
) -> Option<Plot> {
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
        title: format!("{}: {subject}", source.results.name),
        description: format!(
            "{caption} A panel for each transport, network and setting, a bar for each pair of stacks."
        ),
        caption: caption.to_owned(),
        unit,
        rows,
    };
    (!bars.rows.is_empty()).then(|| bars.plot())
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
