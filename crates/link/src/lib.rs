//! What a link does to packets: the parameters of an impairment, their rules, the fate of each packet, and
//! whether a measured link behaves as configured. Functions of values: no clock, no socket, no randomness
//! without a seed.
//!
//! | module | owns |
//! |---|---|
//! | [`impairment`], [`ratio`] | what can happen in one direction, and the rules of its parameters |
//! | [`route`] | which peers are reached over which link |
//! | [`fate`] | what happens to each packet |
//! | [`distribution`] | tables of delays |
//! | `binomial` | how many of a number of draws succeed |
//! | [`ability`] | which backends are available in one place, and why not |
//! | [`state`] | what happened on a link, and whether to trust it |
//! | [`probe`] | how a link is measured, and how the result is judged |

#![warn(missing_docs)]

pub mod ability;
mod binomial;
pub mod distribution;
pub mod fate;
pub mod impairment;
pub mod probe;
pub mod ratio;
pub mod route;
pub mod state;

pub use ability::{Abilities, Ability, Obstacle, Unsupported};
pub use fate::PacketCounts;
pub use impairment::{
    Chance, Impairment, Jitter, JitterDistribution, Loss, Mode, Reorder, UNLIMITED_BITS_PER_SECOND,
};
pub use ratio::Ratio;
pub use route::{OutgoingLinks, Prefix, Route};
pub use state::{ActiveBackend, Backend, LinkState, Scheduling};
