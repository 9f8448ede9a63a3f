//! CPUs that do not sleep while something is measured.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Keeps all CPUs from sleeping until it is dropped, by threads that run only where nothing else would.
///
/// A CPU that sleeps takes its time to wake up: on a virtual machine whose host is busy, a timer and each packet that somebody
/// waits for come 0.1 ms late at the median, and milliseconds now and then. That is in every round trip over a link that
/// is idle otherwise, and says nothing of the link. It costs all CPU time that is left: for measurements of seconds.
pub struct Awake(Arc<AtomicBool>);

impl Awake {
    /// From now on. Where threads cannot be had, or cannot step back behind all others, CPUs sleep as ever.
    pub fn keep() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let ended = ended.clone();
            let turning = move || {
                if step_back().is_ok() {
                    // Without a pause: hypervisors take one for a reason to let another machine run.
                    while !ended.load(Ordering::Relaxed) {}
                }
            };
            let _ = thread::Builder::new().name("awake".to_owned()).spawn(turning);
        }
        Self(ended)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets the calling thread run only when no other wants to.
fn step_back() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and the parameters outlive the call.
    let outcome = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
