//! The allocator of the node: jemalloc, because it reports how much is allocated. Tests of this crate use it,
//! too.

use std::ptr;

use tikv_jemalloc_ctl::{epoch, stats};
use tikv_jemallocator::Jemalloc;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_memory_is_counted_and_freed_memory_is_returned() {
        const SIZE: usize = 64 << 20;
        let before = allocated().expect("jemalloc has statistics");
        let memory = std::hint::black_box(vec![1_u8; SIZE]);
        let with = allocated().expect("jemalloc has statistics");
        // Other tests allocate at the same time, but not nearly as much.
        assert!(with > before + SIZE as u64 / 2, "{before} {with}");
        let resident = crate::process::resident();
        drop(memory);
        purge();
        assert!(allocated().expect("jemalloc has statistics") + SIZE as u64 / 2 < with);
        assert!(crate::process::resident() + SIZE as u64 / 2 < resident);
    }
}
