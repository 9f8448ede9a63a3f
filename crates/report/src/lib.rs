//! Tables and plots of results. Pure functions: values in, text out.
//!
//! [`markdown`], [`html()`] and [`terminal`] draw the same tables, which `tables` builds without knowing how
//! they are drawn; [`markdown_sections`] has those of Markdown one by one. [`plots`], [`summary_csv`],
//! [`samples_csv`] and [`history_lines`] are for pictures and for other programs. [`select_cells`] restricts
//! results to some cells before they are drawn. [`runs`] compares several runs, and [`differences`] decides
//! whether they may be compared. Nothing here reads a file, a clock or the environment, and nothing panics on
//! results that are empty or end early: that is when people need to see what was measured.

#![warn(missing_docs)]

mod checks;
mod csv;
pub mod differences;
mod history;
mod html;
mod markdown;
mod order;
mod path;
mod plot;
mod published;
pub mod runs;
mod samples;
mod selection;
mod summary;
mod table;
mod tables;
mod terminal;

use perfrun_contract::units;

pub use checks::{Check, checks};
pub use history::{history_header, history_lines};
pub use html::html;
pub use markdown::{MarkdownSections, markdown, markdown_sections};
pub use plot::plots;
pub use published::echo_csv;
pub use samples::samples_csv;
pub use selection::{ShownResults, select_cells};
pub use summary::summary_csv;
pub use tables::{builds, links_line};
pub use terminal::{TerminalOptions, terminal};
