//! Links as bad as real ones, for benchmarks: delay, loss and other impairments of what leaves an interface.
//!
//! An [`Emulator`] impairs what an interface sends to the peers named in a [`Link`], and nothing else. It does so by
//! the kernel's netem, or, where there is none, in a thread of this process; [`Capabilities`] says what works here. Both
//! ends of a connection impair what they send, so nobody needs more than CAP_NET_ADMIN in his own network namespace.
//!
//! | module | owns | must not |
//! |---|---|---|
//! | [`impairment`], [`link`], [`ratio`] | what can be asked for, and its rules | know who does it |
//! | `emulation` | the fate of each packet, as a function of values | read a clock, a socket, or chance that has no seed |
//! | `frame` | the bytes of frames | decide about them |
//! | `kernel`, `userspace` | the two back ends | be seen from outside, but for their errors |
//! | `rules`, `tc`, `netlink`, `tap`, `realtime` | what is asked of the kernel | touch what belongs to others |
//! | [`state`] | what happened, and whether to trust it | |
//! | [`probe`] | measuring a link, and comparing it with what was asked for | know who impairs it |
//!
//! ```no_run
//! use perfrun_netem::{Emulator, Impairment, Link, Options};
//!
//! let slow = Impairment { delay: std::time::Duration::from_millis(25), ..Impairment::default() };
//! let link = Link::to(["10.99.0.2".parse()?], slow)?;
//! let mut emulator = Emulator::start("eth0", &link, Options::default())?;
//! // … measure …
//! for concern in emulator.state()?.concerns() {
//!     println!("{concern}");
//! }
//! emulator.remove()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod capabilities;
mod distribution;
mod emulation;
pub mod emulator;
mod frame;
pub mod impairment;
mod kernel;
pub mod link;
mod netlink;
pub mod probe;
pub mod ratio;
mod realtime;
mod rules;
pub mod state;
mod tap;
mod tc;
#[cfg(test)]
mod testing;
mod userspace;

pub use capabilities::{Ability, Capabilities, Reason, Unsupported};
pub use emulation::Tally;
pub use emulator::{Backend, Emulator, Error, Kind, Options, clear};
pub use impairment::{Chance, Distribution, Impairment, Jitter, Loss, Mode, Reorder};
pub use kernel::Error as KernelError;
pub use link::{Link, Prefix, Route};
pub use netlink::Error as NetlinkError;
pub use ratio::Ratio;
pub use realtime::Scheduling;
pub use rules::Error as RulesError;
pub use state::State;
pub use tap::Error as TapError;
pub use userspace::Error as UserspaceError;
