//! Round trips.

use perfrun_contract::{
    metric::Metric,
    parameters::{Parameters, Ping},
    plan::Cell,
};

use super::source::{Column, Pair, Source, detail};
use crate::{path::Path, table::Table, units};

pub(super) fn tables(source: &Source<'_>) -> Vec<Table> {
    let cells: Vec<&Cell> = source
        .plan()
        .cells
        .iter()
        .filter(|c| matches!(c.parameters, Parameters::Ping(_)))
        .collect();
    let Some(Cell {
        parameters: Parameters::Ping(Ping {
            count,
            interval_seconds,
        }),
        ..
    }) = cells.first()
    else {
        return vec![];
    };
    let pause = match *interval_seconds {
        0.0 => "without a pause".to_owned(),
        seconds => format!("every {}", units::text(units::Unit::Seconds, seconds)),
    };
    let key = |cell: &Cell| vec![Path::of(cell).to_string().into(), Pair::of(cell).header().into()];
    let columns = [
        Column {
            name: "p50",
            metric: Metric::RoundTripP50,
        },
        Column {
            name: "p90",
            metric: Metric::RoundTripP90,
        },
        Column {
            name: "p99",
            metric: Metric::RoundTripP99,
        },
        Column {
            name: "Mean",
            metric: Metric::RoundTripMean,
        },
        Column {
            name: "Max",
            metric: Metric::RoundTripMax,
        },
        Column {
            name: "CPU per\nround trip",
            metric: Metric::CpuSecondsPerOperation,
        },
        Column {
            name: "Failures",
            metric: Metric::Failures,
        },
    ];
    let table = detail(source, &cells, &["Transport", "Stacks"], key, &columns);
    vec![Table {
        title: "Round trips".to_owned(),
        caption: format!(
            "{count} round trip{} of 32 bytes in each trial, {pause}",
            if *count == 1 { "" } else { "s" }
        ),
        ..table
    }]
}
