//! `--base`, `--candidate`, `--aa` and `--max-regression` of `perfrun`: what they make of a document.

use std::{collections::BTreeSet, time::Duration};

use perfrun_contract::{
    compare::PAIRS_MIN,
    matrix::{Stack, StackName},
    plan::Cell,
};

use crate::{
    compare::{COMPARISONS_MAX, Compare, Expect, Replaces},
    planning::{ResolvedStack, cells},
    spec::{PerfRun, PerfRunSpec, RUN_MAX, Selector, StackVariant},
};

/// The variant that is compared with. With several stacks, a suffix of the variants' names.
pub const BASE: &str = "base";
/// The variant that is compared. With several stacks, a suffix of the variants' names.
pub const CANDIDATE: &str = "candidate";

/// The fewest iterations of what these options compare. A finding needs half of them, and more of them find
/// smaller differences.
const ITERATIONS: u32 = 2 * PAIRS_MIN;

/// What is compared and expected besides what a document says.
#[derive(Clone, Debug, Default)]
pub struct ComparisonOverride {
    /// `None` if it is only what the document compares.
    pub compared: Option<ComparedSides>,
    /// What is expected of each comparison.
    pub expect: Vec<Expect>,
}

/// What stands on the two sides of a comparison that a document does not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ComparedSides {
    /// Each stack of the matrix and the same once more, in place of what the document compares.
    Itself,
    /// Two programs with the only stack of the matrix.
    Programs,
}

impl ComparisonOverride {
    /// Changes a document. The error says why that is impossible.
    pub(super) fn apply(&self, spec: &mut PerfRunSpec) -> Result<(), String> {
        match self.compared {
            Some(ComparedSides::Itself) => {
                spec.compare.clear();
                let stacks = covering(spec);
                if stacks.len() > COMPARISONS_MAX {
                    return Err(format!(
                        "--aa compares at most {COMPARISONS_MAX} stacks with themselves, but the matrix names {}: \
                         name fewer",
                        joined(stacks)
                    ));
                }
                compare(spec, stacks)?;
            }
            Some(ComparedSides::Programs) => {
                if !spec.compare.is_empty() {
                    return Err("the document has compare: name its programs with --node VARIANT=PATH, without --base \
                                and --candidate"
                        .to_owned());
                }
                let stacks = stacks_to_measure(spec);
                if stacks.len() > 1 {
                    return Err(format!(
                        "--base and --candidate compare two programs with one stack, but the matrix names {}: name \
                         one of them in matrix.clients and matrix.servers",
                        joined(stacks)
                    ));
                }
                compare(spec, stacks)?;
            }
            None => {}
        }
        if !self.expect.is_empty() && spec.compare.is_empty() {
            return Err("--max-regression needs a comparison: add `compare` to the document, or use --candidate PATH \
                        or --aa"
                .to_owned());
        }
        spec.expect.extend_from_slice(&self.expect);
        Ok(())
    }

    /// Names a run after the option, so that its results are told from those of the document as it is.
    pub(super) fn name(&self, run: &mut PerfRun) {
        let Some(compared) = self.compared else { return };
        let name = run.metadata.name.get_or_insert_default();
        let what = match compared {
            ComparedSides::Itself => "aa",
            ComparedSides::Programs => "candidate",
        };
        if !name.ends_with(what) {
            *name += &format!("-{what}");
        }
    }
}

/// Lets a document that was not written for a comparison have enough pairs, and the time for them. What the
/// rules refuse stays as it is, so that they name it.
fn raise_iterations(spec: &mut PerfRunSpec) {
    let (most, run) = (spec.most_iterations(), spec.timeouts.run);
    let longest = RUN_MAX.parse::<kube::core::Duration>();
    let longest = longest.expect("a bound is a duration").into();
    let is_lawful = most >= spec.iterations.max(1) && !run.is_negative() && run <= longest;
    if is_lawful && most < ITERATIONS {
        spec.timeouts.run = (Duration::from(run) * ITERATIONS / most).min(longest).into();
        *spec.max_iterations.as_mut().unwrap_or(&mut spec.iterations) = ITERATIONS;
    }
}

