//! `perfrun plan` and `perfrun validate`.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context;
use kube::ResourceExt;
use perfrun_api::{
    document::{self, Document},
    planning::plan,
    schedule::Timetable,
};
use perfrun_contract::{matrix::StackSettings, network::Conditions, plan::Plan};

use crate::{
    args, label, print, read_changed, read_text,
    run::{counted, least_time, trials, versus},
    tell,
};

/// Prints the plan of every document in a file.
pub fn print_plans(args: &args::PlanArgs) -> anyhow::Result<()> {
    let file = label(&args.file);
    let mut out = String::new();
    for mut run in read_changed(&args.file, |spec| versus::apply(&args.versus, spec))? {
        run.spec.seed = args.seed.or(run.spec.seed);
        let name = run.metadata.name.unwrap_or_default();
        let plan = plan(&run.spec).with_context(|| format!("{file}: perfrun/{name}"))?;
        if args.json {
            out += &(serde_json::to_string(&plan)? + "\n");
        } else {
            out += &text(&name, &plan);
        }
    }
    print(&out)
}

/// Checks all files and prints the problems of each. Returns the exit status.
pub fn validate(args: &args::Validate) -> anyhow::Result<u8> {
    let mut status = 0;
    for file in &args.files {
        match valid(file) {
            Ok(times) => {
                let mut lines = vec![format!(
                    "{}: {}",
                    label(file),
                    counted(times.len(), "valid document")
                )];
                lines.extend(times.into_iter().flatten());
                print(&(lines.join("\n") + "\n"))?;
            }
            Err(problem) => {
                tell(format_args!("perfrun: {problem:#}"));
                status = 1;
            }
        }
    }
    Ok(status)
}

/// What is known of how long each document in a file takes, if all of them can be run, or be run when they
/// are due.
fn valid(file: &Path) -> anyhow::Result<Vec<Option<String>>> {
    let documents = document::parse_any(&read_text(file)?).with_context(|| label(file))?;
    let time = |document: &Document| {
        let (name, spec, schedule) = match document {
            Document::Run(run) => (format!("perfrun/{}", run.name_any()), &run.spec, None),
            Document::Schedule(schedule) => (
                format!("perfschedule/{}", schedule.name_any()),
                &schedule.spec.run_template.spec,
                Some(&schedule.spec),
            ),
        };
        let context = || format!("{}: {name}", label(file));
        if let Some(schedule) = schedule {
            Timetable::new(schedule).with_context(context)?;
        }
        let plan = plan(spec).with_context(context)?;
        Ok(least_time(&plan).map(|least| format!("  {name} {least}")))
    };
    documents.iter().map(time).collect()
}

fn text(name: &str, plan: &Plan) -> String {
    let mut lines = vec![format!("perfrun/{name}")];
    let nodes: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    lines.push(format!("  nodes: {}", nodes.join(", ")));
    if !plan.networks.is_empty() {
        lines.push("  networks:".to_owned());
        let width = plan
            .networks
            .iter()
            .map(|network| network.name.len())
            .max()
            .unwrap_or(0);
        let line = |network: &Conditions| format!("    {:<width$}  {network}", network.name);
        lines.extend(plan.networks.iter().map(line));
    }
    let settings = plan.settings();
    if !settings.is_empty() {
        lines.push("  settings:".to_owned());
        let width = settings.keys().map(|name| name.len()).max().unwrap_or(0);
        let line = |(name, settings): (&str, &StackSettings)| format!("    {name:<width$}  {settings}");
        lines.extend(settings.into_iter().map(line));
    }
    let mut of_cells: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
    for trial in &plan.trials {
        let (measured, warmup) = of_cells.entry(trial.cell).or_default();
        *(if trial.warmup { warmup } else { measured }) += 1;
    }
    lines.extend(least_time(plan).map(|least| format!("  {least}")));
    lines.push(format!(
        "  {}, {}:",
        counted(plan.cells.len(), "cell"),
        trials(plan)
    ));
    let width = plan.cells.iter().map(|cell| cell.id.len()).max().unwrap_or(0);
    for (index, cell) in plan.cells.iter().enumerate() {
        let (measured, warmup) = of_cells.get(&index).copied().unwrap_or_default();
        lines.push(format!(
            "    {:<width$}  {measured} × measured, {warmup} × warm-up",
            cell.id
        ));
    }
    if let [first @ .., last] = &plan.judging.interim_checks[..]
        && !first.is_empty()
    {
        let first: Vec<String> = first.iter().map(u32::to_string).collect();
        lines.push(format!(
            "  interim_checks after {} and {last} iterations: what is decided is measured no longer",
            first.join(", ")
        ));
    }
    if !plan.skipped.is_empty() {
        lines.push(format!("  {} skipped:", counted(plan.skipped.len(), "cell")));
        lines.extend(
            plan.skipped
                .iter()
                .map(|cell| format!("    {}  {}", cell.id, cell.reason)),
        );
    }
    lines.join("\n") + "\n"
}
