//! `perfrun report`: results that were kept, shown again.

use std::{
    fs,
    io::{self, Write},
};

use anyhow::{Context, ensure};

use crate::{
    args::{self, Format},
    store, terminal_width,
};

/// Prints results, and draws them if asked.
pub fn report(args: &args::Report) -> anyhow::Result<()> {
    let results = store::read(&args.results)?;
    let mut out = io::stdout().lock();
    match args.output {
        Format::Table => writeln!(out, "{}", perfrun_report::terminal(&results, terminal_width()))?,
        Format::Md => write!(out, "{}", perfrun_report::markdown(&results))?,
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&results)?)?,
        Format::Csv => write!(out, "{}", perfrun_report::samples_csv(&results))?,
    }
    if let Some(folder) = &args.svg {
        let plots = perfrun_report::plots(&results);
        ensure!(
            !plots.is_empty(),
            "there is nothing to draw: no trial was completed"
        );
        fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
        for (name, svg) in plots {
            let file = folder.join(name);
            fs::write(&file, svg).with_context(|| format!("failed to write {}", file.display()))?;
            writeln!(io::stderr(), "wrote {}", file.display())?;
        }
    }
    Ok(())
}
