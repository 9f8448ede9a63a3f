//! Results as a run leaves them: planned from a document, measured by a model instead of sockets.

mod measured;

use std::collections::BTreeMap;

use perfrun_api::{
    planning::draft,
    results::{Results, SCHEMA_VERSION},
    spec::PerfRunSpec,
};
use perfrun_contract::{
    measure,
    metric::Metric,
    node::{CONTRACT, Info, Reason},
    plan::{Plan, Trial},
    record::{Flag, TrialFailure, TrialRecord},
    run::{Environment, Isolation, RunState},
};
use perfrun_judge::{judged, summarize};

use self::measured::{measured, noise};
use crate::records::{completed, info};

/// Makes results from the `spec` of a document.
pub struct ResultsBuilder {
    name: String,
    spec: String,
    ended_after: Option<usize>,
    isolation: Isolation,
    profile: &'static str,
    failing: Vec<(String, Reason, &'static str)>,
    lost_once: Vec<String>,
    flagged: Vec<(String, Flag)>,
    changed: Vec<(String, Metric, f64)>,
}

/// A run of the given `spec`, indented by two spaces.
pub fn run(spec: &str) -> ResultsBuilder {
    ResultsBuilder {
        name: "quickstart".into(),
        spec: spec.into(),
        ended_after: None,
        isolation: Isolation::Namespaces,
        profile: "release",
        failing: vec![],
        lost_once: vec![],
        flagged: vec![],
        changed: vec![],
    }
}

impl ResultsBuilder {
    /// Names the run.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Ctrl-C after this number of trials.
    pub fn interrupted_after(mut self, trials: usize) -> Self {
        self.ended_after = Some(trials);
        self
    }

    /// All nodes share one loopback interface.
    pub fn on_loopback(mut self) -> Self {
        self.isolation = Isolation::Loopback;
        self
    }

    /// Nodes are debug builds, and trials are flagged so.
    pub fn debug_build(mut self) -> Self {
        self.profile = "debug";
        self
    }

    /// Trials whose `cell id/trial id` contains the text fail.
    pub fn failing(mut self, trials: &str, reason: Reason, message: &'static str) -> Self {
        self.failing.push((trials.into(), reason, message));
        self
    }

    /// Trials whose `cell id/trial id` contains the text lose a node and complete in the second attempt.
    pub fn lost_once(mut self, trials: &str) -> Self {
        self.lost_once.push(trials.into());
        self
    }

    /// Trials whose `cell id/trial id` contains the text are flagged.
    pub fn flagged(mut self, trials: &str, flag: Flag) -> Self {
        self.flagged.push((trials.into(), flag));
        self
    }

    /// In trials whose `cell id/trial id` contains the text, a metric is multiplied.
    pub fn changed(mut self, trials: &str, metric: Metric, factor: f64) -> Self {
        self.changed.push((trials.into(), metric, factor));
        self
    }

    /// The results, with their summary and what was found in them.
    pub fn results(&self) -> Results {
        let spec: PerfRunSpec = serde_saphyr::from_str(&self.spec).expect("the test gives a spec");
        let plan = draft(&spec).expect("the spec can be planned");
        let mut trials = vec![];
        for trial in plan.trials.iter().take(self.ended_after.unwrap_or(usize::MAX)) {
            self.measure(&plan, trial, &mut trials);
        }
        let info = self.info();
        let names = plan.nodes.iter().map(|node| node.name.clone());
        let nodes: BTreeMap<String, Info> = names.map(|name| (name, info.clone())).collect();
        let interrupted = self.ended_after.is_some();
        let judged = judged(&plan, &trials, &nodes);
        Results {
            schema_version: SCHEMA_VERSION,
            name: self.name.clone(),
            started: "2026-11-20T14:00:00Z".parse().expect("this is a time"),
            ended: "2026-11-20T14:01:14.5Z".parse().expect("this is a time"),
            paused_seconds: None,
            state: match interrupted {
                true => RunState::Interrupted,
                false => RunState::Complete,
            },
            reason: interrupted.then(|| "stopped by the user".to_owned()),
            conclusion: None,
            environment: Environment {
                perfrun: "0.1.0".into(),
                isolation: self.isolation,
                nodes,
                programs: vec![],
            },
            summary: summarize(&plan, &trials),
            judged,
            spec,
            plan,
            trials,
        }
    }

    /// Adds the record of a trial, and before it that of an attempt in which a node was lost.
    fn measure(&self, plan: &Plan, trial: &Trial, trials: &mut Vec<TrialRecord>) {
        let cell = &plan.cells[trial.cell];
        let key = format!("{}/{}", cell.id, trial.id);
        let concerned = |text: &String| key.contains(text.as_str());
        let mut record = TrialRecord {
            trial: trial.clone(),
            at_seconds: trials.len() as f64 * 0.8,
            start_skew_seconds: Some(0.000_031),
            clock_uncertainty_seconds: Some(0.000_012),
            start_lateness_seconds: Some(0.000_2),
            overhead_seconds: 0.021 + noise(&key, 0.01),
            ..completed(&trial.id)
        };
        let failure = |node: &str, reason, message: &str| {
            Some(TrialFailure {
                node: Some(node.into()),
                reason,
                message: message.into(),
                other_limit: false,
            })
        };
        if self.lost_once.iter().any(concerned) {
            let mut lost = record.clone();
            lost.failure = failure("server-0", Reason::NodeLost, "connection refused (control port)");
            trials.push(lost);
            record.attempt = 1;
            record.flags.push(Flag::Retried);
        }
        match self.failing.iter().find(|(text, ..)| concerned(text)) {
            Some((_, reason, message)) => record.failure = failure("client-0", *reason, message),
            None => {
                record.nodes = measured(cell, &key);
                record.metrics = measure::metrics(cell, &record.nodes);
                for (_, metric, factor) in self.changed.iter().filter(|(text, ..)| concerned(text)) {
                    record.metrics.entry(*metric).and_modify(|value| *value *= factor);
                }
                let flags = self.flagged.iter().filter(|(text, _)| concerned(text));
                record.flags.extend(flags.map(|(_, flag)| *flag));
                if self.profile != "release" {
                    record.flags.push(Flag::DebugBuild);
                }
            }
        }
        trials.push(record);
    }

    /// What each node says about itself.
    fn info(&self) -> Info {
        Info {
            contract: CONTRACT,
            stacks: [
                ("libp2p", "0.57.1"),
                ("litep2p", "0.16.0"),
                ("raw", "quinn 0.11.12"),
            ]
            .map(|(stack, version)| (stack.to_owned(), version.to_owned()))
            .into(),
            profile: self.profile.into(),
            program_sha256: Some("0123456789abcdef".repeat(4)),
            allocator: Some("jemalloc".into()),
            listen_ip: [10, 77, 0, 2].into(),
            cpu: "Imaginary CPU @ 3.00GHz".into(),
            smt: Some(false),
            mtu_bytes: Some(1500),
            congestion_control: Some("cubic".into()),
            socket_buffer_limits_bytes: Some([212_992, 212_992]),
            ..info("bench")
        }
    }
}
