//! Commands that talk to a cluster. They hand documents to the operator, follow what it says in the status, and fetch
//! what it kept; nothing here decides anything about a run.
//!
//! | module | subject |
//! |---|---|
//! | `access` | which cluster, and calls to it |
//! | `error` | what can go wrong with a call, and what to do about it |
//! | `find` | one run, or which one was meant |
//! | `apply` | handing documents over |
//! | `follow` | watching a run to its end, through outages of the API server |
//! | `stage` | what followers are told: pure |
//! | `end` | what became of a run, and the exit status: pure |
//! | `fetch` | the complete results of a run |
//! | `run`, `list`, `get`, `cancel`, `logs` | a command each |

mod access;
mod age;
mod apply;
mod cancel;
mod end;
mod error;
mod fetch;
mod find;
mod follow;
mod get;
mod list;
mod logs;
mod run;
mod stage;

pub use self::{
    cancel::cancel,
    get::get_results,
    list::list,
    logs::logs,
    run::{run, watch},
};
