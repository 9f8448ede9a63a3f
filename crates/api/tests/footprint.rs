//! Memory of plans and of reading results, counted by the allocator, so that a busy machine does not change
//! it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use flate2::read::MultiGzDecoder;
use perfrun_api::{
    bounded::{Bounded, SPEC_BYTES},
    cluster::{JsonBytesLeft, PART_BYTES, RECORD_BYTES, Unreadable, read_trials, trials_to_parts},
    document,
    memory_budget::MemoryBudget,
    planning::{Error, plan},
    results::Results,
    spec::PerfRunSpec,
};
use perfrun_test_kit::memory::{Counting, peak_during};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Most bytes for making a plan, including the plan.
const PLAN_MAX: isize = 50_000_000;

/// Most bytes for refusing a document: its loads, which the CRD bounds.
const REFUSAL_MAX: isize = 2_000_000;

/// Most bytes for skipping a spec that is too large. All of one of 1.4 MB may take a hundred times its text.
const SPEC_MAX: isize = 8 << 20;

/// Most bytes for reading records: the longest one, while the buffer for it grows.
const RECORDS_MAX: isize = (4 * RECORD_BYTES).cast_signed();

/// Most bytes for results from anywhere.
const RESULTS_MAX: isize = 256 << 20;

/// The shortest record of a trial.
const RECORD: &str = r#"{"trial":{"id":"c0.i0","cell":0,"iteration":0,"warmup":false},"attempt":0,"atSeconds":1.0,"overheadSeconds":0.5,"nodes":{}}"#;

fn specs(text: &str) -> Vec<PerfRunSpec> {
    let runs = document::parse(text).unwrap();
    runs.into_iter().map(|run| run.spec).collect()
}

#[test]
fn a_spec_that_is_too_large_is_skipped_in_eight_mebibytes() {
    for item in ["{}", "[]", "0", r#""""#, r#"{"":0}"#] {
        let text = format!("[{}]", vec![item; 1_400_000 / (item.len() + 1)].join(","));
        let (took, read) = peak_during(|| serde_json::from_str::<Bounded<SPEC_BYTES>>(&text));
        assert!(matches!(read, Ok(Bounded(None))), "{item}");
        assert!(took < SPEC_MAX, "{item} takes {took} bytes");
    }
}

#[test]
fn the_largest_plans_are_small() {
    let specs = specs(include_str!("api/largest.yaml"));
    let mut sizes = vec![];
    for spec in &specs {
        let (peak, plan) = peak_during(|| plan(spec).unwrap());
        sizes.push((plan.cells.len(), plan.trials.len(), plan.nodes.len()));
        assert!(peak < PLAN_MAX, "{peak} bytes for {sizes:?}");
        // The counter works: it includes what the plan holds.
        let names: usize = plan.nodes.iter().map(|node| node.name.len()).sum();
        let ids: usize = plan.trials.iter().map(|trial| trial.id.len()).sum();
        assert!(peak > (names + ids).cast_signed(), "{peak} bytes for {sizes:?}");
    }
    assert_eq!(sizes, [(4096, 98_304, 10), (4096, 12_288, 512)]);
}

#[test]
fn a_document_that_requests_too_much_is_refused_before_it_is_planned() {
    let specs = specs(include_str!("api/too-large.yaml"));
    let (peak, refused) = peak_during(|| plan(&specs[0]));
    assert_eq!(refused, Err(Error::TooManyCells(96_768)));
    assert!(peak < REFUSAL_MAX, "{peak} bytes");
}

#[test]
fn a_part_takes_the_memory_of_one_record_whatever_it_decompresses_to() {
    let blanks = " ".repeat(1 << 20);
    for (text, accepted) in [(blanks.clone(), 0), (format!("{RECORD}{blanks}\n"), 63)] {
        // A reader takes one compressed text after the other: 900 KiB of these are some 900 MiB of text.
        let parts = trials_to_parts(&text, PART_BYTES);
        let (_, compressed) = &parts[0];
        let compressed = compressed.repeat(PART_BYTES / compressed.len());
        let mut records = 0;
        let (peak, refused) = peak_during(|| {
            read_trials(&compressed, &mut JsonBytesLeft(64 << 20), |_| {
                records += 1;
            })
        });
        assert!(matches!(refused, Err(Unreadable::TooLarge { .. })), "{refused:?}");
        assert_eq!(records, accepted);
        assert!(peak < RECORDS_MAX, "{peak} bytes");
    }
}

#[test]
fn a_gigabyte_of_results_is_refused_in_256_mebibytes() {
    let compressed = |text: &str| trials_to_parts(text, PART_BYTES).remove(0).1;
    let record = format!("{RECORD},");
    let mebibyte = compressed(&record.repeat((1 << 20) / record.len()));
    let text = [compressed("{\"trials\":["), mebibyte.repeat(1 << 10)].concat();
    let memory = MemoryBudget::of_results();
    let (peak, read) = peak_during(|| memory.read::<Results>(MultiGzDecoder::new(text.as_slice())));
    assert!(read.is_err() && memory.is_exceeded(), "{read:?}");
    assert!(peak < RESULTS_MAX, "{peak} bytes");
    // What counts is not much more than what is there.
    assert!(peak > RESULTS_MAX / 5, "{peak} bytes");
}
