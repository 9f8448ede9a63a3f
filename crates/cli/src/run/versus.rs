//! `--base`, `--candidate`, `--aa` and `--max-regression`: the document that compares and expects what these
//! options say.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use perfrun_api::{
    compare::{Compare, Expect, Replaces},
    document,
    planning::{ResolvedStack, cells},
    spec::{PerfRun, PerfRunSpec, Selector, StackVariant},
};
use perfrun_contract::{
    matrix::{Stack, StackName},
    plan::Cell,
};

use crate::{
    args::{self, MaxRegression},
    label, read_text,
};

/// The variant that is compared with. If there are several, the end of their names.
const BASE: &str = "base";
/// The variant that is compared. If there are several, the end of their names.
const CANDIDATE: &str = "candidate";

/// The most entries that `compare` of a document may have.
const COMPARISONS_MAX: usize = 4;

/// The fewest iterations of what these options compare. A finding needs half of them, and more of them find
/// smaller differences.
const ITERATIONS: u32 = 20;

/// The largest `timeouts.run` of a document.
const RUN_MAX: Duration = Duration::from_secs(168 * 60 * 60);

/// Reads the documents of a file, changes them as the options say, and checks the changed documents.
pub(crate) fn read(file: &Path, options: &args::Versus) -> anyhow::Result<Vec<PerfRun>> {
    let change = |spec: &mut PerfRunSpec| apply(options, spec).map_err(|error| format!("{error:#}"));
    let mut runs = document::parse_changed(&read_text(file)?, change).with_context(|| label(file))?;
    runs.iter_mut().for_each(|run| name(options, run));
    Ok(runs)
}

/// Changes a document as the options say.
fn apply(options: &args::Versus, spec: &mut PerfRunSpec) -> anyhow::Result<()> {
    if options.aa {
        spec.compare.clear();
        let stacks = covering(spec);
        ensure!(
            stacks.len() <= COMPARISONS_MAX,
            "--aa compares at most {COMPARISONS_MAX} stacks with themselves, but the matrix names {}: name fewer",
            joined(stacks)
        );
        compare(spec, stacks)?;
    } else if options.candidate.is_some() {
        ensure!(
            spec.compare.is_empty(),
            "the document has compare: name its programs with --node VARIANT=PATH, without --base and --candidate"
        );
        let stacks = measured(spec);
        if stacks.len() > 1 {
            bail!(
                "--base and --candidate compare two programs with one stack, but the matrix names {}: name one of \
                 them in matrix.clients and matrix.servers",
                joined(stacks)
            );
        }
        compare(spec, stacks)?;
    }
    ensure!(
        options.max_regression.is_empty() || !spec.compare.is_empty(),
        "--max-regression needs a comparison: add `compare` to the document, or use --candidate PATH or --aa"
    );
    let expected = options.max_regression.iter();
    spec.expect
        .extend(expected.map(|MaxRegression { metric, share }| Expect {
            metric: *metric,
            cells: None,
            max_regression: Some(*share),
            min: None,
            max: None,
            min_share_of_raw: None,
        }));
    Ok(())
}

/// Names a run after the option, so that its results are told from those of the document as it is.
fn name(options: &args::Versus, run: &mut PerfRun) {
    let suffix = match options {
        args::Versus { aa: true, .. } => "aa",
        args::Versus {
            candidate: Some(_), ..
        } => CANDIDATE,
        _ => return,
    };
    let name = run.metadata.name.get_or_insert_default();
    *name = format!("{name}-{suffix}");
}

/// Lets a document that was not written for a comparison have enough pairs, and the time for them. What the
/// rules refuse stays as it is, so that they name it.
fn raise_iterations(spec: &mut PerfRunSpec) {
    let (most, run) = (spec.most_iterations(), Duration::from(spec.timeouts.run));
    let is_lawful = most >= spec.iterations.max(1) && !spec.timeouts.run.is_negative() && run <= RUN_MAX;
    if is_lawful && most < ITERATIONS {
        spec.timeouts.run = (run * ITERATIONS / most).min(RUN_MAX).into();
        *spec.max_iterations.as_mut().unwrap_or(&mut spec.iterations) = ITERATIONS;
    }
}

