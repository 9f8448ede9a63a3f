//! What programs that export metrics share. The families themselves are described in
//! [`perfrun_contract::metrics`].

#![warn(missing_docs)]

mod check;
mod family;
mod page;
mod runs;
mod scrapes;

pub use check::undescribed;
pub use family::{NO_LABELS, encode_samples, register};
pub use page::{CONTENT_TYPE, encode, merge};
pub use runs::{RunView, encode_runs, page_of_runs};
pub use scrapes::{Scrapes, WAIT_MAX};
