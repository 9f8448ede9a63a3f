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
mod relay;
mod rows;
mod select;
mod theme;
mod times;

use perfrun_contract::{
    compare::Finding,
    metric::{Better, Metric},
    parameters::{Amount, Parameters},
    plan::Cell,
    reported_run::ReportedRun,
    role::Role,
};

pub(crate) use self::canvas::Plot;
use self::{
    content::{Sweep, median_bars},
    course::SampledQuantity,
    forest::{Forest, Row},
    select::{PanelCells, bandwidth_panels, of_path},
    theme::SeriesStyle,
};
use crate::{
    order::{distinct, grouped},
    tables::{ResultsIndex, load, pair, paths},
    units::{self, change},
};

/// Every plot that the results give, as SVG with a file name.
pub fn plots(results: &ReportedRun<'_>) -> Vec<(&'static str, String)> {
    let plots = all(results).into_iter();
    plots.map(|(name, plot)| (name, plot.wide.svg)).collect()
}

/// Every plot that the results give, with a file name.
pub(crate) fn all(results: &ReportedRun<'_>) -> Vec<(&'static str, Plot)> {
    let index = ResultsIndex::new(results);
    let first = [
        ("differences.svg", differences(&index)),
        ("size-sweep.svg", size_sweep(&index)),
        ("comparison.svg", comparison_bars(&index)),
        ("substreams.svg", substreams(&index)),
    ];
    let last = [
        ("echo-payload.svg", echo(&index, course::RECEIVED)),
        ("echo-cpu.svg", echo(&index, course::CPU)),
        ("echo-memory.svg", echo(&index, course::MEMORY)),
        ("echo-transports-cpu.svg", course::transports(&index, course::CPU)),
        (
            "echo-transports-memory.svg",
            course::transports(&index, course::MEMORY),
        ),
        ("delay-loss.svg", networks::delay_and_loss(&index)),
        ("latencies.svg", latencies::latencies(&index)),
        ("payload.svg", course::payload(&index)),
        ("trials.svg", course::trials(&index)),
    ];
    let all = first
        .into_iter()
        .chain(times::plots(&index))
        .chain([("messages.svg", messages(&index))])
        .chain(relay::plots(&index))
        .chain(last);
    all.filter_map(|(name, plot)| Some((name, plot?))).collect()
}

/// Every comparison with its interval, those of one metric together. `None` without a comparison.
fn differences(index: &ResultsIndex<'_>) -> Option<Plot> {
    let judged = index.results.judged?;
    let rows = judged.comparisons.iter().filter_map(|comparison| {
        let ratio = comparison.ratio?;
        let name = format!(
            "{}, {}",
            load(index.cell_called(&comparison.baseline), &comparison.baseline),
            pair(index.cell_called(&comparison.candidate), &comparison.candidate)
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
            style: match comparison.finding {
                Finding::Better => SeriesStyle::series(2),
                Finding::Worse => SeriesStyle::series(1),
                _ => SeriesStyle::RAW,
            },
            ratio: ratio.value,
            interval: (ratio.low, ratio.high),
            label: format!(
                "{} %, {}",
                change(ratio.value),
                comparison.finding.to_string().to_lowercase()
            ),
        };
        Some((comparison.metric, row))
    });
    let better = |metric: Metric| match metric.better() {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
        Better::Neither => "neither is better",
    };
    let groups = grouped(rows).into_iter();
    let groups: Vec<_> = groups
        .map(|(metric, rows)| (format!("{metric} ({})", better(metric)), rows))
        .collect();
    let tolerances = judged.comparisons.iter().map(|comparison| comparison.tolerance);
    let tolerance = tolerances.fold(1.0, f64::min);
    let forest = Forest {
        title: format!("{}: differences", index.results.name),
        description:
            "The difference between candidate and baseline of each comparison, as a share, with its \
                      interval. Differences in the grey band count as equal."
                .to_owned(),
        groups,
        equal: (1.0 - tolerance, 1.0 / (1.0 - tolerance)),
    };
    (!forest.groups.is_empty()).then(|| forest.plot())
}

