//! `perfrun doctor`: what this machine can do for `perfrun run`, and what would spoil numbers.
//!
//! | module | subject |
//! |---|---|
//! | `facts` | what the checks look at: the only part that reads files and tries things |
//! | `finding` | what a check finds |
//! | `checks` | all checks, and what a run cannot do without each |
//! | `can_do`, `spoils` | the checks: functions of the facts |
//! | `printed` | findings as text and as JSON |

mod can_do;
mod checks;
mod facts;
mod finding;
mod printed;
mod spoils;

use perfrun_api::exit_status::{INCOMPLETE, SUCCESS};
use perfrun_local::privilege::{self, Privilege};

use self::{checks::Report, facts::Facts};
use crate::{
    args::{self, program},
    output::write_to_stdout,
};

/// Looks at this machine, and prints what it finds. `privilege` is what this process has acquired for making
/// network namespaces. Returns the exit status.
pub async fn doctor(
    args: &args::Doctor,
    privilege: Result<Privilege, privilege::Error>,
) -> anyhow::Result<u8> {
    let report = Report::of(&Facts::read(privilege).await);
    let text = match args.json {
        true => printed::json(&report)?,
        false => printed::text(&report),
    };
    // As the user types it, who may call perfrun as a plugin of kubectl.
    write_to_stdout(&text.replace("perfrun run", &format!("{} run", program())))?;
    Ok(match report.works() {
        true => SUCCESS,
        false => INCOMPLETE,
    })
}
