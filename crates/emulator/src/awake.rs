//! CPUs that do not sleep during a measurement.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::realtime::set_policy;

/// Keeps all CPUs from sleeping until it is dropped, by threads that run only when nothing else does.
///
/// A sleeping CPU takes time to wake up. On a virtual machine whose host is busy, a timer or a packet that a
/// thread waits for is 0.1 ms late at the median, and sometimes milliseconds. Every round trip over an
/// otherwise idle link would include that, which says nothing about the link. Keeping CPUs awake costs all
/// CPU time that is left: use it for measurements of seconds.
pub struct AwakeCpus(Arc<AtomicBool>);

impl AwakeCpus {
    /// Starts the threads. If none can be started, or none can get the lowest priority, CPUs sleep as usual.
    pub fn keep() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let ended = ended.clone();
            let spin = move || {
                // By this policy, a thread runs only when no other wants to.
                if set_policy(libc::SCHED_IDLE, 0).is_ok() {
                    // Without a pause instruction: hypervisors take one as a reason to run another machine.
                    while !ended.load(Ordering::Relaxed) {}
                }
            };
            let _ = thread::Builder::new().name("awake".to_owned()).spawn(spin);
        }
        Self(ended)
    }
}

impl Drop for AwakeCpus {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
