//! The reconciliation of a run, step by step, and what reconciliations share.
//!
//! | module | subject |
//! |---|---|
//! | `controller` | the driver of a reconciliation |
//! | `context` | what reconciliations share |
//! | `observe` | step 1: what is known of a run, its pods, its turn and its conductor |
//! | `decide` | step 2: what to do now: pure |
//! | `apply` | step 3: creates and deletes the objects of a run, and commands its conductor |
//! | `stage`, `status`, `conditions` | where a run stands, and its status and events: pure |
//! | `refusal` | what an error of the API server means for a run: pure |
//! | `plans` | plans of runs, each made once |
//! | `times`, `starts` | since when runs have been where they are, and how often pods have started |
//! | `turns`, `turn`, `turn_states` | which runs may be active together, and what the watches do not show yet |
//! | `leftovers` | pods that runs have left behind, for which exclusive runs wait |
//! | `verdict` | what a run found: pure |
//! | `unreadable` | reports a PerfRun that cannot be read |

pub(crate) mod apply;
pub(crate) mod conditions;
pub(crate) mod context;
pub(crate) mod controller;
pub(crate) mod decide;
pub(crate) mod leftovers;
pub(crate) mod observe;
pub(crate) mod plans;
pub(crate) mod refusal;
pub(crate) mod stage;
pub(crate) mod starts;
pub(crate) mod status;
pub(crate) mod times;
pub(crate) mod turn;
pub(crate) mod turn_states;
pub(crate) mod turns;
pub(crate) mod unreadable;
pub(crate) mod verdict;
