//! Results as runs would leave them, without running anything.

use std::{collections::BTreeMap, fs};

use jiff::{SignedDuration, Timestamp};
use perfrun_api::{
    document::parse,
    planning::draft,
    results::{Results, SCHEMA_VERSION},
};
use perfrun_contract::{
    metric::Metric,
    node::{Info, Reason},
    plan::Cell,
    record::TrialRecord,
    run::{Environment, Isolation, RunState},
};
use perfrun_judge::{judged, summarize};
use perfrun_test_kit::records::{completed, failed, info};
use serde_json::{Value, json};

use crate::{
    document::{self, Document},
    perfrun::Scratch,
};

/// A run under construction.
#[derive(Clone)]
pub(crate) struct Kept(pub(crate) Results);

/// Uploads of a second by litep2p over TCP and QUIC.
pub(crate) fn uploads() -> Document {
    document::run("uploads")
        .with(
            "workload",
            json!({"bandwidth": {"directions": ["upload"], "duration": "1s"}}),
        )
        .with(
            "matrix",
            json!({"clients": ["litep2p"], "servers": ["litep2p"], "transports": ["tcp", "quic-v1"], "rawReference": false}),
        )
        .with("iterations", json!(12))
}

/// Uploads over TCP of two variants that are compared.
pub(crate) fn compared() -> Document {
    uploads().comparing().with("seed", json!(7))
}

/// [`compared`], and an upload of the candidate that is slower by more than this is not as expected.
pub(crate) fn bounded(max_regression: &str) -> Document {
    let expect = json!([{"metric": "uploadGoodput", "maxRegression": max_regression}]);
    compared().with("expect", expect)
}

/// A run of a document in an hour, in which each cell has some speed. Machines differ by some percent from
/// hour to hour.
pub(crate) fn run(document: &Document, hour: u32, speed: impl Fn(&Cell) -> f64) -> Kept {
    let spec = parse(&document.text()).unwrap().remove(0).spec;
    let plan = draft(&spec).unwrap();
    let machine = 1.0 + 0.01 * f64::from(hour * 37 % 5);
    let mut trials = vec![];
    for trial in &plan.trials {
        let noise = 1.0 + 0.002 * ((trials.len() * 37 + hour as usize * 13) % 11) as f64;
        let speed = speed(&plan.cells[trial.cell]) * machine * noise;
        trials.push(TrialRecord {
            metrics: BTreeMap::from([
                (Metric::UploadGoodput, 4.7e9 * speed),
                (Metric::CpuSecondsPerGiB, 0.8 / speed),
            ]),
            at_seconds: trials.len() as f64 * 1.5,
            ..completed(&trial.id)
        });
    }
    let info = |name: &str| {
        let program = if name.ends_with("-pr") { "b" } else { "a" };
        Info {
            program_sha256: Some(program.repeat(64)),
            commit: Some("89abcde".to_owned()),
            label: Some("main".to_owned()),
            ..info("bench")
        }
    };
    let nodes: BTreeMap<String, Info> = plan
        .nodes
        .iter()
        .map(|node| (node.name.clone(), info(&node.name)))
        .collect();
    let started =
        "2026-11-20T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(hour.into());
    let results = Results {
        schema_version: SCHEMA_VERSION,
        name: "uploads".to_owned(),
        started,
        ended: started + SignedDuration::from_mins(1),
        paused_seconds: None,
        state: RunState::Complete,
        reason: None,
        conclusion: None,
        spec,
        plan,
        environment: Environment {
            perfrun: "0.1.0".to_owned(),
            isolation: Isolation::Namespaces,
            nodes,
            programs: vec![],
        },
        trials,
        summary: vec![],
        judged: None,
    };
    Kept(results)
}

impl Kept {
    /// Every node says something else about itself.
    pub(crate) fn where_nodes(mut self, change: impl FnMut(&mut Info)) -> Self {
        self.0.environment.nodes.values_mut().for_each(change);
        self
    }

    /// Every trial fails.
    pub(crate) fn all_failed(mut self) -> Self {
        for record in &mut self.0.trials {
            *record = TrialRecord {
                at_seconds: record.at_seconds,
                ..failed(&record.trial.id.clone(), Reason::Timeout)
            };
        }
        self
    }

    /// The results in JSON.
    pub(crate) fn json(&self) -> Value {
        let mut results = self.0.clone();
        results.summary = summarize(&results.plan, &results.trials);
        results.judged = judged(&results.plan, &results.trials, &results.environment.nodes);
        serde_json::to_value(results).unwrap()
    }

    /// Keeps the results in a folder of the scratch folder.
    pub(crate) fn keep(&self, scratch: &Scratch, folder: &str) {
        keep(scratch, folder, &self.json().to_string());
    }
}

/// Keeps a text as results.
pub(crate) fn keep(scratch: &Scratch, folder: &str, results: &str) {
    fs::create_dir_all(scratch.path().join(folder)).unwrap();
    scratch.write(&format!("{folder}/results.json"), results);
}
