//! What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere. All of it on standard error, so
//! that standard output is only the result.

mod screen;

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use perfrun_conductor::{Event, Progress};
use perfrun_contract::{
    plan::Plan,
    record::{Metric, TrialRecord},
};

pub use self::screen::Screen;

/// Where progress of a local run goes.
pub struct Ui {
    screen: Screen,
    ended: Mutex<Ended>,
    trials: usize,
    /// Names of the plan's cells.
    cells: Vec<String>,
}

/// Trials that ended.
#[derive(Default)]
struct Ended {
    earlier: usize,
    /// Those of this session; one that was tried again is here once.
    now: HashSet<String>,
}

impl Ui {
    /// For a run of this plan.
    pub fn new(quiet: bool, plan: &Plan) -> Self {
        let trials = plan.trials.len();
        let cells = plan.cells.iter().map(|cell| cell.id.clone()).collect();
        Self {
            screen: Screen::new(quiet, trials as u64),
            ended: Mutex::default(),
            trials,
            cells,
        }
    }

    /// Says something that stays, warnings included.
    pub fn say(&self, text: &str) {
        self.screen.say(text);
    }

    /// Says something that only matters to who watches.
    pub fn mention(&self, text: &str) {
        self.screen.mention(text);
    }

    fn start(&self, earlier: usize) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).earlier = earlier;
        self.screen.start(earlier as u64);
    }

    /// Counts a trial; returns how many have ended.
    fn count(&self, record: &TrialRecord) -> usize {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.now.insert(record.trial.id.clone());
        let count = ended.earlier + ended.now.len();
        self.screen.advance(count as u64);
        count
    }

    /// What the bar says is going on.
    fn show(&self, cell: usize, detail: &str) {
        self.screen.show(format!("{} {detail}", self.cell(cell)));
    }

    fn cell(&self, index: usize) -> &str {
        self.cells.get(index).map_or("", String::as_str)
    }
}

impl Progress for Ui {
    fn on(&self, event: Event<'_>) {
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
                let progress = format!("[{}/{}]", self.count(record), self.trials);
                let cell = self.cell(record.trial.cell);
                let warmup = if record.trial.warmup { " (warm-up)" } else { "" };
                if let Some(failure) = &record.failure {
                    let at = failure
                        .node
                        .as_deref()
                        .map(|node| format!(" at {node}"))
                        .unwrap_or_default();
                    self.say(&format!(
                        "{progress} {cell}{warmup} failed{at}: {} ({})",
                        failure.message, failure.reason
                    ));
                } else if self.screen.is_lines() {
                    let headline = headline(record);
                    self.say(&format!("{progress} {cell}{warmup}{headline}"));
                }
            }
            Event::LinksChanging { network } => self
                .screen
                .show(format!("setting and measuring links: {network}")),
            Event::LinksChecked { check } => {
                if self.screen.is_lines() || !check.is_effective() {
                    self.say(&perfrun_report::links_line(check));
                }
            }
            Event::NodeReplaced { name } => self.say(&format!("{name} was started again")),
        }
    }
}

/// The first of the numbers that a person looks for.
fn headline(record: &TrialRecord) -> String {
    headlines(record)
        .first()
        .map(|(metric, value)| format!(": {}", perfrun_report::value(metric.unit(), *value)))
        .unwrap_or_default()
}

/// The numbers that a person looks for: goodput both ways, or the one that stands for the workload.
pub fn headlines(record: &TrialRecord) -> Vec<(Metric, f64)> {
    let is_goodput = |metric| matches!(metric, Metric::UploadGoodput | Metric::DownloadGoodput);
    let mut found = Metric::HEADLINES
        .into_iter()
        .filter_map(|metric| Some((metric, *record.metrics.get(&metric)?)))
        .peekable();
    match found.peek() {
        Some((metric, _)) if is_goodput(*metric) => found.filter(|(metric, _)| is_goodput(*metric)).collect(),
        _ => found.take(1).collect(),
    }
}
