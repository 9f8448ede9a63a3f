//! Bars of the times that handshakes and round trips take, and of the rate of handshakes.

use perfrun_contract::{metric::Metric, parameters::Parameters};

use super::{
    canvas::Plot,
    content::{bar_plot, median_bars},
    select::{PanelCells, groups, panels_of},
};
use crate::tables::ResultsIndex;

/// The plots of handshakes and of round trips, with file names.
pub(super) fn plots(index: &ResultsIndex<'_>) -> [(&'static str, Option<Plot>); 3] {
    [
        ("handshakes.svg", handshakes(index)),
        ("handshake-rate.svg", handshake_rate(index)),
        ("ping.svg", ping(index)),
    ]
}

/// Time to set up a connection: bars for the median, whiskers up to the 99th percentile.
fn handshakes(index: &ResultsIndex<'_>) -> Option<Plot> {
    let phases = [
        (
            ", established",
            Metric::HandshakeEstablishedP50,
            Metric::HandshakeEstablishedP99,
        ),
        (
            ", first byte",
            Metric::HandshakeFirstByteP50,
            Metric::HandshakeFirstByteP99,
        ),
    ];
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Handshakes(_));
    let subject = "time to set up a connection";
    percentile_bars(index, is_wanted, "Time since the dial", &phases, subject)
}

/// Connections per second.
fn handshake_rate(index: &ResultsIndex<'_>) -> Option<Plot> {
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Handshakes(_));
    let panels = panels_of(index, Metric::HandshakesPerSecond, is_wanted);
    median_bars(
        index,
        "connections per second",
        "Connections per second",
        "",
        panels,
    )
}

/// Round trips: bars for the median, whiskers up to the 99th percentile.
fn ping(index: &ResultsIndex<'_>) -> Option<Plot> {
    let phases = [("", Metric::RoundTripP50, Metric::RoundTripP99)];
    let is_wanted = |parameters: &Parameters| matches!(parameters, Parameters::Ping(_));
    percentile_bars(index, is_wanted, "Round trip", &phases, "round trips")
}

fn percentile_bars(
    index: &ResultsIndex<'_>,
    is_wanted: impl Fn(&Parameters) -> bool,
    x_title: &'static str,
    phases: &[(&str, Metric, Metric)],
    subject: &str,
) -> Option<Plot> {
    let mut panels = vec![];
    for (row, (path, title, cells)) in groups(index, is_wanted).into_iter().enumerate() {
        for (phase, p50, p99) in phases {
            let panel = PanelCells {
                path,
                metric: *p50,
                title: format!("{title}{phase}"),
                cells: cells.clone(),
            };
            // Single panels stand two and two.
            let row = if phases.len() == 1 { 0 } else { row };
            panels.push((row, panel, Some(*p99)));
        }
    }
    let caption = "Bars: p50; whiskers: up to p99; beside them both. Each is the median over trials.";
    bar_plot(index, subject, x_title, caption, panels)
}
