//! When each message is due.

use std::{
    io,
    os::fd::OwnedFd,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The schedule of messages: at a rate, or each as soon as possible.
pub(super) struct Pace {
    pub(super) begun: Instant,
    paced: Option<Paced>,
}

struct Paced {
    rate: u32,
    /// A timer of the kernel: those of the async runtime have a resolution of a millisecond.
    timer: AsyncFd<OwnedFd>,
    /// The message for which the timer is set.
    awaited: Option<u64>,
}

impl Pace {
    /// Begins now, with `rate` messages per second.
    pub(super) fn begin(rate: Option<u32>) -> io::Result<Self> {
        let paced = rate.map(|rate| {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            // SAFETY: an `OwnedFd` stays open, and is the same descriptor, as long as it lives.
            let timer = unsafe { AsyncFd::register(timer) }?;
            io::Result::Ok(Paced {
                rate,
                timer,
                awaited: None,
            })
        });
        Ok(Self {
            paced: paced.transpose()?,
            begun: Instant::now(),
        })
    }

    /// Ready once a message is due, with that moment; the first message has the number 0. Without a rate,
    /// each is due now.
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>, number: u64) -> Poll<io::Result<Instant>> {
        let Some(paced) = &mut self.paced else {
            return Poll::Ready(Ok(Instant::now()));
        };
        let after = u128::from(number) * 1_000_000_000 / u128::from(paced.rate);
        let due = self.begun + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX));
        loop {
            let early = due.saturating_duration_since(Instant::now());
            if early.is_zero() {
                return Poll::Ready(Ok(due));
            }
            if paced.awaited != Some(number) {
                paced.set(early)?;
                paced.awaited = Some(number);
            }
            let mut expired = ready!(paced.timer.poll_read_ready(cx))?;
            let read = expired.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
            if let Ok(read) = read {
                read?;
                paced.awaited = None;
            }
        }
    }
}

impl Paced {
    /// Sets the timer to expire once.
    fn set(&self, after: Duration) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(after).map_err(io::Error::other)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn messages_are_due_one_after_the_other_and_never_early() {
        let mut pace = Pace::begin(Some(2000)).unwrap();
        let begun = pace.begun;
        for number in 0..40 {
            let due = poll_fn(|cx| pace.poll_due(cx, number)).await.unwrap();
            assert_eq!(
                due,
                begun + Duration::from_micros(500) * u32::try_from(number).unwrap()
            );
            assert!(Instant::now() >= due);
        }
    }

    #[tokio::test]
    async fn messages_that_are_late_are_due_when_they_were() {
        let mut pace = Pace::begin(Some(1000)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        for number in 0..20 {
            let due = poll_fn(|cx| pace.poll_due(cx, number)).await.unwrap();
            assert_eq!((due - pace.begun).as_millis(), u128::from(number));
        }
    }
}
