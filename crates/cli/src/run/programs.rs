//! Which program each node of a local run executes: named on the command line, or the one beside this
//! program.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use perfrun_api::{
    results::Results,
    spec::{PerfRunSpec, StackVariant},
};
use perfrun_contract::{
    matrix::NodeProgramKind,
    plan::{Plan, PlannedNode},
    run::NodeProgram,
    text,
};
use perfrun_local::{
    LocalIsolation,
    nodes::{Program, Programs},
};

use crate::{args, executable};

/// The programs of `--node`, as results record them. Each of them is an executable file.
pub(super) fn resolve(named: &[args::NodeArg]) -> anyhow::Result<Vec<NodeProgram>> {
    named
        .iter()
        .map(|program| {
            let path = executable::node(program)?.into_os_string().into_string();
            Ok(NodeProgram {
                variant: program.variant.clone(),
                path: path.map_err(|path| anyhow!("unable to record the node {path:?}: it is not UTF-8"))?,
            })
        })
        .collect()
}

/// The programs of a plan, which may be started: this process may open files enough.
pub(super) fn of_plan(
    plan: &Plan,
    spec: &PerfRunSpec,
    isolation: LocalIsolation,
    given: &[NodeProgram],
) -> anyhow::Result<Programs> {
    ensure!(
        isolation == LocalIsolation::Namespaces || plan.tcp_window_bytes().is_none(),
        "matrix.networks impairs links, but with --loopback all nodes share one interface and there are no links: \
         run it without --loopback, or with networks: [none]"
    );
    let programs = Programs::of(plan, |node| {
        let variant = node.and_then(|node| node.variant.as_deref());
        let stack = variant.and_then(|name| spec.variant(name));
        let (path, args) = match given_path(given, variant).filter(|_| variant.is_some()) {
            Some(path) => (path, vec![]),
            None => own_or_default(node, stack, given)?,
        };
        anyhow::Ok(Program {
            path,
            args,
            env: stack.map(|stack| stack.env.clone()).unwrap_or_default(),
        })
    })?;
    programs.allow_files()?;
    Ok(programs)
}

/// The program of nodes without one on the command line, and its first arguments.
fn own_or_default(
    node: Option<&PlannedNode>,
    stack: Option<&StackVariant>,
    given: &[NodeProgram],
) -> anyhow::Result<(PathBuf, Vec<String>)> {
    if let Some((program, args)) = stack.and_then(|stack| stack.command.split_first()) {
        let path = executable::in_path(program)
            .with_context(|| format!("unable to run {program}, the command of a stack"))?;
        return Ok((path, args.to_vec()));
    }
    if let Some(stack) = stack.filter(|stack| stack.image.is_some()) {
        bail!(
            "stack {0} is a container image, and a local run needs a program: set its command, or name one with \
             --node {0}=PATH",
            stack.name
        );
    }
    let path = match node.map_or(NodeProgramKind::Rust, |node| node.program) {
        NodeProgramKind::Rust => {
            given_path(given, None).map_or_else(|| Program::beside_this_one("--node"), Ok)?
        }
        NodeProgramKind::Go => Program::go_beside_this_one()?,
        NodeProgramKind::External => bail!(
            "stack {0} is external, and a local run needs its program: set its command, or name one with --node \
             {0}=PATH",
            stack.map_or("?", |stack| stack.name.as_str())
        ),
    };
    Ok((path, vec![]))
}

