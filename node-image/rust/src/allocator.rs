//! The allocator of the node: jemalloc. Tests of this crate use it, too. A build without it uses that of the
//! C library. Both report how much is allocated.

#[cfg(not(feature = "jemalloc"))]
mod c_library;
#[cfg(feature = "jemalloc")]
mod jemalloc;

#[cfg(not(feature = "jemalloc"))]
pub use self::c_library::{NAME, allocated, purge};
#[cfg(feature = "jemalloc")]
pub use self::jemalloc::{NAME, allocated, purge};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_memory_is_counted_and_freed_memory_is_returned() {
        const SIZE: usize = 64 << 20;
        let before = allocated().expect("the allocator has statistics");
        let memory = std::hint::black_box(vec![1_u8; SIZE]);
        let with = allocated().expect("the allocator has statistics");
        // Other tests allocate at the same time, but not nearly as much.
        assert!(with > before + SIZE as u64 / 2, "{before} {with}");
        let resident = crate::process::resident();
        drop(memory);
        purge();
        assert!(allocated().expect("the allocator has statistics") + SIZE as u64 / 2 < with);
        assert!(crate::process::resident() + SIZE as u64 / 2 < resident);
    }
}
