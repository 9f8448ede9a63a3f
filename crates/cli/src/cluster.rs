//! Commands that talk to a cluster. They give documents to the operator, follow the status of runs, and fetch
//! results. Nothing here decides anything about a run.
//!
//! | module | subject |
//! |---|---|
//! | `access` | which cluster, and calls to it |
//! | `error` | why a call fails, and what the user can do |
//! | `find` | one run by its name, or the most similar name |
//! | `apply` | creating and changing runs |
//! | `follow` | watching a run to its end, through outages of the API server |
//! | `status` | the state of a run, and what is new in it: pure |
//! | `end` | how a run ended, and the exit status: pure |
//! | `fetch` | the complete results of a run |
//! | `reader` | results in an object store or on a volume, through a pod that this program makes |
//! | `conformance` | a node's image, checked in pods that this program makes |
//! | `run`, `list`, `get`, `cancel`, `logs` | one command each |

mod access;
mod apply;
mod cancel;
mod conformance;
mod end;
mod error;
mod fetch;
mod find;
mod follow;
mod get;
mod list;
mod logs;
mod reader;
mod run;
mod status;

pub use self::{
    cancel::cancel,
    conformance::conformance,
    get::get_results,
    list::list,
    logs::logs,
    run::{run, watch},
};
