//! What a report needs of a run.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    compare::Judged,
    plan::{Order, Plan},
    profile::Profile,
    record::TrialRecord,
    run::{Environment, RunState},
    summary::SummaryRow,
    tally::{Conclusion, Tally},
};

/// The results of a run, without the document that it was made from.
#[derive(Clone, Debug)]
pub struct ReportedRun<'a> {
    /// Name of the run.
    pub name: &'a str,
    /// When it started.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How long it did not run in the meantime, in seconds. `None` unless it was resumed.
    pub paused_seconds: Option<f64>,
    /// Whether it ran to its end.
    pub state: RunState,
    /// Which trials completed and failed.
    pub tally: Tally,
    /// How it ended.
    pub conclusion: Conclusion,
    /// The numbers of nodes and iterations.
    pub settings: Settings,
    /// What its nodes were started with.
    pub inputs: Inputs<'a>,
    /// The plan.
    pub plan: &'a Plan,
    /// What it ran on.
    pub environment: &'a Environment,
    /// Every attempt of every trial, in running order.
    pub trials: &'a [TrialRecord],
    /// Statistics of the measured trials.
    pub summary: &'a [SummaryRow],
    /// What was found, if the run compares or expects something.
    pub judged: Option<&'a Judged>,
    /// Whether the variants that it compares are one program with the same settings, so that each difference
    /// is noise.
    pub compares_same_program: bool,
    /// Profiles of its nodes; empty unless `perfrun run --profile` took some.
    pub profiles: &'a [Profile],
}

/// What nodes were started with, besides their programs and what the plan says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs<'a> {
    /// Environment variables of variants of stacks, by the name of the variant.
    pub env: BTreeMap<&'a str, &'a BTreeMap<String, String>>,
    /// First arguments of the programs of variants, likewise.
    pub arguments: BTreeMap<&'a str, &'a [String]>,
    /// Settings of pods that affect what is measured, in JSON, by the part of the document that has them.
    /// Empty without a cluster.
    pub pods: BTreeMap<&'static str, String>,
}

/// The numbers of nodes and iterations that a run was configured with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Server nodes.
    pub servers: u32,
    /// Client nodes.
    pub clients: u32,
    /// Peers in each client node.
    pub peers_per_client: u32,
    /// Measured iterations of each cell; the smallest number of them, if there is a largest.
    pub iterations: u32,
    /// The largest number of them, if interim checks of the run decide how many there are.
    pub max_iterations: Option<u32>,
    /// Iterations of each cell before the measured ones.
    pub warmup: u32,
    /// Running order of the trials.
    pub order: Order,
}

impl Settings {
    /// The measured iterations of each cell, such as `20`, or `10 to 40` if interim checks decide.
    pub fn measured(&self) -> String {
        match self.max_iterations {
            Some(most) if most > self.iterations => format!("{} to {most}", self.iterations),
            _ => self.iterations.to_string(),
        }
    }
}
