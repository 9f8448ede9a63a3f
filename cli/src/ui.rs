//! What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere. All of it on standard error, so
//! that standard output is only the result.

#![allow(clippy::print_stderr, reason = "telling people is what this module is for")]

use std::{
    io::{IsTerminal, stderr},
    sync::Mutex,
};

use indicatif::{ProgressBar, ProgressStyle};
use perfrun_api::{
    plan::Plan,
    results::{Metric, TrialRecord},
};
use perfrun_conductor::{Event, Progress};

/// Where progress goes.
pub struct Ui {
    kind: Kind,
    ended: Mutex<usize>,
    trials: usize,
    /// Names of the plan's cells.
    cells: Vec<String>,
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
            (false, true) => {
                let template = "{bar:30} {pos}/{len} trials  {elapsed} of about {duration}  {wide_msg}";
                let style = ProgressStyle::with_template(template).expect("the template is well-formed");
                Kind::Bar(ProgressBar::new(trials as u64).with_style(style))
            }
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
        match &self.kind {
            Kind::Bar(bar) => bar.suspend(|| eprintln!("{text}")),
            Kind::Quiet | Kind::Lines => eprintln!("{text}"),
        }
    }

    /// Says something that only matters to who watches.
    pub fn mention(&self, text: &str) {
        if !matches!(self.kind, Kind::Quiet) {
            self.say(text);
        }
    }

    fn advance(&self, by: usize) -> usize {
        let mut ended = self
            .ended
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *ended += by;
        if let Kind::Bar(bar) = &self.kind {
            bar.set_position(*ended as u64);
        }
        *ended
    }
}

impl Progress for Ui {
    fn on(&self, event: Event<'_>) {
        match event {
            Event::RunStarted { ended, .. } => {
                self.advance(ended);
            }
            Event::TrialStarted { trial, cell, .. } => {
                if let Kind::Bar(bar) = &self.kind {
                    let what = if trial.warmup {
                        "warm-up".to_owned()
                    } else {
                        format!("#{}", trial.iteration + 1)
                    };
                    bar.set_message(format!("{} {what}", cell.id));
                }
            }
            Event::TrialProgress { trial, fraction, .. } => {
                if let (Kind::Bar(bar), Some(fraction)) = (&self.kind, fraction) {
                    bar.set_message(format!("{} {:.0} %", trial.id, fraction * 100.0));
                }
            }
            Event::TrialEnded { record } => {
                let ended = self.advance(1);
                let cell = self.cells.get(record.trial.cell).map_or("", String::as_str);
                if let Some(failure) = &record.failure {
                    let at = failure
                        .node
                        .as_deref()
                        .map(|node| format!(" at {node}"))
                        .unwrap_or_default();
                    self.say(&format!(
                        "[{ended}/{}] {} failed{at}: {} ({})",
                        self.trials, cell, failure.message, failure.reason
                    ));
                } else if let Kind::Lines = self.kind {
                    let warmup = if record.trial.warmup { " (warm-up)" } else { "" };
                    let headline = headline(record);
                    self.say(&format!("[{ended}/{}] {cell}{warmup}{headline}", self.trials));
                }
            }
            Event::NodeReplaced { name } => self.say(&format!("{name} was lost, and started again")),
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
