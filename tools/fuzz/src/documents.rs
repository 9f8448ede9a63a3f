//! Documents of authors, and stored results.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use perfrun_api::{
    cluster::{JsonBytesLeft, PART_BYTES, RESULTS_KEY, read_trials, results_from_parts},
    document::{self, Document},
    planning::draft,
    results::Results,
};

use crate::json::json;

pub(crate) fn document(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(documents) = document::parse_any(text) else {
        return;
    };
    for document in documents {
        match document {
            Document::Run(run) => {
                if let Ok(plan) = draft(&run.spec) {
                    assert!(plan.trials.iter().all(|trial| trial.cell < plan.cells.len()));
                }
            }
            Document::Schedule(_) => {}
        }
    }
}

/// A part of the records in a cluster. The first byte says whether the rest is compressed already: otherwise
/// no mutation would have a right checksum. It also says how often the rest is there: a part may have much
/// more text than any input. footprint.rs of perfrun-api tests the largest record.
pub(crate) fn journal(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let compressed = match first % 2 {
        0 => rest.to_vec(),
        _ => compress(rest),
    };
    let times = 1 << (first / 2).min(REPEATS_MAX);
    let part = compressed.repeat((PART_BYTES / compressed.len().max(1)).clamp(1, times));
    let _ = read_trials(&part, &mut JsonBytesLeft::default(), drop);
}

/// The largest exponent of the times that text is in a part: a thousand times 64 KiB are more than a record
/// may have.
const REPEATS_MAX: u8 = 10;

fn compress(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    let compressed = encoder.write_all(text).and_then(|()| encoder.finish());
    compressed.expect("memory takes all")
}

/// A results folder that users pass on, or results in a cluster.
pub(crate) fn results(bytes: &[u8]) {
    let _ = results_from_parts(&[(RESULTS_KEY, compress(bytes))]);
    let Some(results) = json::<Results>(bytes) else {
        return;
    };
    let reported_run = results.reported_run();
    let form = perfrun_report::TerminalOptions {
        width: 100,
        shows_all: true,
        ..Default::default()
    };
    let printed = perfrun_report::terminal(&reported_run, &form);
    assert!(
        !printed.contains(|c: char| c.is_control() && c != '\n'),
        "{printed:?}"
    );
    let (page, text) = (
        perfrun_report::html(&reported_run),
        perfrun_report::markdown(&reported_run),
    );
    assert!(!text.contains('\x1b') && !page.contains('\x1b'));
}
