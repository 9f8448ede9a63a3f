//! `perfrun plan`.

use std::collections::BTreeSet;

use anyhow::Context;
use perfrun_api::planning::plan;
use perfrun_contract::{
    matrix::IpFamily,
    plan::{Cell, Plan},
};

use crate::{
    args::{self, NodeArg},
    documents::{self, label},
    executable,
    output::write_to_stdout,
    words::{counted, distinct, least_time_if_known, skipped, too_few_iterations, trials},
};

/// Prints the plan of every document in a file.
pub fn print_plans(args: &args::PlanArgs) -> anyhow::Result<()> {
    let file = label(&args.file);
    let programs = args.comparison.programs();
    programs
        .iter()
        .try_for_each(|program| executable::node(program).map(drop))?;
    let mut out = String::new();
    for mut run in documents::read(&args.file, &args.comparison)? {
        run.spec.seed = args.seed.or(run.spec.seed);
        let name = run.metadata.name.unwrap_or_default();
        let plan = plan(&run.spec).with_context(|| format!("{file}: perfrun/{name}"))?;
        if args.json {
            out += &(serde_json::to_string(&plan)? + "\n");
        } else {
            out += &text(&name, &plan, &programs, args.all);
        }
    }
    write_to_stdout(&out)
}

/// Names of an axis are listed up to this number, and counted beyond it.
const NAMES_MAX: usize = 4;

/// A plan in lines: how many cells there are of what, or each of them.
fn text(name: &str, plan: &Plan, programs: &[NodeArg], is_all: bool) -> String {
    let mut lines = vec![format!("perfrun/{name}")];
    let nodes = plan.nodes.iter().map(|node| node.name.as_str());
    lines.push(match plan.nodes.len() {
        many if many > NAMES_MAX && !is_all => format!("  nodes: {many} (--all lists them)"),
        _ => format!("  nodes: {}", listed(nodes, "nodes", true)),
    });
    if !plan.networks.is_empty() && (is_all || plan.networks.len() <= NAMES_MAX) {
        lines.push("  networks:".to_owned());
        let networks = plan.networks.iter();
        lines.extend(aligned(
            networks.map(|network| (network.name.as_str(), network.to_string())),
        ));
    }
    let settings = plan.settings();
    if !settings.is_empty() {
        lines.push("  settings:".to_owned());
        let settings = settings.into_iter();
        lines.extend(aligned(
            settings.map(|(name, settings)| (name, settings.to_string())),
        ));
    }
    if !programs.is_empty() {
        lines.push("  programs:".to_owned());
        let named = |program: &NodeArg| (program.option, program.path.display().to_string());
        lines.extend(aligned(programs.iter().map(named)));
    }
    lines.extend(compared(plan));
    lines.push(format!("  {}", least_time_if_known(plan)));
    lines.extend(
        too_few_iterations(plan)
            .into_iter()
            .map(|note| format!("  {note}")),
    );
    lines.extend(cells(plan, is_all));
    if let [first @ .., last] = &plan.judging.interim_checks[..]
        && !first.is_empty()
    {
        let first: Vec<String> = first.iter().map(u32::to_string).collect();
        lines.push(format!(
            "  interim checks after {} and {last} iterations; settled comparisons stop early",
            first.join(", ")
        ));
    }
    lines.extend(skipped(plan, is_all));
    lines.join("\n") + "\n"
}

/// Which pairs of stacks are compared with which. `None` if none are.
fn compared(plan: &Plan) -> Option<String> {
    let pairs = plan.judging.cell_pairs.iter().map(|cell_pair| {
        let cells = [cell_pair.baseline, cell_pair.candidate];
        let [baseline, candidate] = cells.map(|cell| plan.cells[cell].stack_pair());
        format!("{candidate} with {baseline}")
    });
    let all = listed(pairs, "pairs of stacks with others", false);
    (!all.is_empty()).then(|| format!("  compares {all}"))
}