fn joined(stacks: BTreeSet<String>) -> String {
    stacks.into_iter().collect::<Vec<_>>().join(", ")
}

/// The stacks of the matrix: raw only if it has no other. The rules refuse names that no stack has.
fn stacks_to_measure(spec: &mut PerfRunSpec) -> BTreeSet<String> {
    let mut stacks: BTreeSet<String> = names(spec).map(|name| name.0.clone()).collect();
    if stacks.len() > 1 {
        stacks.remove(Stack::Raw.as_ref());
    }
    stacks.retain(|name| ResolvedStack::of(spec, name).is_some());
    stacks
}

/// Stacks to compare with themselves, of which each cell has one. A cell is compared once: one of libp2p and
/// litep2p is compared by the first of them. Empty if the document has no cells: its plan says why.
fn covering(spec: &mut PerfRunSpec) -> BTreeSet<String> {
    let has = |cell: &Cell, stack: &String| [&cell.client.0, &cell.server.0].contains(&stack);
    let cells = cells(spec).unwrap_or_default();
    let mut chosen = BTreeSet::new();
    for stack in stacks_to_measure(spec) {
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
fn compare(spec: &mut PerfRunSpec, stacks: BTreeSet<String>) -> Result<(), String> {
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
            if spec.variant(name).is_some() {
                return Err(format!(
                    "stacks lists {name}, a name that --candidate and --aa give: rename it"
                ));
            }
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
    use std::{fs, path::Path};

    use perfrun_contract::{metric::Metric, plan::Plan};

    use super::{super::parse_compared, *};
    use crate::planning::plan;

    const AA: ComparisonOverride = comparison(ComparedSides::Itself);
    const CANDIDATE_ONLY: ComparisonOverride = comparison(ComparedSides::Programs);

    const fn comparison(compared: ComparedSides) -> ComparisonOverride {
        ComparisonOverride {
            compared: Some(compared),
            expect: vec![],
        }
    }

    /// The plans of the text of documents with these options, or why there are none.
    fn plans(text: &str, comparison: &ComparisonOverride) -> Result<Vec<Plan>, String> {
        let runs = parse_compared(text, comparison).map_err(|error| error.to_string())?;
        let plans = runs
            .iter()
            .map(|run| plan(&run.spec).map_err(|error| error.to_string()));
        plans.collect()
    }

    fn planned(spec: &str, comparison: &ComparisonOverride) -> Result<Plan, String> {
        let text = format!(
            "{{apiVersion: perfrun.io/v1alpha1, kind: PerfRun, metadata: {{name: a}}, spec: {{workload: {{ping: {{}}}}, \
             {spec}}}}}"
        );
        plans(&text, comparison).map(|mut plans| plans.remove(0))
    }

    fn ids(plan: &Plan) -> Vec<&str> {
        plan.cells.iter().map(|cell| cell.id.as_str()).collect()
    }

    const LITEP2P: &str =
        "matrix: {clients: [litep2p], servers: [litep2p], rawReference: false, transports: [tcp]}";

    #[test]
    fn the_stack_of_the_matrix_becomes_a_baseline_and_a_candidate() {
        for comparison in [AA, CANDIDATE_ONLY] {
            let plan = planned(LITEP2P, &comparison).unwrap();
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
            AA.apply(&mut spec).unwrap();
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
            (20, None, 168 * 60 * 60)
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
        let plan = planned(two, &AA).unwrap();
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
        let refused = planned(two, &CANDIDATE_ONLY).unwrap_err();
        assert!(refused.contains("perfrun/a: --base and --candidate"), "{refused}");
        assert!(refused.contains("names libp2p, litep2p: name one"), "{refused}");
    }

    #[test]
    fn a_stack_that_only_meets_another_is_compared_by_that_one() {
        let spec =
            "matrix: {clients: [litep2p, libp2p], servers: [libp2p], transports: [tcp], rawReference: false}";
        assert_eq!(
            ids(&planned(spec, &AA).unwrap()),
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
        let plan = planned("matrix: {clients: [raw], servers: [raw], transports: [tcp]}", &AA).unwrap();
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
        let plan = planned(compared, &AA).unwrap();
        let stacks: Vec<Stack> = plan.cells.iter().map(|cell| cell.client_stack).collect();
        assert_eq!(stacks, [Stack::Litep2p; 2]);
        let refused = planned(compared, &CANDIDATE_ONLY).unwrap_err();
        assert!(refused.contains("--node VARIANT=PATH"), "{refused}");
    }

    #[test]
    fn every_example_can_be_compared_with_itself_if_it_has_no_more_than_four_stacks() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        let mut count = 0;
        for path in yaml.filter(|path| !path.ends_with("nightly.yaml")) {
            let name = path.display();
            match plans(&fs::read_to_string(&path).unwrap(), &AA) {
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
        let plan = planned(&spec, &CANDIDATE_ONLY).unwrap();
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
            ids(&planned(spec, &AA).unwrap()),
            ["base.base.tcp.ping-1000", "candidate.candidate.tcp.ping-1000"]
        );
    }

    #[test]
    fn expectations_need_a_comparison_by_the_document_or_an_option() {
        let expects = format!(
            "{LITEP2P}, iterations: 10, maxIterations: 40, expect: [{{metric: roundTripP50, maxRegression: 10%}}]"
        );
        for comparison in [AA, CANDIDATE_ONLY] {
            let plan = planned(&expects, &comparison).unwrap();
            assert_eq!(plan.judging.expect.len(), 1);
            assert_eq!(plan.judging.interim_checks, [10, 20, 40]);
        }
        let refused = planned(&expects, &ComparisonOverride::default()).unwrap_err();
        assert!(
            refused.contains("add compare, or compare two programs by `perfrun run --candidate PATH`"),
            "{refused}"
        );
    }

    #[test]
    fn a_regression_of_the_command_line_is_expected_of_each_comparison() {
        let regressed = |metric, share: &str| Expect {
            metric,
            cells: None,
            max_regression: Some(share.parse().unwrap()),
            min: None,
            max: None,
            min_share_of_raw: None,
        };
        let expect = vec![
            regressed(Metric::RoundTripP50, "10%"),
            regressed(Metric::RoundTripP99, "20%"),
        ];
        let without = ComparisonOverride {
            compared: None,
            expect,
        };
        let comparison = ComparisonOverride {
            compared: Some(ComparedSides::Programs),
            ..without.clone()
        };
        let plan = planned(LITEP2P, &comparison).unwrap();
        let expected = &plan.judging.expect;
        assert_eq!(expected.len(), 2);
        assert!(
            expected.iter().all(|expected| expected.cells == [1]),
            "{expected:?}"
        );
        let refused = planned(LITEP2P, &without).unwrap_err();
        assert!(refused.contains("--candidate PATH"), "{refused}");
    }

    #[test]
    fn a_stack_that_does_not_exist_is_refused_by_its_rule() {
        for comparison in [AA, CANDIDATE_ONLY] {
            let refused = planned("matrix: {clients: [litp2p], servers: [litp2p]}", &comparison).unwrap_err();
            assert!(
                refused.contains("spec.matrix: must name only built-in stacks"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_variant_with_a_name_of_the_options_is_refused() {
        let spec = format!("{LITEP2P}, stacks: [{{name: base, stack: libp2p}}]");
        let refused = planned(&spec, &AA).unwrap_err();
        assert!(refused.contains("stacks lists base"), "{refused}");
    }
}
