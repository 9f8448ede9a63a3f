//! Links as bad as real ones, for benchmarks: delay, loss and other impairments of what leaves an interface.
//!
//! An [`Emulator`] impairs what an interface sends to the peers named in
//! [`OutgoingLinks`](perfrun_link::OutgoingLinks), and nothing else. It uses the kernel's netem, or, where
//! there is none, a thread of this process; [`abilities`] reports which is available. Each end of a
//! connection impairs what it sends, so CAP_NET_ADMIN in the own network namespace is enough.
//!
//! | module | owns | must not |
//! |---|---|---|
//! | `frame` | the bytes of frames | decide about them |
//! | `kernel`, `userspace` | the two backends | be public, except for their errors; know each other |
//! | `interface`, `rules`, `tc`, `netlink`, `tap`, `realtime`, [`awake`] | requests to the kernel | touch what belongs to others |
//! | [`mod@inspect`], `caught`, [`status`] | the existing impairment, read from the kernel or from the process that serves it | change it |
//! | `fuzzing` | what fuzz targets call with foreign bytes | be called by programs |
//! | [`probe`] | measuring a link from one peer to the other | know which backend impairs it |
//!
//! The parameters of links, the fate of each packet, and the judgement of a measured link are the subject of
//! [`perfrun_link`], which does no I/O.
//!
//! ```no_run
//! use perfrun_link::{Impairment, OutgoingLinks};
//! use perfrun_emulator::{Emulator, Options};
//!
//! let slow = Impairment { delay: std::time::Duration::from_millis(25), ..Impairment::default() };
//! let links = OutgoingLinks::to(["10.99.0.2".parse()?], slow)?;
//! let mut emulator = Emulator::start("eth0", &links, Options::default())?;
//! // … measure …
//! for concern in emulator.state()?.concerns() {
//!     println!("{concern}");
//! }
//! emulator.remove()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

pub mod abilities;
pub mod awake;
mod caught;
pub mod emulator;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
mod interface;
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
pub use inspect::{AddressLocation, Inspection, inspect, interfaces, locate};
pub use interface::Error as InterfaceError;
pub use kernel::Error as KernelError;
pub use netlink::Error as NetlinkError;
pub use rules::Error as RulesError;
pub use status::Status;
pub use tap::Error as TapError;
pub use userspace::{DEVICE, Error as UserspaceError};
