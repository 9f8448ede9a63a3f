//! What a link may do to packets: figures, rules, the fate of each packet, and whether a measured link is the one that
//! was asked for. Functions of values: no clock, no socket, no chance without a seed.
//!
//! | module | owns |
//! |---|---|
//! | [`impairment`], [`ratio`] | what can happen in one direction, and the rules that its figures must keep |
//! | [`route`] | which peers are reached over which link |
//! | [`emulation`] | what becomes of each packet |
//! | [`distribution`] | tables of delays |
//! | [`ability`] | who could impair links in some place, and why not |
//! | [`state`] | what happened on a link, and whether to trust it |
//! | [`probe`] | how a link is measured, and what to think of what was measured |

#![warn(missing_docs)]

pub mod ability;
pub mod distribution;
pub mod emulation;
pub mod impairment;
pub mod probe;
pub mod ratio;
pub mod route;
pub mod state;

pub use ability::{Ability, Capabilities, Reason, Unsupported};
pub use emulation::Tally;
pub use impairment::{
    Chance, Distribution, Impairment, Jitter, Loss, Mode, Reorder, UNLIMITED_BITS_PER_SECOND,
};
pub use ratio::Ratio;
pub use route::{Link, Prefix, Route};
pub use state::{Backend, Kind, Scheduling, State};
