//! Relays: transfers through one, and stress tests.

use perfrun_contract::{metric::Metric, parameters::Parameters, role::Role};

use super::{
    canvas::Plot,
    content::{Sweep, lowered, median_bars},
    course::{self, SampledQuantity},
    select::{PanelCells, of_path, panels_of},
};
use crate::tables::{ResultsIndex, paths};

/// The plots of relays, with file names.
pub(super) fn plots(index: &ResultsIndex<'_>) -> [(&'static str, Option<Plot>); 6] {
    [
        ("relay.svg", relay(index)),
        (
            "relay-stress-goodput.svg",
            stress(index, Metric::DownloadGoodput, "Goodput"),
        ),
        (
            "relay-stress-cpu.svg",
            stress(index, Metric::RelayCpu, "CPUs of the relay"),
        ),
        (
            "relay-stress-circuits-over-time.svg",
            stress_course(index, Role::Relay, course::CIRCUITS),
        ),
        (
            "relay-stress-payload-over-time.svg",
            stress_course(index, Role::Client, course::RECEIVED),
        ),
        (
            "relay-stress-cpu-over-time.svg",
            stress_course(index, Role::Relay, course::CPU),
        ),
    ]
}

/// Goodput without a relay and through one: a panel for each transport, size and path.
fn relay(index: &ResultsIndex<'_>) -> Option<Plot> {
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Relay(_));
    median_bars(
        index,
        "goodput without a relay and through one",
        "Goodput",
        " The raw bar of a relayed transfer is a plain TCP proxy.",
        panels_of(index, Metric::DownloadGoodput, is_wanted),
    )
}

/// A metric over the number of sinks: a panel for each transport.
fn stress(index: &ResultsIndex<'_>, metric: Metric, y_title: &'static str) -> Option<Plot> {
    let cells = index.cells(|parameters| parameters.sinks_and_sources().is_some());
    let panel = |path| PanelCells {
        path,
        metric,
        title: path.to_string(),
        cells: of_path(&cells, path),
    };
    let sweep = Sweep {
        subject: format!("{} by sinks of one relay", lowered(y_title)),
        lines: format!(
            "Median over trials of {y_title} while all sinks fetch through one relay, over their number"
        ),
        x_title: "Sinks",
        y_title,
        x_of: |parameters| {
            let (sinks, _) = parameters.sinks_and_sources()?;
            Some((f64::from(sinks), sinks.to_string()))
        },
        panels: paths(&cells).into_iter().map(panel).collect(),
    };
    sweep.plot(index)
}

/// A stress test over time: the ramp of its sinks, and the plateau after it.
fn stress_course(index: &ResultsIndex<'_>, role: Role, quantity: SampledQuantity) -> Option<Plot> {
    let is_wanted = |parameters: &Parameters| parameters.sinks_and_sources().is_some();
    course::nodes(index, is_wanted, &[role], quantity)
}