fn joined(stacks: BTreeSet<String>) -> String {
    stacks.into_iter().collect::<Vec<_>>().join(", ")
}

/// The programs of the two variants.
pub(super) fn programs(options: &args::Versus) -> Vec<args::NodeArg> {
    let given = [
        (BASE, &options.base, "--base"),
        (CANDIDATE, &options.candidate, "--candidate"),
    ];
    let program = |(variant, path, option): (&str, &Option<PathBuf>, _)| {
        Some(args::NodeArg {
            variant: Some(variant.to_owned()),
            path: path.clone()?,
            option,
        })
    };
    given.into_iter().filter_map(program).collect()
}

/// The stacks of the matrix: raw only if it has no other. The rules refuse names that no stack has.
fn measured(spec: &mut PerfRunSpec) -> BTreeSet<String> {
    let mut stacks: BTreeSet<String> = names(spec).map(|name| name.0.clone()).collect();
    if stacks.len() > 1 {
        stacks.remove(Stack::Raw.as_ref());
    }
    stacks.retain(|name| ResolvedStack::of(spec, name).is_some());
    stacks
}

/// Stacks to compare with themselves, of which each cell has one. A cell is compared once: one of libp2p and
/// litep2p is compared by the first of them. `None` if the document has no cells: its plan says why.
fn covering(spec: &mut PerfRunSpec) -> BTreeSet<String> {
    let has = |cell: &Cell, stack: &String| [&cell.client.0, &cell.server.0].contains(&stack);
    let cells = cells(spec).unwrap_or_default();
    let mut chosen = BTreeSet::new();
    for stack in measured(spec) {
        let mut left = cells
            .iter()
            .filter(|cell| !chosen.iter().any(|other| has(cell, other)));
        if left.any(|cell| has(cell, &stack)) {
            chosen.insert(stack);
        }
    }
    chosen
}

/// What a name of the matrix stands for.
fn variant(spec: &PerfRunSpec, name: &str) -> Option<StackVariant> {
    let ResolvedStack { stack, variant, .. } = ResolvedStack::of(spec, name)?;
    Some(variant.cloned().unwrap_or_else(|| StackVariant {
        name: name.to_owned(),
        stack,
        image: None,
        command: vec![],
        env: Default::default(),
        settings: Default::default(),
        capabilities: None,
    }))
}

/// Compares each of these stacks as two variants. The first of them takes the place of the stack.
fn compare(spec: &mut PerfRunSpec, stacks: BTreeSet<String>) -> anyhow::Result<()> {
    let is_only = stacks.len() == 1;
    for stack in stacks {
        let Some(program) = variant(spec, &stack) else {
            continue;
        };
        let [base, candidate] = [BASE, CANDIDATE].map(|role| match is_only {
            true => role.to_owned(),
            false => format!("{stack}-{role}"),
        });
        for name in [&base, &candidate] {
            ensure!(
                spec.variant(name).is_none(),
                "stacks lists {name}, a name that --candidate and --aa give: rename it"
            );
            spec.stacks.push(StackVariant {
                name: name.clone(),
                ..program.clone()
            });
        }
        if is_only {
            bound_both(spec, &stack, &candidate);
        }
        for name in names(spec).filter(|name| name.0 == stack) {
            name.0.clone_from(&base);
        }
        let excluded = spec.matrix.exclude.iter_mut();
        let expected = spec.expect.iter_mut().filter_map(|expect| expect.cells.as_mut());
        excluded
            .chain(expected)
            .for_each(|cells| rename(cells, &stack, &base));
        spec.compare.push(Compare {
            baseline: StackName(base),
            candidate: StackName(candidate),
            replaces: Replaces::Both,
            control: false,
        });
    }
    raise_iterations(spec);
    Ok(())
}

