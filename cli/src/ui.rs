//! What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere. All of it on standard error, so
//! that standard output is only the result.

use std::{
    collections::HashSet,
    io::{IsTerminal, Write, stderr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use perfrun_api::{
    plan::Plan,
    results::{Metric, TrialRecord},
};
use perfrun_conductor::{Event, Progress};

/// The bar's clock goes on while a long trial does.
const TICK: Duration = Duration::from_millis(500);

/// Before the first trial ended, nobody knows how long the others will take.
const AT_FIRST: &str = "{bar:20} {pos}/{len} trials, {elapsed}  {wide_msg}";
const THEN: &str = "{bar:20} {pos}/{len} trials, {elapsed}, about {eta} left  {wide_msg}";

/// Where progress goes.
pub struct Ui {
    kind: Kind,
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

enum Kind {
    Quiet,
    Lines,
    Bar(ProgressBar),
}

impl Ui {
    /// For a run of this plan.
    pub fn new(quiet: bool, plan: &Plan) -> Self {
        let trials = plan.trials.len();
        let kind = match (quiet, stderr().is_terminal()) {
            (true, _) => Kind::Quiet,
            (false, false) => Kind::Lines,
            (false, true) => Kind::Bar(ProgressBar::new(trials as u64).with_style(style(AT_FIRST))),
        };
        let cells = plan.cells.iter().map(|cell| cell.id.clone()).collect();
        Self {
            kind,
            ended: Mutex::default(),
            trials,
            cells,
        }
    }

    /// Says something that stays, warnings included.
    pub fn say(&self, text: &str) {
        // Nobody is left to tell if standard error is closed, and the run goes on.
        let say = || drop(writeln!(stderr(), "{text}"));
        match &self.kind {
            Kind::Bar(bar) => bar.suspend(say),
            Kind::Quiet | Kind::Lines => say(),
        }
    }

    /// Says something that only matters to who watches.
    pub fn mention(&self, text: &str) {
        if !matches!(self.kind, Kind::Quiet) {
            self.say(text);
        }
    }

    fn start(&self, earlier: usize) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).earlier = earlier;
        if let Kind::Bar(bar) = &self.kind {
            bar.set_position(earlier as u64);
            bar.reset_elapsed();
            bar.reset_eta();
            bar.enable_steady_tick(TICK);
        }
    }

    /// Counts a trial; returns how many have ended.
    fn count(&self, record: &TrialRecord) -> usize {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.now.insert(record.trial.id.clone());
        let count = ended.earlier + ended.now.len();
        if let Kind::Bar(bar) = &self.kind {
            if ended.now.len() == 1 {
                bar.set_style(style(THEN));
            }
            bar.set_position(count as u64);
        }
        count
    }

    /// What the bar says is going on.
    fn show(&self, cell: usize, detail: &str) {
        if let Kind::Bar(bar) = &self.kind {
            bar.set_message(format!("{} {detail}", self.cell(cell)));
        }
    }

    fn cell(&self, index: usize) -> &str {
        self.cells.get(index).map_or("", String::as_str)
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
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
                } else if let Kind::Lines = self.kind {
                    let headline = headline(record);
                    self.say(&format!("{progress} {cell}{warmup}{headline}"));
                }
            }
            Event::NodeReplaced { name } => self.say(&format!("{name} was started again")),
        }
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

/// The number that a person looks for first.
fn headline(record: &TrialRecord) -> String {
    const FIRST: [Metric; 7] = [
        Metric::UploadGoodput,
        Metric::DownloadGoodput,
        Metric::TotalSeconds,
        Metric::OpenMean,
        Metric::HandshakeFirstByteP50,
        Metric::RoundTripP50,
        Metric::Failures,
    ];
    FIRST
        .iter()
        .find_map(|metric| Some((metric, record.metrics.get(metric)?)))
        .map(|(metric, value)| format!(": {}", perfrun_report::value(metric.unit(), *value)))
        .unwrap_or_default()
}
