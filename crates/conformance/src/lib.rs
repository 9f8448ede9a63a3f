//! Whether a program may take part in runs: a suite of checks that drives it through the node contract
//! (`perfrun_contract::node`) as a conductor and a hostile caller would, and makes it exchange bytes with a
//! reference node and with itself.
//!
//! | module | subject |
//! |---|---|
//! | [`nodes`] | the nodes that checks talk to, wherever they run |
//! | [`local`] | nodes as processes of this machine |
//! | `call` | single HTTP calls, also wrong ones |
//! | `trial` | a trial between two nodes |
//! | `check` | one check, and why it did not pass |
//! | `checks` | the checks, a file for each group |
//! | [`report`] | the outcome as text |

#![warn(missing_docs)]

mod call;
mod check;
mod checks;
pub mod local;
pub mod nodes;
pub mod report;
mod trial;

use std::time::{Duration, Instant};

use tokio::time::timeout;

pub use self::check::{Checked, NotPassed};
use self::{
    check::Check,
    nodes::{Error, TestNodes},
};

/// How long one check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes all checks with a selected name, one after the other, and hands each to `checked`.
///
/// # Errors
///
/// If the node or the reference cannot be started, or does not answer its first call.
pub async fn run(
    mut nodes: TestNodes,
    selected: impl Fn(&str) -> bool,
    mut checked: impl FnMut(&Checked),
) -> Result<Vec<Checked>, Error> {
    let info = nodes.start_all().await?;
    let all = checks::all(&info)
        .into_iter()
        .filter(|check| selected(&check.name));
    let mut done = vec![];
    for Check { name, demand, run } in all {
        let begun = Instant::now();
        let outcome = match timeout(CHECK_TIMEOUT, run(&mut nodes)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(NotPassed::Failed(format!(
                "the check did not end within {CHECK_TIMEOUT:?}"
            ))),
        };
        let one = Checked {
            name,
            demand,
            outcome,
            remarks: nodes.take_remarks(),
            took: begun.elapsed(),
        };
        checked(&one);
        // What a check left behind must not fail the next one.
        nodes.clean().await;
        done.push(one);
    }
    Ok(done)
}