/// Expects of the candidate what the document expects of the cells of its stack. A regression is of a
/// candidate anyway.
fn bound_both(spec: &mut PerfRunSpec, stack: &str, candidate: &str) {
    let of_candidate = |expect: &Expect| {
        let mut cells = expect.cells.clone()?;
        rename(&mut cells, stack, candidate);
        let is_of_stack = expect.max_regression.is_none() && Some(&cells) != expect.cells.as_ref();
        is_of_stack.then(|| Expect {
            cells: Some(cells),
            ..expect.clone()
        })
    };
    let added: Vec<Expect> = spec.expect.iter().filter_map(of_candidate).collect();
    spec.expect.extend(added);
}

/// Selects the cells of another stack in place of those of this one.
fn rename(cells: &mut Selector, stack: &str, to: &str) {
    let sides = [&mut cells.client, &mut cells.server];
    for name in sides.into_iter().flatten().filter(|name| name.0 == stack) {
        to.clone_into(&mut name.0);
    }
}

/// Every place of the matrix that names a stack to measure.
fn names(spec: &mut PerfRunSpec) -> impl Iterator<Item = &mut StackName> {
    let matrix = &mut spec.matrix;
    let added = matrix.include.iter_mut();
    let added = added.flat_map(|added| [&mut added.client, &mut added.server]);
    let crossed = matrix.clients.iter_mut().chain(&mut matrix.servers);
    crossed.chain(added)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use perfrun_api::planning::plan;
    use perfrun_contract::plan::Plan;

    use super::*;

    const AA: &str = "--aa";
    const CANDIDATE_ONLY: &str = "--candidate next";

    fn options(line: &str) -> args::Versus {
        use clap::Parser;
        let words = ["perfrun", "plan", "a.yaml"]
            .into_iter()
            .chain(line.split_whitespace());
        match args::Cli::parse_from(words).command {
            args::Command::Plan(plan) => plan.versus,
            other => panic!("{other:?}"),
        }
    }

    /// The plans of the text of documents with these options, or why there are none.
    fn plans(text: &str, line: &str) -> Result<Vec<Plan>, String> {
        let options = options(line);
        let change = |spec: &mut PerfRunSpec| apply(&options, spec).map_err(|error| error.to_string());
        let runs = document::parse_changed(text, change).map_err(|error| error.to_string())?;
        let plans = runs
            .iter()
            .map(|run| plan(&run.spec).map_err(|error| error.to_string()));
        plans.collect()
    }

    fn planned(spec: &str, line: &str) -> Result<Plan, String> {
        let text = format!(
            "{{apiVersion: perfrun.io/v1alpha1, kind: PerfRun, metadata: {{name: a}}, spec: {{workload: {{ping: {{}}}}, \
             {spec}}}}}"
        );
        plans(&text, line).map(|mut plans| plans.remove(0))
    }

    fn ids(plan: &Plan) -> Vec<&str> {
        plan.cells.iter().map(|cell| cell.id.as_str()).collect()
    }

    const LITEP2P: &str =
        "matrix: {clients: [litep2p], servers: [litep2p], rawReference: false, transports: [tcp]}";

    #[test]
    fn the_stack_of_the_matrix_becomes_a_baseline_and_a_candidate() {
        for line in [AA, CANDIDATE_ONLY] {
            let plan = planned(LITEP2P, line).unwrap();
            assert_eq!(
                ids(&plan),
                ["base.base.tcp.ping-1000", "candidate.candidate.tcp.ping-1000"]
            );
            assert_eq!(plan.judging.cell_pairs.len(), 1);
        }
    }

    #[test]
    fn a_document_has_enough_iterations_for_a_finding_and_the_time_for_them() {
        let changed = |spec: &str| {
            let mut spec: PerfRunSpec =
                serde_saphyr::from_str(&format!("{{workload: {{ping: {{}}}}, {spec}}}")).unwrap();
            apply(&options(AA), &mut spec).unwrap();
            let run: Duration = spec.timeouts.run.into();
            (spec.iterations, spec.max_iterations, run.as_secs())
        };
        let with = |more: &str| changed(&format!("{LITEP2P}, {more}"));
        assert_eq!(with("iterations: 5, timeouts: {run: 60s}"), (20, None, 240));
        assert_eq!(
            with("iterations: 5, maxIterations: 10, timeouts: {run: 60s}"),
            (5, Some(20), 120)
        );
        for unlawful in [
            "iterations: 0, timeouts: {run: 60s}",
            "iterations: 10, maxIterations: 5, timeouts: {run: 60s}",
            "iterations: 1, timeouts: {run: 2000000000000000h}",
        ] {
            let before: PerfRunSpec =
                serde_saphyr::from_str(&format!("{{workload: {{ping: {{}}}}, {LITEP2P}, {unlawful}}}"))
                    .unwrap();
            let run: Duration = before.timeouts.run.into();
            assert_eq!(
                with(unlawful),
                (before.iterations, before.max_iterations, run.as_secs())
            );
        }
        assert_eq!(
            with("iterations: 1, timeouts: {run: 100h}"),
            (20, None, RUN_MAX.as_secs())
        );
        assert_eq!(
            with("iterations: 10, maxIterations: 40, timeouts: {run: 60s}"),
            (10, Some(40), 60)
        );
        assert_eq!(with("iterations: 30, timeouts: {run: 60s}"), (30, None, 60));
    }

    #[test]
    fn each_of_several_stacks_is_compared_with_itself() {
        let two = "matrix: {clients: [litep2p, libp2p], servers: [libp2p, litep2p], transports: [tcp], rawReference: false}";
        let plan = planned(two, AA).unwrap();
        let pairs: BTreeSet<[&str; 2]> = (plan.judging.cell_pairs.iter())
            .map(|cell_pair| {
                [cell_pair.baseline, cell_pair.candidate].map(|cell| plan.cells[cell].id.as_str())
            })
            .collect();
        let expected = [
            ["libp2p-base.libp2p-base", "libp2p-candidate.libp2p-candidate"],
            ["libp2p-base.litep2p-base", "libp2p-candidate.litep2p-base"],
            ["litep2p-base.libp2p-base", "litep2p-base.libp2p-candidate"],
            ["litep2p-base.litep2p-base", "litep2p-candidate.litep2p-candidate"],
        ]
        .map(|pair| pair.map(|stacks| format!("{stacks}.tcp.ping-1000")));
        let expected: BTreeSet<[&str; 2]> = expected
            .iter()
            .map(|pair| pair.each_ref().map(String::as_str))
            .collect();
        assert_eq!(pairs, expected);
        let refused = planned(two, CANDIDATE_ONLY).unwrap_err();
        assert!(refused.contains("perfrun/a: --base and --candidate"), "{refused}");
        assert!(refused.contains("names libp2p, litep2p: name one"), "{refused}");
    }

    #[test]
    fn a_stack_that_only_meets_another_is_compared_by_that_one() {
        let spec =
            "matrix: {clients: [litep2p, libp2p], servers: [libp2p], transports: [tcp], rawReference: false}";
        assert_eq!(
            ids(&planned(spec, AA).unwrap()),
            [
                "litep2p.base.tcp.ping-1000",
                "litep2p.candidate.tcp.ping-1000",
                "base.base.tcp.ping-1000",
                "candidate.candidate.tcp.ping-1000",
            ]
        );
    }

    #[test]
    fn raw_is_compared_with_itself_if_it_is_the_only_stack() {
        let plan = planned("matrix: {clients: [raw], servers: [raw], transports: [tcp]}", AA).unwrap();
        assert_eq!(
            ids(&plan),
            [
                "raw.raw.tcp.ping-1000",
                "base.base.tcp.ping-1000",
                "candidate.candidate.tcp.ping-1000"
            ]
        );
    }

    #[test]
    fn a_comparison_of_a_stack_with_itself_replaces_those_of_the_document() {
        let compared = "stacks: [{name: main, stack: litep2p, env: {A: b}}, {name: pr, stack: libp2p}], \
                        matrix: {clients: [main], servers: [main], transports: [tcp], rawReference: false}, \
                        compare: [{baseline: main, candidate: pr}]";
        let plan = planned(compared, AA).unwrap();
        let stacks: Vec<Stack> = plan.cells.iter().map(|cell| cell.client_stack).collect();
        assert_eq!(stacks, [Stack::Litep2p; 2]);
        let refused = planned(compared, CANDIDATE_ONLY).unwrap_err();
        assert!(refused.contains("--node VARIANT=PATH"), "{refused}");
    }

    #[test]
    fn every_example_can_be_compared_with_itself_if_it_has_no_more_than_four_stacks() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let mut count = 0;
        for path in yaml.filter(|path| !path.ends_with("schedule.yaml")) {
            let name = path.display();
            match plans(&fs::read_to_string(&path).unwrap(), AA) {
                Ok(plans) => {
                    assert!(
                        plans.iter().all(|plan| !plan.judging.cell_pairs.is_empty()),
                        "{name}"
                    );
                    count += plans.len();
                }
                Err(refused) => {
                    assert!(path.ends_with("broadcast.yaml"), "{name}: {refused}");
                    assert!(refused.contains("--aa compares at most 4 stacks"), "{refused}");
                }
            }
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn an_expectation_of_a_stack_is_one_of_both_programs() {
        let spec = format!(
            "{LITEP2P}, expect: [{{metric: roundTripP50, max: 5ms, where: {{client: litep2p}}}}, {{metric: \
             roundTripP50, maxRegression: 10%, where: {{server: litep2p}}}}, {{metric: roundTripP50, max: 9ms}}]"
        );
        let plan = planned(&spec, CANDIDATE_ONLY).unwrap();
        let cells: Vec<&[usize]> = plan
            .judging
            .expect
            .iter()
            .map(|expected| &expected.cells[..])
            .collect();
        assert_eq!(cells, [&[0][..], &[1], &[0, 1], &[1]]);
    }

    #[test]
    fn excluded_cells_stay_excluded_in_a_comparison() {
        let spec = "matrix: {clients: [litep2p, libp2p], servers: [libp2p], transports: [tcp], rawReference: false, \
                    exclude: [{client: litep2p}]}";
        assert_eq!(
            ids(&planned(spec, AA).unwrap()),
            ["base.base.tcp.ping-1000", "candidate.candidate.tcp.ping-1000"]
        );
    }

    #[test]
    fn expectations_need_a_comparison_by_the_document_or_an_option() {
        let expects = format!(
            "{LITEP2P}, iterations: 10, maxIterations: 40, expect: [{{metric: roundTripP50, maxRegression: 10%}}]"
        );
        for line in [AA, CANDIDATE_ONLY] {
            let plan = planned(&expects, line).unwrap();
            assert_eq!(plan.judging.expect.len(), 1);
            assert_eq!(plan.judging.interim_checks, [10, 20, 40]);
        }
        let refused = planned(&expects, "").unwrap_err();
        assert!(
            refused.contains("add compare, or compare two programs by `perfrun run --candidate PATH`"),
            "{refused}"
        );
    }

    #[test]
    fn a_regression_of_the_command_line_is_expected_of_each_comparison() {
        let line = "--max-regression roundTripP50=10% --max-regression roundTripP99=20%";
        let plan = planned(LITEP2P, &format!("{CANDIDATE_ONLY} {line}")).unwrap();
        let expected = &plan.judging.expect;
        assert_eq!(expected.len(), 2);
        assert!(
            expected.iter().all(|expected| expected.cells == [1]),
            "{expected:?}"
        );
        let refused = planned(LITEP2P, line).unwrap_err();
        assert!(refused.contains("--candidate PATH"), "{refused}");
    }

    #[test]
    fn a_stack_that_does_not_exist_is_refused_by_its_rule() {
        for line in [AA, CANDIDATE_ONLY] {
            let refused = planned("matrix: {clients: [litp2p], servers: [litp2p]}", line).unwrap_err();
            assert!(
                refused.contains("spec.matrix: must name only built-in stacks"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_variant_with_a_name_of_the_options_is_refused() {
        let spec = format!("{LITEP2P}, stacks: [{{name: base, stack: libp2p}}]");
        let refused = planned(&spec, AA).unwrap_err();
        assert!(refused.contains("stacks lists base"), "{refused}");
    }
}
