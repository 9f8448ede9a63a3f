//! What a test program allocates, which a busy machine does not change. The program makes [`Counting`] its
//! allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicIsize, Ordering},
};

static NOW: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static NOW_OF_THREAD: Cell<isize> = const { Cell::new(0) };
    static PEAK_OF_THREAD: Cell<isize> = const { Cell::new(0) };
}

/// The most bytes of all threads at one time.
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed).cast_unsigned()
}

/// The most bytes of this thread at one time during a function, above those before it. Tests run in several
/// threads.
pub fn peak_during<T>(work: impl FnOnce() -> T) -> (isize, T) {
    let before = NOW_OF_THREAD.get();
    PEAK_OF_THREAD.set(before);
    let made = work();
    (PEAK_OF_THREAD.get() - before, made)
}

/// The system's allocator, which counts.
pub struct Counting;

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

fn count(bytes: isize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
    // The counters of a thread are gone before its last deallocations.
    let _ = NOW_OF_THREAD.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK_OF_THREAD.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}
