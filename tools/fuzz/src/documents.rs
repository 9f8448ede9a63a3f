//! Documents of authors, and results that somebody kept.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use perfrun_api::{
    cluster::{Allowance, RESULTS_KEY, read_trials, results_from_parts},
    document::{self, Document},
    planning::plan,
    results::Results,
};

use crate::json;

pub(crate) fn document(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(documents) = document::parse_any(text) else {
        return;
    };
    for document in documents {
        match document {
            Document::Run(run) => {
                if let Ok(plan) = plan(&run.spec) {
                    assert!(plan.trials.iter().all(|trial| trial.cell < plan.cells.len()));
                }
            }
            Document::Schedule(_) => {}
        }
    }
}

/// Parts of results in a cluster. The first byte says whether the rest is compressed already: otherwise no
/// mutation would have a right checksum.
pub(crate) fn journal(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let compressed = match first % 2 {
        0 => rest.to_vec(),
        _ => {
            let mut encoder = GzEncoder::new(vec![], Compression::fast());
            let compressed = encoder.write_all(rest).and_then(|()| encoder.finish());
            compressed.expect("memory takes all")
        }
    };
    let _ = read_trials(&compressed, &mut Allowance::default(), drop);
    let _ = results_from_parts(&[(RESULTS_KEY, compressed)]);
}

/// A results folder that somebody hands on.
pub(crate) fn results(bytes: &[u8]) {
    let Some(results) = json::<Results>(bytes) else {
        return;
    };
    let account = results.account();
    let printed = perfrun_report::terminal(&account, 100);
    assert!(
        !printed.contains(|c: char| c.is_control() && c != '\n'),
        "{printed:?}"
    );
    let (page, text) = (perfrun_report::html(&account), perfrun_report::markdown(&account));
    assert!(!text.contains('\x1b') && !page.contains('\x1b'));
}
