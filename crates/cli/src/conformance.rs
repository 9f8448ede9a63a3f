//! `perfrun conformance`: whether a program may take part in runs as a node.

use std::{fs, sync::Arc};

use anyhow::Context;
use perfrun_conformance::{
    bench::{Bench, Place},
    local::{Local, Program},
    report, run,
};
use perfrun_local::nodes;

use crate::{
    args::{self, InvalidCommandLine},
    cluster, print,
    run::programs,
};

/// Checks a node program, here or on a cluster, and prints each check as it ends. Returns the exit status.
pub async fn conformance(args: &args::Conformance) -> anyhow::Result<u8> {
    let Some(node) = &args.node else {
        return cluster::conformance(args, |place| check(args, place)).await;
    };
    let words: Vec<&str> = node.split_whitespace().collect();
    let program = words.split_first();
    let (program, first) = program.ok_or_else(|| InvalidCommandLine("--node names no program".to_owned()))?;
    let tested = Program {
        path: programs::in_path(program).with_context(|| format!("unable to run {program}"))?,
        args: first.iter().map(|word| (*word).to_owned()).collect(),
    };
    let reference = Program {
        path: match &args.reference {
            Some(path) => path.clone(),
            None => nodes::Program::beside_this_one()?,
        },
        args: vec![],
    };
    let local = Local::new(tested, reference).await?;
    check(args, Arc::new(local)).await
}

/// Makes the selected checks with nodes of this place. Returns the exit status.
async fn check(args: &args::Conformance, place: Arc<dyn Place>) -> anyhow::Result<u8> {
    let selected =
        |name: &str| name.contains(&args.filter) && !args.skip.iter().any(|text| name.contains(text));
    let all = run(Bench::new(place), selected, |checked| {
        // If standard output cannot be written, the verdict below says so.
        let _ = print(&report::line(checked));
    })
    .await?;
    print(&report::verdict(&all))?;
    if let Some(file) = &args.junit {
        let xml = report::junit(&all).context("failed to write JUnit's XML")?;
        fs::write(file, xml).with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(u8::from(!report::is_conformant(&all)))
}
