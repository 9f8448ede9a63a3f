//! A list of checks that all run, each announced and timed, and the summary of them.

use std::{
    fmt::Write,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::shell;

pub enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Outcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(reason) | Self::Skipped(reason) => reason,
        }
    }
}

/// Passes when the command exits with 0; otherwise the reason names it and what to do.
pub fn check(command: &mut Command, advice: &str) -> Result<Outcome> {
    let status = shell::status(command)?;
    Ok(match status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!("`{}`: {status}; {advice}", shell::line(command))),
    })
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

#[derive(Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// Runs one step and says whether it passed. An error is a failure of this step, not of the rest.
    pub fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("\n==> {name}");
        let start = Instant::now();
        let outcome = step().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let took = start.elapsed();
        println!("==> {name}: {} in {}", outcome.label(), human(took));
        let passed = matches!(outcome, Outcome::Passed);
        self.0.push(Step { name, outcome, took });
        passed
    }

    pub fn skip(&mut self, name: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        self.run(name, || Ok(Outcome::Skipped(reason)));
    }

    pub fn table(&self) -> String {
        let width = self.0.iter().map(|step| step.name.len()).max().unwrap_or(0);
        self.0
            .iter()
            .fold(String::new(), |mut table, Step { name, outcome, took }| {
                // A reason may have several lines (a diff); they stay in their column.
                let reason = outcome
                    .reason()
                    .trim_end()
                    .replace('\n', &format!("\n{:1$}", "", width + 26));
                let row = format!(
                    "  {:<7}  {name:<width$}  {:>12}  {reason}",
                    outcome.label(),
                    human(*took)
                );
                writeln!(table, "{}", row.trim_end()).expect("writing to a string cannot fail");
                table
            })
    }

    /// The line that CI reads.
    pub fn counts(&self) -> String {
        let count = |label| self.0.iter().filter(|step| step.outcome.label() == label).count();
        format!(
            "{} passed, {} failed, {} skipped",
            count("ok"),
            count("failed"),
            count("skipped")
        )
    }

    pub fn exit_code(&self) -> ExitCode {
        match self
            .0
            .iter()
            .any(|step| matches!(step.outcome, Outcome::Failed(_)))
        {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        }
    }
}

pub fn human(took: Duration) -> String {
    match took.as_secs() {
        0..60 => format!("{:.1} s", took.as_secs_f64()),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::{process::ExitCode, time::Duration};

    use anyhow::bail;

    use super::{Outcome, Step, Steps, human};

    #[test]
    fn later_steps_run_after_a_failure() {
        let mut steps = Steps::default();
        assert!(!steps.run("first", || bail!("no such program")));
        assert!(steps.run("second", || Ok(Outcome::Passed)));
        steps.skip("third", "no network");
        assert_eq!(steps.counts(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(steps.exit_code(), ExitCode::FAILURE);
    }

    #[test]
    fn a_skipped_step_is_no_failure() {
        let mut steps = Steps::default();
        steps.run("first", || Ok(Outcome::Passed));
        steps.skip("second", "no network");
        assert_eq!(steps.exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn the_table_lines_up_reasons_and_leaves_no_space_at_the_end() {
        let step = |name, outcome| Step {
            name,
            outcome,
            took: Duration::from_millis(1_250),
        };
        let steps = Steps(vec![
            step("format", Outcome::Passed),
            step(
                "generated files",
                Outcome::Failed("crds/x.yaml is stale\n-old\n+new".into()),
            ),
        ]);
        let expected = "  ok       format                  1.2 s
  failed   generated files         1.2 s  crds/x.yaml is stale
                                         -old
                                         +new
";
        assert_eq!(steps.table(), expected);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(human(Duration::from_millis(340)), "0.3 s");
        assert_eq!(human(Duration::from_secs(605)), "10 min 05 s");
    }
}
