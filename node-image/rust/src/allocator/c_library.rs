//! The allocator of glibc.

/// The name of the allocator in results.
pub const NAME: &str = "glibc";

/// Bytes that the program has allocated and not freed, with what the allocator adds to each piece. Never
/// `None`.
pub fn allocated() -> Option<u64> {
    // SAFETY: it takes nothing, returns numbers, and any thread may call it at any time.
    let counts = unsafe { libc::mallinfo2() };
    Some((counts.uordblks + counts.hblkhd) as u64)
}

/// Returns free pages to the kernel.
pub fn purge() {
    // SAFETY: it takes and returns numbers, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
