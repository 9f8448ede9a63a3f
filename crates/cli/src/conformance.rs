//! `perfrun conformance`: whether a program may take part in runs as a node.

use std::{fs, sync::Arc};

use anyhow::Context;
use perfrun_conformance::{
    local::{Local, Program},
    nodes::{NodeStarter, TestNodes},
    report, run,
};
use perfrun_local::nodes;

use crate::{
    args::{self, InvalidCommandLine},
    executable, junit,
    output::write_to_stdout,
};

/// Checks a node program on this machine. Returns the exit status.
pub async fn conformance(node: &str, args: &args::Conformance) -> anyhow::Result<u8> {
    let words: Vec<&str> = node.split_whitespace().collect();
    let program = words.split_first();
    let (program, first) = program.ok_or_else(|| InvalidCommandLine("--node names no program".to_owned()))?;
    let tested = Program {
        path: executable::in_path(program).with_context(|| format!("unable to run {program}"))?,
        args: first.iter().map(|word| (*word).to_owned()).collect(),
    };
    let reference = Program {
        path: match &args.reference {
            Some(path) => path.clone(),
            None => nodes::Program::beside_this_one("--reference")?,
        },
        args: vec![],
    };
    let local = Local::new(tested, reference).await?;
    check(args, Arc::new(local)).await
}

/// Makes the selected checks with nodes of this starter, and prints each as it ends. Returns the exit status.
pub async fn check(args: &args::Conformance, starter: Arc<dyn NodeStarter>) -> anyhow::Result<u8> {
    let selected =
        |name: &str| name.contains(&args.filter) && !args.skip.iter().any(|text| name.contains(text));
    let all = run(TestNodes::new(starter), selected, |checked| {
        // If standard output cannot be written, the summary below says so.
        let _ = write_to_stdout(&report::line(checked));
    })
    .await?;
    write_to_stdout(&report::summary(&all))?;
    if let Some(file) = &args.junit {
        let xml = junit::conformance(&all)?;
        fs::write(file, xml).with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(u8::from(!report::is_conformant(&all)))
}
