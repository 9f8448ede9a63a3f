//! Round trips.

use perfrun_contract::{
    metric::Metric,
    parameters::{Parameters, Ping},
    plan::Cell,
};

use super::{FAILURES, ResultsIndex, detail, header};
use crate::{path::Path, table::Table, units};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let cells = index.cells(|parameters| matches!(parameters, Parameters::Ping(_)));
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
    let key = |cell: &Cell| {
        vec![
            Path::of(cell).to_string().into(),
            header(cell.stack_pair()).into(),
        ]
    };
    let columns = [
        ("p50", Metric::RoundTripP50),
        ("p90", Metric::RoundTripP90),
        ("p99", Metric::RoundTripP99),
        ("Mean", Metric::RoundTripMean),
        ("Max", Metric::RoundTripMax),
        ("CPU per\nround trip", Metric::CpuSecondsPerOperation),
        FAILURES,
    ];
    let plural = if *count == 1 { "" } else { "s" };
    let caption = format!("{count} round trip{plural} of 32 bytes in each trial, {pause}");
    vec![detail(index, &cells, &["Transport", "Stacks"], key, &columns).called("Round trips", caption)]
}
