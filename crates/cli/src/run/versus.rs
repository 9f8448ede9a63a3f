//! `--base`, `--candidate` and `--aa`: compares two programs with a document that compares nothing.

use anyhow::ensure;
use perfrun_api::{
    compare::{Compare, Replaces},
    spec::{PerfRunSpec, StackVariant},
};
use perfrun_contract::matrix::{Stack, StackName};

use crate::args;

/// The variant that is compared with.
const BASE: &str = "base";
/// The variant that is compared.
const CANDIDATE: &str = "candidate";

/// The document with the one stack of its matrix as two variants, which it compares.
pub(super) fn compared(mut spec: PerfRunSpec) -> anyhow::Result<PerfRunSpec> {
    ensure!(
        spec.compare.is_empty(),
        "the document has compare: name its programs with --node VARIANT=PATH, without --base and --candidate"
    );
    let stack = only_stack(&spec)?;
    let variant = |name: &str| StackVariant {
        name: name.to_owned(),
        stack,
        image: None,
        command: vec![],
        env: Default::default(),
        settings: Default::default(),
        capabilities: None,
    };
    ensure!(
        spec.stacks
            .iter()
            .all(|listed| ![BASE, CANDIDATE].contains(&listed.name.as_str())),
        "stacks lists {BASE} or {CANDIDATE}, which --base and --candidate add: rename it"
    );
    spec.stacks.extend([variant(BASE), variant(CANDIDATE)]);
    for name in names(&mut spec) {
        if name.0 == stack.as_ref() {
            BASE.clone_into(&mut name.0);
        }
    }
    spec.compare.push(Compare {
        baseline: StackName(BASE.to_owned()),
        candidate: StackName(CANDIDATE.to_owned()),
        replaces: Replaces::Both,
        control: false,
    });
    Ok(spec)
}

/// The programs of the two variants.
pub(super) fn programs(args: &args::Run) -> Vec<args::NodeArg> {
    let program = |variant: &str, path: &Option<_>| {
        path.clone().map(|path| args::NodeArg {
            variant: Some(variant.to_owned()),
            path,
        })
    };
    let variants = [(BASE, &args.base), (CANDIDATE, &args.candidate)];
    let given = variants.into_iter();
    given
        .filter_map(|(variant, path)| program(variant, path))
        .collect()
}

/// The stack that both programs speak: the only one of the matrix besides raw.
fn only_stack(spec: &PerfRunSpec) -> anyhow::Result<Stack> {
    let mut spec = spec.clone();
    let mut found: Vec<String> = names(&mut spec).map(|name| name.0.clone()).collect();
    found.sort_unstable();
    found.dedup();
    found.retain(|name| name != Stack::Raw.as_ref());
    let stack = match &found[..] {
        [name] => Stack::built_in().find(|stack| stack.as_ref() == name),
        _ => None,
    };
    stack.ok_or_else(|| {
        anyhow::anyhow!(
            "--base and --candidate compare two programs with one built-in stack, but the matrix names {}: name the \
             same one in matrix.clients and matrix.servers",
            found.join(", ")
        )
    })
}

/// Every place of the matrix that names a stack.
fn names(spec: &mut PerfRunSpec) -> impl Iterator<Item = &mut StackName> {
    let matrix = &mut spec.matrix;
    let added = matrix.include.iter_mut();
    let added = added.flat_map(|added| [&mut added.client, &mut added.server]);
    let crossed = matrix.clients.iter_mut().chain(&mut matrix.servers);
    crossed.chain(added)
}

#[cfg(test)]
mod tests {
    use perfrun_api::{document, planning::plan};

    use super::*;

    fn spec(matrix: &str) -> PerfRunSpec {
        let text = format!(
            "{{apiVersion: perfrun.io/v1alpha1, kind: PerfRun, metadata: {{name: a}}, spec: {{workload: {{ping: {{}}}}, \
             matrix: {{{matrix}, rawBaseline: false}}}}}}"
        );
        document::parse(&text).unwrap().remove(0).spec
    }

    #[test]
    fn the_stack_of_the_matrix_becomes_a_baseline_and_a_candidate() {
        let compared = compared(spec("clients: [litep2p], servers: [litep2p]")).unwrap();
        let plan = plan(&compared).unwrap();
        let ids: Vec<&str> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
        assert_eq!(
            ids,
            ["base.base.tcp.ping-1000", "candidate.candidate.tcp.ping-1000"]
        );
        assert_eq!(plan.judging.twins.len(), 1);
    }

    #[test]
    fn two_stacks_are_refused() {
        let refused = compared(spec("clients: [litep2p], servers: [libp2p]")).unwrap_err();
        assert!(refused.to_string().contains("names libp2p, litep2p"), "{refused}");
    }
}
