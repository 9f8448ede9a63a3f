//! How much memory a plan takes. It is counted where it is allocated, which a busy machine does not change.
#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps says enough about what went wrong"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use perfrun_api::{
    document,
    planning::{Error, plan},
    spec::PerfRunSpec,
};

/// Most that a plan may take while it is made, itself included.
const PLAN_MAX: isize = 50_000_000;

/// Most that it may take to refuse a document: the sets of parameters, which are bounded by the CRD.
const REFUSAL_MAX: isize = 2_000_000;

/// Counts what each thread has allocated, since tests run in several.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps what the trait asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps what the trait asks for.
        unsafe { System.dealloc(place, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most bytes that there were at once beyond those before.
fn peak<T>(what: impl FnOnce() -> T) -> (isize, T) {
    let before = NOW.get();
    PEAK.set(before);
    let made = what();
    (PEAK.get() - before, made)
}

fn specs(text: &str) -> Vec<PerfRunSpec> {
    let runs = document::parse(text).unwrap();
    runs.into_iter().map(|run| run.spec).collect()
}

#[test]
fn the_largest_plans_are_small() {
    let specs = specs(include_str!("api/largest.yaml"));
    let mut sizes = vec![];
    for spec in &specs {
        let (peak, plan) = peak(|| plan(spec).unwrap());
        sizes.push((plan.cells.len(), plan.trials.len(), plan.nodes.len()));
        assert!(peak < PLAN_MAX, "{peak} bytes for {sizes:?}");
        // It counts: what was made is still there.
        let names: usize = plan.nodes.iter().map(|node| node.name.len()).sum();
        let ids: usize = plan.trials.iter().map(|trial| trial.id.len()).sum();
        assert!(peak > (names + ids).cast_signed(), "{peak} bytes for {sizes:?}");
    }
    assert_eq!(sizes, [(4096, 98_304, 10), (4096, 12_288, 512)]);
}

#[test]
fn nothing_is_made_of_a_document_that_asks_for_too_much() {
    let specs = specs(include_str!("api/too-large.yaml"));
    let (peak, refused) = peak(|| plan(&specs[0]));
    assert_eq!(refused, Err(Error::TooManyCells(96_768)));
    assert!(peak < REFUSAL_MAX, "{peak} bytes");
}
