//! How much memory reading takes.

use std::ptr;

use tikv_jemalloc_sys::mallctl;

/// The most bytes that this thread holds at a time during a function, beyond those before it. The allocator
/// of the node counts them for each thread, in steps of 64 KiB. After a call within the function, those
/// before that call no longer count.
pub(crate) fn peak(read: impl FnOnce()) -> u64 {
    // SAFETY: the name ends with a zero, and this control takes and returns nothing.
    let reset = unsafe {
        mallctl(
            c"thread.peak.reset".as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
        )
    };
    read();
    let (mut held, mut size) = (0_u64, size_of::<u64>());
    // SAFETY: the name ends with a zero, and this control returns 64 bits, for which there is room.
    let got = unsafe {
        mallctl(
            c"thread.peak.read".as_ptr(),
            ptr::from_mut(&mut held).cast(),
            &raw mut size,
            ptr::null_mut(),
            0,
        )
    };
    assert_eq!((reset, got), (0, 0), "jemalloc has statistics");
    held
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_counts_at_its_peak_and_for_one_input() {
        let held = |times: usize| peak(|| (0..times).for_each(|_| drop(black_box(vec![1_u8; 8 << 20]))));
        for times in [1, 4] {
            assert!(
                (8 * MIB..9 * MIB).contains(&held(times)),
                "{times}: {}",
                held(times)
            );
        }
        assert!(held(0) < MIB);
    }
}
