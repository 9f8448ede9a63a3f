//! Links as bad as real ones, for benchmarks: delay, loss and other impairments of what leaves an interface.
//!
//! An [`Emulator`] impairs what an interface sends to the peers named in a [`Link`](perfrun_link::Link), and nothing else. It does so by
//! the kernel's netem, or, where there is none, in a thread of this process; [`capabilities`] says what works here. Both
//! ends of a connection impair what they send, so nobody needs more than CAP_NET_ADMIN in his own network namespace.
//!
//! | module | owns | must not |
//! |---|---|---|
//! | `frame` | the bytes of frames | decide about them |
//! | `kernel`, `userspace` | the two back ends | be seen from outside, but for their errors |
//! | `rules`, `tc`, `netlink`, `tap`, `realtime`, [`awake`] | what is asked of the kernel | touch what belongs to others |
//! | [`mod@inspect`], `caught`, [`status`] | what is at work already, told by the kernel or by who does it | change it |
//! | [`probe`] | measuring a link from one peer to the other | know who impairs it |
//!
//! What can be asked for, what becomes of each packet, and what to think of a measured link is the subject of
//! [`perfrun_link`], which does no I/O.
//!
//! ```no_run
//! use perfrun_link::{Impairment, Link};
//! use perfrun_emulator::{Emulator, Options};
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

#![warn(missing_docs)]

pub mod awake;
pub mod capabilities;
mod caught;
pub mod emulator;
mod frame;
pub mod inspect;
mod kernel;
mod netlink;
pub mod probe;
pub mod realtime;
mod rules;
pub mod status;
mod tap;
mod tc;
mod userspace;

pub use emulator::{Emulator, Error, Options, clear};
pub use inspect::{Found, inspect, interfaces};
pub use kernel::Error as KernelError;
pub use netlink::Error as NetlinkError;
pub use rules::Error as RulesError;
pub use status::Status;
pub use tap::Error as TapError;
pub use userspace::{DEVICE, Error as UserspaceError};
