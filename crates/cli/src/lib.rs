//! The parts of the `perfrun` command.
//!
//! | module | subject |
//! |---|---|
//! | [`args`], [`mod@output`], `exit_status`, `signals` | the command line, its two streams, and how it ends |
//! | [`new`], [`plan`], [`validate`], [`run`], [`report`], [`compare`], [`history`], [`link`], [`conformance`], [`describe`], [`doctor`] | a command each |
//! | [`completions`], [`man`] | the command line as shells and `man` read it |
//! | [`cluster`] | the commands that talk to a cluster |
//! | `documents`, `first_documents`, [`results_folder`], `executable` | the files that commands read and write |
//! | [`ui`], [`page`] | the progress of a run on a terminal, and in a browser |
//! | `printing`, `words`, [`ci`], `junit` | results and plans as text, also for systems for continuous integration |
//! | [`profile`], `load` | profiles of nodes, and how busy this machine is |

pub mod args;
pub mod ci;
#[cfg_attr(not(feature = "cluster"), path = "without_cluster.rs")]
pub mod cluster;
pub mod compare;
pub mod completions;
pub mod conformance;
pub mod describe;
pub mod doctor;
mod documents;
mod executable;
mod exit_status;
mod first_documents;
pub mod history;
mod junit;
pub mod link;
mod load;
pub mod man;
pub mod new;
pub mod output;
pub mod page;
pub mod plan;
mod printing;
pub mod profile;
pub mod report;
pub mod results_folder;
pub mod run;
mod signals;
pub mod ui;
pub mod validate;
mod words;
