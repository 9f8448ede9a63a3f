//! Whether what is compared is one program, so that each difference is noise.

use std::collections::BTreeSet;

use perfrun_contract::node::Info;

use super::Results;
use crate::spec::StackVariant;

/// Whether the variants that a run compares are one program with the same settings.
pub(super) fn compares_same_program(results: &Results) -> bool {
    let Results {
        plan,
        spec,
        environment,
        ..
    } = results;
    let cell_pairs = plan.judging.cell_pairs.iter();
    let cells = cell_pairs.flat_map(|cell_pair| [cell_pair.baseline, cell_pair.candidate]);
    let names: BTreeSet<&String> = cells
        .filter_map(|cell| plan.cells.get(cell))
        .flat_map(|cell| cell.nodes())
        .collect();
    let nodes = names.into_iter().map(|name| environment.nodes.get(name));
    // A run that ended early may not know all of them.
    let Some(nodes) = nodes.collect::<Option<Vec<&Info>>>() else {
        return false;
    };
    let variant = |name: &str| spec.variant(name).map(without_program);
    let mut compared = spec.compare.iter();
    let is_alike = compared.all(|compare| {
        let pair = variant(&compare.baseline.0).zip(variant(&compare.candidate.0));
        pair.is_some_and(|(a, b)| {
            a == StackVariant {
                name: a.name.clone(),
                ..b
            }
        })
    });
    is_alike && is_one_program(nodes.into_iter())
}

/// Whether all nodes of these runs ran one program with the same settings.
pub fn are_of_one_program<'a>(runs: impl Iterator<Item = &'a Results> + Clone) -> bool {
    let settings = |results: &Results| -> Vec<StackVariant> {
        results.spec.stacks.iter().map(without_program).collect()
    };
    let mut all = runs.clone().map(settings);
    let first = all.next();
    let nodes = runs.flat_map(|results| results.environment.nodes.values());
    is_one_program(nodes) && all.all(|other| Some(&other) == first.as_ref())
}

/// What a variant is beside the program that it names, whose digest says more.
fn without_program(variant: &StackVariant) -> StackVariant {
    StackVariant {
        image: None,
        command: vec![],
        ..variant.clone()
    }
}

/// Whether all nodes name the same program.
fn is_one_program<'a>(nodes: impl Iterator<Item = &'a Info>) -> bool {
    let digests: BTreeSet<Option<&String>> = nodes.map(|node| node.program_sha256.as_ref()).collect();
    digests.len() == 1 && digests.first().is_some_and(Option::is_some)
}