/// The bytes of a transfer that ends after them.
fn bytes(parameters: &Parameters) -> Option<u64> {
    match parameters.transfer() {
        Some((_, Amount::Count(bytes), _)) => Some(bytes),
        _ => None,
    }
}

/// Goodput over size: a panel for each transport and direction.
fn size_sweep(index: &ResultsIndex<'_>) -> Option<Plot> {
    let sweep = Sweep {
        subject: "goodput by size".to_owned(),
        lines: "Median goodput over the size of a transfer for each pair of stacks".to_owned(),
        x_title: "Size of the transfer",
        y_title: "Goodput",
        x_of: |parameters| bytes(parameters).map(|bytes| (bytes as f64, units::size(bytes))),
        panels: bandwidth_panels(index),
    };
    sweep.plot(index)
}

/// Goodput of all pairs, the raw reference first: a panel for each transport and direction. Of a sweep,
/// the largest size.
fn comparison_bars(index: &ResultsIndex<'_>) -> Option<Plot> {
    let panels = bandwidth_panels(index).into_iter().map(|mut panel| {
        let size = |cell: &Cell| bytes(&cell.parameters).unwrap_or(0);
        let cells = panel.cells.iter();
        let measured = cells.filter(|cell| index.row(cell, panel.metric).is_some());
        let largest = measured.map(|cell| size(cell)).max();
        panel.cells.retain(|cell| Some(size(cell)) == largest);
        if let Some(bytes @ 1..) = largest {
            panel.title = format!("{}, {}", panel.title, units::size(bytes));
        }
        panel
    });
    median_bars(index, "goodput", "Goodput", "", panels.collect())
}

/// Time to open substreams over their number: a panel for the mean and one for the maximum, of each
/// transport.
fn substreams(index: &ResultsIndex<'_>) -> Option<Plot> {
    let cells = index.cells(|parameters| matches!(parameters, Parameters::Substreams(_)));
    let of_path = |path| {
        [(Metric::OpenMean, "mean"), (Metric::OpenMax, "all open")].map(|(metric, name)| PanelCells {
            path,
            metric,
            title: format!("{path}, {name}"),
            cells: of_path(&cells, path),
        })
    };
    let sweep = Sweep {
        subject: "time to open substreams".to_owned(),
        lines: "Median over trials of the mean time to open a substream, and of the time until all were open, over \
                the number of substreams"
            .to_owned(),
        x_title: "Substreams",
        y_title: "Time",
        x_of: |parameters| match parameters {
            Parameters::Substreams(load) => Some((f64::from(load.count), load.count.to_string())),
            _ => None,
        },
        panels: paths(&cells).into_iter().flat_map(of_path).collect(),
    };
    sweep.plot(index)
}

/// Messages per second over their size: a panel for each transport and mode.
fn messages(index: &ResultsIndex<'_>) -> Option<Plot> {
    let cells = index.cells(|parameters| parameters.messages().is_some());
    let loads = cells.iter().filter_map(|cell| cell.parameters.messages());
    let modes = distinct(loads.map(|load| load.mode));
    let mut panels = vec![];
    for path in paths(&cells) {
        for &mode in &modes {
            let has_mode = |cell: &&Cell| {
                let load = cell.parameters.messages();
                load.is_some_and(|load| load.mode == mode)
            };
            panels.push(PanelCells {
                path,
                metric: Metric::MessagesPerSecond,
                title: format!("{path}, {mode}"),
                cells: of_path(&cells, path).into_iter().filter(has_mode).collect(),
            });
        }
    }
    let sweep = Sweep {
        subject: "messages by size".to_owned(),
        lines: "Median of messages per second over the size of a message for each pair of stacks".to_owned(),
        x_title: "Size of a message",
        y_title: "Messages",
        x_of: |parameters| {
            let bytes = parameters.messages()?.message_bytes.0;
            Some((bytes as f64, units::size(bytes)))
        },
        panels,
    };
    sweep.plot(index)
}

/// An echo over time: a panel for clients and one for servers, of each transport and load.
fn echo(index: &ResultsIndex<'_>, quantity: SampledQuantity) -> Option<Plot> {
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Echo(_));
    course::nodes(index, is_wanted, &[Role::Client, Role::Server], quantity)
}
