//! `perfrun plan` and `perfrun validate`.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use anyhow::Context;
use perfrun_api::plan::{Plan, plan};

use crate::{args, read_documents};

/// Prints the plans of a file.
pub fn print_plans(args: &args::Plan) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for run in read_documents(&args.file)? {
        let name = run.metadata.name.unwrap_or_default();
        let plan = plan(&run.spec).with_context(|| format!("perfrun/{name}"))?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&plan)?)?;
        } else {
            write!(out, "{}", text(&name, &plan))?;
        }
    }
    Ok(())
}

/// Checks files, all of them, and says what is wrong with each.
pub fn validate(args: &args::Validate) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut problems = vec![];
    for file in &args.files {
        match read_documents(file).and_then(|runs| {
            runs.iter()
                .map(|run| {
                    let name = run.metadata.name.as_deref().unwrap_or_default();
                    plan(&run.spec).with_context(|| format!("{}: perfrun/{name}", file.display()))
                })
                .collect::<anyhow::Result<Vec<_>>>()
        }) {
            Ok(plans) => {
                let documents = if plans.len() == 1 { "document" } else { "documents" };
                writeln!(out, "{}: {} valid {documents}", file.display(), plans.len())?;
            }
            Err(problem) => problems.push(format!("{problem:#}")),
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(anyhow::anyhow!(problems.join("\n")))
    }
}

fn text(name: &str, plan: &Plan) -> String {
    let mut lines = vec![format!("perfrun/{name}")];
    let nodes: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    lines.push(format!("  nodes: {}", nodes.join(", ")));
    let mut trials: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
    for trial in &plan.trials {
        let (measured, warmup) = trials.entry(trial.cell).or_default();
        *(if trial.warmup { warmup } else { measured }) += 1;
    }
    lines.push(format!(
        "  {} cells, {} trials:",
        plan.cells.len(),
        plan.trials.len()
    ));
    for (index, cell) in plan.cells.iter().enumerate() {
        let (measured, warmup) = trials.get(&index).copied().unwrap_or_default();
        lines.push(format!(
            "    {}  {measured} × measured, {warmup} × warm-up",
            cell.id
        ));
    }
    if !plan.skipped.is_empty() {
        lines.push(format!("  {} cells skipped:", plan.skipped.len()));
        lines.extend(
            plan.skipped
                .iter()
                .map(|cell| format!("    {}  {}", cell.id, cell.reason)),
        );
    }
    lines.join("\n") + "\n"
}
