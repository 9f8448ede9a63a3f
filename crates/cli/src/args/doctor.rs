//! The options of `perfrun doctor`.

use clap::Args;

const DOCTOR_NOTES: &str = "\
Marks of the findings:
  ok  as it should be
  !   works, and numbers are less certain
  x   does not work here

Below each finding is what mends it. perfrun changes nothing itself.";

/// Options of `perfrun doctor`.
#[derive(Args, Debug)]
#[command(after_help = DOCTOR_NOTES)]
pub struct Doctor {
    /// Print JSON, all findings on one line.
    #[arg(long)]
    pub json: bool,
}
