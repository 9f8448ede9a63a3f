//! What programs that export metrics share. The families themselves are described in [`perfrun_api::metrics`].

mod check;
mod family;
mod page;
mod runs;
mod scrapes;

pub use check::undescribed;
pub use family::{Described, NO_LABELS, encode_samples};
pub use page::{CONTENT_TYPE, encode, merge};
pub use runs::{LOCAL, RunView, encode_runs, page_of_runs};
pub use scrapes::{LONGEST_WAIT, Scrapes};
