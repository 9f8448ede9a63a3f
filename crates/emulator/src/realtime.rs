//! Threads that wake up on time.

use std::{io, num::NonZeroU64};

use perfrun_link::Scheduling;

/// Above every normal thread, below those of the kernel itself.
const PRIORITY: libc::c_int = 10;
/// The slice of a thread since Linux 6.12, in nanoseconds: how long others may keep it waiting. The least
/// that the kernel accepts.
const SLICE_NANOSECONDS: u64 = 100_000;
/// How long the kernel may postpone a timer to join it with others. The default is 50 µs.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(1_000).expect("1000 is not 0");

/// Gives the calling thread the best scheduling that is permitted.
pub fn acquire() -> Scheduling {
    // Without this, timers are later but not wrong.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
    if set_real_time().is_ok() {
        Scheduling::RealTime
    } else if set_slice().is_ok() {
        Scheduling::ShortSlice
    } else {
        Scheduling::Ordinary
    }
}

/// Tries real-time priority on a new thread. An error if it is not permitted.
pub(crate) fn try_acquire() -> io::Result<()> {
    std::thread::Builder::new()
        .name("netem-probe".to_owned())
        .spawn(set_real_time)?
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that tried panicked")))
}

fn set_real_time() -> io::Result<()> {
    // The flag gives children ordinary priority.
    set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, PRIORITY)
}

/// Sets by which policy the calling thread is scheduled.
pub(crate) fn set_policy(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread, and the parameters outlive the call.
    let outcome = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_slice() -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: SLICE_NANOSECONDS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: 0 is the calling thread; the attributes have the size they say and outlive the call.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
