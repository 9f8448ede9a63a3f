//! `perfrun conformance`: whether a program may take part in runs as a node.

use std::{fs, io::Write};

use anyhow::Context;
use perfrun_conformance::{
    bench::{Bench, Program},
    report, run,
};
use perfrun_local::nodes;

use crate::{args, print, run::programs};

/// Checks a node program, and prints each check as it ends. Returns the exit status.
pub async fn conformance(args: &args::Conformance) -> anyhow::Result<u8> {
    let words: Vec<&str> = args.node.split_whitespace().collect();
    let (program, first) = words.split_first().context("--node names no program")?;
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
    let bench = Bench::new(tested, reference).await?;
    let mut out = std::io::stdout();
    let selected =
        |name: &str| name.contains(&args.filter) && !args.skip.iter().any(|text| name.contains(text));
    let all = run(bench, selected, |checked| {
        // A reader that closes the pipe misses the rest.
        let _ = out.write_all(report::line(checked).as_bytes());
    })
    .await?;
    print(&report::verdict(&all))?;
    if let Some(file) = &args.junit {
        let xml = report::junit(&all).context("failed to write JUnit's XML")?;
        fs::write(file, xml).with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(u8::from(!report::is_conformant(&all)))
}