/// The cells of a plan, and how often each is measured.
fn cells(plan: &Plan, is_all: bool) -> Vec<String> {
    let mut times = vec![(0, 0); plan.cells.len()];
    for trial in &plan.trials {
        if let Some((measured, warmup)) = times.get_mut(trial.cell) {
            *(if trial.warmup { warmup } else { measured }) += 1;
        }
    }
    let times = times
        .into_iter()
        .map(|(measured, warmup)| format!("{measured} × measured, {warmup} × warm-up"));
    let head = format!("  {}, {}:", counted(plan.cells.len(), "cell"), trials(plan));
    let cells = || plan.cells.iter();
    if is_all {
        let rows = cells().map(|cell| cell.id.as_str()).zip(times);
        return [head].into_iter().chain(aligned(rows)).collect();
    }
    let groups = by_transports(plan);
    let one = match &groups[..] {
        [pairs_and_transports] => Some(pairs_and_transports.join("; ")),
        _ => None,
    };
    let loads = listed(cells().map(|cell| cell.parameters.to_string()), "loads", false);
    let networks = cells().map(|cell| cell.network.as_str());
    let networks = (!plan.networks.is_empty()).then(|| listed(networks, "networks", false));
    let has_ipv6 = cells().any(|cell| cell.ip_family == IpFamily::IPv6);
    let families = has_ipv6.then(|| {
        listed(
            cells().map(|cell| cell.ip_family.to_string()),
            "IP families",
            false,
        )
    });
    let of = one.iter().cloned().chain([loads]).chain(networks).chain(families);
    let line = format!(
        "{head} {}{}; each {}",
        Vec::from_iter(of).join("; "),
        if is_crossed(plan) {
            ""
        } else {
            " (not all of these combinations)"
        },
        listed(times, "numbers of times", false)
    );
    let groups = groups.into_iter().filter(|_| one.is_none());
    let groups = groups.map(|group| format!("    {}", group.join(": ")));
    [line].into_iter().chain(groups).collect()
}

/// Whether each pair of stacks is measured over each of its transports with each load, network and IP family.
fn is_crossed(plan: &Plan) -> bool {
    let number = |of: &dyn Fn(&Cell) -> String| plan.cells.iter().map(of).collect::<BTreeSet<_>>().len();
    let crossed = number(&|cell| format!("{} {}", cell.stack_pair(), cell.transport))
        * number(&|cell| cell.parameters.to_string())
        * number(&|cell| cell.network.clone())
        * number(&|cell| cell.ip_family.to_string());
    crossed == plan.cells.len()
}

/// Pairs of stacks, and the transports that they are measured over.
fn by_transports(plan: &Plan) -> Vec<[String; 2]> {
    let mut pairs: Vec<(String, Vec<String>)> = vec![];
    for cell in &plan.cells {
        let (pair, transport) = (cell.stack_pair().to_string(), cell.transport.to_string());
        match pairs.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, transports)) if transports.contains(&transport) => {}
            Some((_, transports)) => transports.push(transport),
            None => pairs.push((pair, vec![transport])),
        }
    }
    let mut groups: Vec<(Vec<String>, Vec<String>)> = vec![];
    for (pair, transports) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == transports) {
            Some((_, pairs)) => pairs.push(pair),
            None => groups.push((transports, vec![pair])),
        }
    }
    let group = |(transports, pairs): (Vec<String>, Vec<String>)| {
        [
            listed(pairs, "pairs of stacks", false),
            listed(transports, "transports", false),
        ]
    };
    groups.into_iter().map(group).collect()
}

/// Different names once each, or their number if there are many.
fn listed<T: Into<String>>(names: impl IntoIterator<Item = T>, what: &str, is_all: bool) -> String {
    let names = distinct(names);
    match names.len() {
        many if many > NAMES_MAX && !is_all => format!("{many} {what}"),
        _ => names.join(", "),
    }
}

/// A line for each name, with its text in a column.
fn aligned<'a>(rows: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    let rows: Vec<_> = rows.collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, text): (&str, String)| format!("    {name:<width$}  {text}");
    rows.into_iter().map(line).collect()
}
