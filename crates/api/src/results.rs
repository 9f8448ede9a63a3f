//! The results of a run: one JSON document, versioned.

mod same_program;

use std::collections::BTreeMap;

use jiff::Timestamp;
use perfrun_contract::{
    compare::{Judged, Verdict},
    plan::Plan,
    record::TrialRecord,
    reported_run::{Inputs, ReportedRun},
    run::{Environment, Isolation, RunState},
    summary::SummaryRow,
    tally::{Conclusion, Tally},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::same_program::are_of_one_program;
use crate::spec::{PerfRunSpec, PodSettings, StackVariant, Template};

/// Version of [`Results`]. It changes when a reader of the previous version would misread a document.
pub const SCHEMA_VERSION: u32 = 2;

/// The complete results of a run.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Results {
    /// Version of the schema of this document.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Name of the PerfRun.
    pub name: String,
    /// When the run started.
    #[schemars(with = "String")]
    pub started: Timestamp,
    /// When the run ended. In the file of a run in progress: when it started, or was last resumed.
    #[schemars(with = "String")]
    pub ended: Timestamp,
    /// How long it did not run between its start and its end, in seconds. Absent unless it was resumed.
    pub paused_seconds: Option<f64>,
    /// How the run ended. In the file of a run in progress: `interrupted`, which holds if perfrun is killed.
    pub state: RunState,
    /// Cause of the end, if the run is not complete.
    pub reason: Option<String>,
    /// Phase and reason of the end. The file of a run in progress has none: `perfrun report --output json`
    /// shows the phase `Running` for it.
    pub conclusion: Option<Conclusion>,
    /// The spec, with all defaults filled in.
    pub spec: PerfRunSpec,
    /// The plan of the spec.
    pub plan: Plan,
    /// The environment of the run.
    pub environment: Environment,
    /// All attempts of trials, in running order. A trial that was retried has several.
    pub trials: Vec<TrialRecord>,
    /// Statistics of the measured trials, one row for each metric of each cell.
    pub summary: Vec<SummaryRow>,
    /// What was found, if the run compares or expects something.
    pub judged: Option<Judged>,
}

/// Results that no perfrun has written.
#[derive(Debug, Error)]
#[error(
    "{name:?} is not a name: names in results consist of letters, digits, '.', '-' and '_', and begin with a letter \
     or digit"
)]
pub struct InvalidName {
    /// What is in the place of a name.
    pub name: String,
}

impl Results {
    /// Checks the names of the run, and of its nodes, cells and trials. Files are called by them, and tables
    /// of spreadsheets contain them, so that results from elsewhere could write into any folder, or have
    /// formulas.
    pub fn check_names(&self) -> Result<(), InvalidName> {
        let Plan {
            nodes, cells, trials, ..
        } = &self.plan;
        let of_cells = cells.iter().flat_map(|cell| {
            let own = [&cell.id, &cell.client.0, &cell.server.0, &cell.network];
            own.into_iter().chain(cell.nodes())
        });
        [&self.name]
            .into_iter()
            .chain(nodes.iter().map(|node| &node.name))
            .chain(trials.iter().map(|trial| &trial.id))
            .chain(of_cells)
            .try_for_each(|name| check_name(name))?;
        self.trials.iter().try_for_each(check_names_of)
    }
}

/// Checks the names in a record of a trial, as [`Results::check_names`] does.
pub fn check_names_of(record: &TrialRecord) -> Result<(), InvalidName> {
    check_name(&record.trial.id)?;
    record.nodes.keys().try_for_each(|name| check_name(name))
}

fn check_name(name: &str) -> Result<(), InvalidName> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_name = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.len() <= NAME_MAX
        && name.bytes().all(is_inside);
    let bad = || InvalidName {
        name: name.chars().take(NAME_MAX).collect(),
    };
    if is_name { Ok(()) } else { Err(bad()) }
}

/// Bytes of a file's name, less what is added to a name.
const NAME_MAX: usize = 220;

/// The JSON Schema (draft 2020-12) of [`Results`].
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Results).into()
}

impl Results {
    /// How the run ended. Of one that has not ended, how it would have if it ended now.
    pub fn conclusion(&self) -> Conclusion {
        let now = || self.tally().conclusion(self.state, None, self.reason.as_deref());
        self.conclusion.clone().unwrap_or_else(now)
    }

    /// Whether what the run expects holds. `None` if it expects nothing.
    pub fn verdict(&self) -> Option<Verdict> {
        self.judged.as_ref()?.verdict
    }

    /// Which trials completed and failed, and which were not needed.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::of(&self.plan, &self.trials);
        tally.leave_out(self.judged.as_ref().and_then(|judged| judged.not_needed));
        tally
    }

    /// The results as a report needs them.
    pub fn reported_run(&self) -> ReportedRun<'_> {
        let Self {
            schema_version: _,
            name,
            started,
            ended,
            paused_seconds,
            state,
            reason: _,
            conclusion: _,
            spec,
            plan,
            environment,
            trials,
            summary,
            judged,
        } = self;
        ReportedRun {
            name,
            started: *started,
            ended: *ended,
            paused_seconds: *paused_seconds,
            state: *state,
            tally: self.tally(),
            conclusion: self.conclusion(),
            settings: spec.settings(),
            inputs: inputs(spec, environment),
            plan,
            environment,
            trials,
            summary,
            judged: judged.as_ref(),
            compares_same_program: same_program::compares_same_program(self),
            profiles: &[],
        }
    }
}

/// What the nodes of a run were started with.
fn inputs<'a>(spec: &'a PerfRunSpec, environment: &Environment) -> Inputs<'a> {
    let is_in_pods = environment.isolation == Isolation::Pods;
    // Pods run the command of their image, and `perfrun run --node` names a program without arguments.
    let runs_command = |variant: &StackVariant| {
        let mut named = environment.programs.iter();
        !is_in_pods && named.all(|program| program.variant.as_ref() != Some(&variant.name))
    };
    let arguments = |variant: &'a StackVariant| {
        let arguments = variant.command.get(1..).filter(|_| runs_command(variant));
        (variant.name.as_str(), arguments.unwrap_or_default())
    };
    let env = |variant: &'a StackVariant| (variant.name.as_str(), &variant.env);
    Inputs {
        env: spec.stacks.iter().map(env).collect(),
        arguments: spec.stacks.iter().map(arguments).collect(),
        pods: if is_in_pods { pods(spec) } else { BTreeMap::new() },
    }
}

/// Settings of pods that affect what is measured. Those that choose a machine are not among them, because
/// nodes report where they run. Neither are labels and what is needed to pull an image.
fn pods(spec: &PerfRunSpec) -> BTreeMap<&'static str, String> {
    let Template {
        server,
        client,
        relay,
        link,
    } = &spec.template;
    let of_role = |settings: &PodSettings| {
        let PodSettings {
            resources,
            node_selector: _,
            affinity: _,
            tolerations: _,
            topology_spread_constraints: _,
            priority_class_name,
            annotations,
            labels: _,
            image_pull_secrets: _,
            runtime_class_name,
        } = settings.clone();
        json(&PodSettings {
            resources,
            priority_class_name,
            annotations,
            runtime_class_name,
            ..PodSettings::default()
        })
    };
    [
        ("topology.hostNetwork", json(&spec.topology.host_network)),
        ("template.server", of_role(server)),
        ("template.client", of_role(client)),
        ("template.relay", of_role(relay)),
        ("template.link", json(link)),
    ]
    .into()
}

fn json(settings: &impl Serialize) -> String {
    serde_json::to_string(settings).expect("settings are numbers, texts, lists and maps of texts")
}