/// What a run executes here that its document or its results folder names, in a line for each stack: both may
/// come from elsewhere. Programs of the folder are `earlier` ones. Programs of the command line replace them,
/// and the user knows them.
pub(super) fn named_elsewhere(
    run: &str,
    plan: &Plan,
    spec: &PerfRunSpec,
    given: &[args::NodeArg],
    earlier: &[NodeProgram],
) -> Vec<String> {
    let given = |variant: Option<&str>| given.iter().any(|program| program.variant.as_deref() == variant);
    let earlier =
        |variant: Option<&str>| given_path(earlier, variant).map(|path| word(&path.to_string_lossy()));
    let is_used = |stack: &&StackVariant| {
        let mut nodes = plan.nodes.iter();
        nodes.any(|node| node.variant.as_deref() == Some(stack.name.as_str()))
    };
    let of_stack = |stack: &StackVariant| {
        let name = Some(stack.name.as_str());
        let command = || stack.command.iter().map(|part| word(part)).collect::<Vec<_>>();
        let own = || earlier(name).unwrap_or_else(|| command().join(" "));
        let program = if given(name) { String::new() } else { own() };
        let variables = stack.env.iter();
        let variables: Vec<_> = variables
            .map(|(name, value)| word(&format!("{name}={value}")))
            .collect();
        let with = match variables.is_empty() {
            true => String::new(),
            false => format!(" with {}", variables.join(", ")),
        };
        match program.as_str() {
            "" if with.is_empty() => None,
            "" => Some(format!(
                "perfrun/{run}: stack {} runs its program{with}",
                stack.name
            )),
            program => Some(format!(
                "perfrun/{run}: stack {} runs {program}{with}",
                stack.name
            )),
        }
    };
    let of_all = earlier(None).filter(|_| !given(None));
    let of_all =
        of_all.map(|program| format!("perfrun/{run}: nodes without a program of their own run {program}"));
    let of_stacks = spec.stacks.iter().filter(is_used).filter_map(of_stack);
    of_all.into_iter().chain(of_stacks).collect()
}

/// A part of a command on one line.
fn word(text: &str) -> String {
    text::message(text).replace('\n', " ")
}

/// The program given for a variant, or for all nodes without one of their own.
fn given_path(given: &[NodeProgram], variant: Option<&str>) -> Option<PathBuf> {
    let program = given.iter().find(|program| program.variant.as_deref() == variant);
    program.map(|program| program.path.as_str().into())
}

/// The programs named on the command line, and those named when the run started that the command line does
/// not replace.
pub(super) fn named_now_or_before(now: &[args::NodeArg], before: &[NodeProgram]) -> Vec<args::NodeArg> {
    let still_used = before
        .iter()
        .filter(|before| now.iter().all(|program| program.variant != before.variant))
        .map(|before| args::NodeArg {
            variant: before.variant.clone(),
            path: before.path.as_str().into(),
            option: "--node",
        });
    now.iter().cloned().chain(still_used).collect()
}

/// Checks that nodes would run what they ran in the completed trials. Results of two programs would otherwise
/// count as those of one.
pub(super) async fn check_unchanged(programs: &Programs, results: &Results) -> anyhow::Result<()> {
    if results.trials.iter().all(|record| record.failure.is_some()) {
        return Ok(());
    }
    for (name, digest) in programs.digests().await {
        let node = results.environment.nodes.get(name);
        let earlier = node
            .and_then(|node| node.program_sha256.as_deref())
            .unwrap_or(&digest);
        ensure!(
            earlier == digest,
            "{name} would run another program (sha256 {digest:.12}) than in the completed trials ({earlier:.12}): name \
             that program with --node, or start a new run"
        );
    }
    Ok(())
}

/// Checks that --node names only variants that exist, each once. A misspelt variant would otherwise run the
/// default program, and nobody would notice.
pub(super) fn check_variants<'a>(
    given: &[args::NodeArg],
    specs: impl IntoIterator<Item = &'a PerfRunSpec>,
) -> anyhow::Result<()> {
    let variants: BTreeSet<&str> = specs
        .into_iter()
        .flat_map(|spec| &spec.stacks)
        .map(|stack| stack.name.as_str())
        .collect();
    let mut checked = BTreeSet::new();
    for program in given {
        let variant = program.variant.as_deref();
        if let Some(name) = variant.filter(|name| !variants.contains(name)) {
            let has = match variants.len() {
                0 => "it has none: use --node PATH for all nodes, or list the variant in spec.stacks"
                    .to_owned(),
                _ => format!(
                    "it has {}",
                    variants.iter().copied().collect::<Vec<_>>().join(", ")
                ),
            };
            bail!("--node {name}=..: the document has no stack variant {name}, {has}");
        }
        ensure!(
            checked.insert(variant),
            "--node was given twice for {}",
            variant.unwrap_or("all nodes")
        );
    }
    Ok(())
}
