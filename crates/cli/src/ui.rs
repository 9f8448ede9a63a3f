//! Progress of a local run: a bar on a terminal, plain lines elsewhere. All of it goes to standard error, so
//! that standard output contains only the results.

mod screen;

use std::collections::HashSet;

use parking_lot::Mutex;
use perfrun_conductor::Event;
use perfrun_contract::{
    compare::NotNeeded,
    plan::Plan,
    record::TrialRecord,
    units::{self, Unit},
};

pub use self::screen::Screen;

/// Shows the progress of a local run.
pub struct Ui {
    screen: Screen,
    ended: Mutex<Ended>,
    /// Names of the plan's cells.
    cells: Vec<String>,
}

/// Trials that have ended.
struct Ended {
    /// The number of all trials, without those that are not needed.
    all: usize,
    /// The number of trials that ended in earlier sessions.
    earlier: usize,
    /// The trials that ended in this session. A retried trial counts once.
    now: HashSet<String>,
}

impl Ui {
    /// Progress of a run of this plan.
    pub fn new(quiet: bool, plan: &Plan) -> Self {
        let trials = plan.trials.len();
        let cells = plan.cells.iter().map(|cell| cell.id.clone()).collect();
        Self {
            screen: Screen::new(quiet, trials as u64),
            ended: Mutex::new(Ended {
                all: trials,
                earlier: 0,
                now: HashSet::new(),
            }),
            cells,
        }
    }

    /// Prints a line, even with --quiet.
    pub fn print_line(&self, text: &str) {
        self.screen.print_line(text);
    }

    /// Prints a line, unless --quiet is set.
    pub fn print_unless_quiet(&self, text: &str) {
        self.screen.print_unless_quiet(text);
    }

    fn start(&self, earlier: usize) {
        self.ended.lock().earlier = earlier;
        self.screen.start(earlier as u64);
    }

    /// Counts a trial. Returns the number of trials that have ended, and of all.
    fn count(&self, record: &TrialRecord) -> (usize, usize) {
        let mut ended = self.ended.lock();
        ended.now.insert(record.trial.id.clone());
        let count = ended.earlier + ended.now.len();
        self.screen.advance(count as u64);
        (count, ended.all)
    }

    /// Leaves out trials that are not needed.
    fn leave_out(&self, not_needed: NotNeeded) {
        let needed = not_needed.of_trials.saturating_sub(not_needed.trials);
        self.ended.lock().all = needed as usize;
        self.screen.expect(needed.into());
        self.print_unless_quiet(&not_needed.to_string());
    }

    /// Shows the current activity beside the bar.
    fn show(&self, cell: usize, detail: &str) {
        self.screen.show(format!("{} {detail}", self.cell(cell)));
    }

    fn cell(&self, index: usize) -> &str {
        self.cells.get(index).map_or("", String::as_str)
    }

    /// Shows what happened.
    pub fn on(&self, event: Event<'_>) {
        match event {
            Event::RunStarted { ended, .. } => self.start(ended),
            Event::TrialStarted { trial, attempt, .. } => {
                let what = if trial.warmup {
                    "warm-up".to_owned()
                } else {
                    format!("#{}", trial.iteration + 1)
                };
                let again = if attempt > 0 { ", again" } else { "" };
                self.show(trial.cell, &format!("{what}{again}"));
            }
            Event::TrialProgress { trial, fraction, .. } => {
                if let Some(fraction) = fraction {
                    self.show(trial.cell, &format!("{:.0} %", fraction * 100.0));
                }
            }
            Event::TrialEnded { record } => {
                let (ended, all) = self.count(record);
                let progress = format!("[{ended}/{all}]");
                let cell = self.cell(record.trial.cell);
                let warmup = match (record.trial.warmup, record.attempt) {
                    (true, _) => " (warm-up)",
                    (false, 0) => "",
                    (false, _) => " (measured again)",
                };
                if let Some(failure) = &record.failure {
                    let at = failure
                        .node
                        .as_deref()
                        .map(|node| format!(" at {node}"))
                        .unwrap_or_default();
                    self.print_line(&format!(
                        "{progress} {cell}{warmup} failed{at}: {} ({})",
                        failure.message_of_node(),
                        failure.reason
                    ));
                } else if self.screen.is_lines() {
                    let headline = headline(record);
                    self.print_line(&format!("{progress} {cell}{warmup}{headline}"));
                }
            }
            Event::LinksChanging { network } => self
                .screen
                .show(format!("setting and measuring links: {network}")),
            Event::LinksChecked { check } => {
                if self.screen.is_lines() || !check.is_effective() {
                    self.print_line(&perfrun_report::links_line(check));
                }
            }
            Event::NotNeeded { not_needed } => self.leave_out(not_needed),
            Event::NodeReplaced { name } => self.print_line(&format!("{name} was restarted")),
        }
    }
}

/// The first of the headlines, formatted for people. Of a time also the metric, because a trial has several
/// times.
fn headline(record: &TrialRecord) -> String {
    let Some((metric, value)) = record.headlines().first().copied() else {
        return String::new();
    };
    let value = units::text(metric.unit(), value);
    match metric.unit() {
        Unit::Seconds => format!(": {value} ({metric})"),
        _ => format!(": {value}"),
    }
}
