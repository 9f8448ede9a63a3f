//! Progress of trials: a bar on a terminal, plain lines elsewhere, or neither.

use std::{
    io::{IsTerminal, stderr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use perfrun_contract::text::plain;

use crate::output::write_line_to_stderr;

/// How often the clock of the bar advances during a long trial.
const TICK: Duration = Duration::from_millis(500);

/// Before the first trial has ended, there is no estimate for the others.
const AT_FIRST: &str = "{bar:20} {pos}/{len} trials, {elapsed}  {wide_msg}";
const THEN: &str = "{bar:20} {pos}/{len} trials, {elapsed}, about {eta} left  {wide_msg}";

/// Where progress is shown.
pub struct Screen {
    kind: Kind,
    /// The number of trials that had ended when counting began.
    earlier: AtomicU64,
}

enum Kind {
    Quiet,
    Lines,
    Bar(ProgressBar),
}

impl Screen {
    /// Progress of this number of trials.
    pub fn new(quiet: bool, trials: u64) -> Self {
        let kind = match (quiet, stderr().is_terminal()) {
            (true, _) => Kind::Quiet,
            (false, false) => Kind::Lines,
            (false, true) => Kind::Bar(ProgressBar::new(trials).with_style(style(AT_FIRST))),
        };
        Self {
            kind,
            earlier: AtomicU64::new(0),
        }
    }

    /// Prints a line, even with --quiet.
    pub fn print_line(&self, text: &str) {
        let print = || write_line_to_stderr(text);
        match &self.kind {
            Kind::Bar(bar) => bar.suspend(print),
            Kind::Quiet | Kind::Lines => print(),
        }
    }

    /// Prints a line, unless --quiet is set.
    pub fn print_unless_quiet(&self, text: &str) {
        if !matches!(self.kind, Kind::Quiet) {
            self.print_line(text);
        }
    }

    /// Whether every trial gets its own line.
    pub fn is_lines(&self) -> bool {
        matches!(self.kind, Kind::Lines)
    }

    /// Shows the bar on a terminal, with the number of trials that ended in earlier sessions.
    pub fn start(&self, earlier: u64) {
        self.earlier.store(earlier, Ordering::Relaxed);
        if let Kind::Bar(bar) = &self.kind {
            bar.set_position(earlier);
            bar.reset_elapsed();
            bar.reset_eta();
            bar.enable_steady_tick(TICK);
        }
    }

    /// Sets the number of all trials.
    pub fn expect(&self, trials: u64) {
        if let Kind::Bar(bar) = &self.kind {
            bar.set_length(trials);
        }
    }

    /// Sets the number of trials that have ended.
    pub fn advance(&self, ended: u64) {
        if let Kind::Bar(bar) = &self.kind {
            if ended > self.earlier.load(Ordering::Relaxed) {
                bar.set_style(style(THEN));
            }
            bar.set_position(ended);
        }
    }

    /// Shows the current activity beside the bar.
    pub fn show(&self, message: String) {
        if let Kind::Bar(bar) = &self.kind {
            bar.set_message(plain(&message));
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}
