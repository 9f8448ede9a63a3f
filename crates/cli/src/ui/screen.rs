//! A bar on a terminal, plain lines elsewhere, nothing if asked; whatever it is that goes on.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// The bar's clock goes on while a long trial does.
const TICK: Duration = Duration::from_millis(500);

/// Before the first trial ended, nobody knows how long the others will take.
const AT_FIRST: &str = "{bar:20} {pos}/{len} trials, {elapsed}  {wide_msg}";
const THEN: &str = "{bar:20} {pos}/{len} trials, {elapsed}, about {eta} left  {wide_msg}";

/// Where progress goes.
pub struct Screen {
    kind: Kind,
    /// Trials that had ended when counting began.
    earlier: AtomicU64,
}

enum Kind {
    Quiet,
    Lines,
    Bar(ProgressBar),
}

impl Screen {
    /// For so many trials.
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

    /// Whether every trial is to be told in a line of its own.
    pub fn is_lines(&self) -> bool {
        matches!(self.kind, Kind::Lines)
    }

    /// Shows the bar, if there is one, with the trials that ended before.
    pub fn start(&self, earlier: u64) {
        self.earlier.store(earlier, Ordering::Relaxed);
        if let Kind::Bar(bar) = &self.kind {
            bar.set_position(earlier);
            bar.reset_elapsed();
            bar.reset_eta();
            bar.enable_steady_tick(TICK);
        }
    }

    /// So many trials have ended in all.
    pub fn advance(&self, ended: u64) {
        if let Kind::Bar(bar) = &self.kind {
            if ended > self.earlier.load(Ordering::Relaxed) {
                bar.set_style(style(THEN));
            }
            bar.set_position(ended);
        }
    }

    /// What the bar says is going on.
    pub fn show(&self, message: String) {
        if let Kind::Bar(bar) = &self.kind {
            bar.set_message(message);
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
