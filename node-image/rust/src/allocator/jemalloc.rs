//! jemalloc.

use std::ptr;

use tikv_jemalloc_ctl::{epoch, stats};
use tikv_jemallocator::Jemalloc;

/// The name of the allocator in results.
pub const NAME: &str = "jemalloc";

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Bytes that the program has allocated and not freed. `None` without statistics.
pub fn allocated() -> Option<u64> {
    // Statistics are of the last epoch, so start a new one.
    epoch::advance().ok()?;
    Some(stats::allocated::read().ok()? as u64)
}

/// Returns free pages to the kernel.
pub fn purge() {
    /// 4096 is `MALLCTL_ARENAS_ALL`.
    const PURGE: &std::ffi::CStr = c"arena.4096.purge";
    // SAFETY: the name ends with a zero, and this control takes and returns nothing; any thread may use it at
    // any time.
    unsafe {
        tikv_jemalloc_sys::mallctl(
            PURGE.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
        );
    }
}
