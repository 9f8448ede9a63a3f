//! `perfrun report`: results that were kept, shown again.

use std::{
    fs,
    io::{Write, stderr},
};

use anyhow::{Context, ensure};

use crate::{
    args::{self, Format},
    print, store, terminal_width,
};

/// Prints results, and draws them if asked.
pub fn report(args: &args::Report) -> anyhow::Result<()> {
    let results = store::read(&args.results)?;
    print(&match args.output {
        Format::Table => perfrun_report::terminal(&results, terminal_width()),
        Format::Md => perfrun_report::markdown(&results),
        Format::Json => serde_json::to_string_pretty(&results)? + "\n",
        Format::Csv => perfrun_report::samples_csv(&results),
    })?;
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
            let _ = writeln!(stderr(), "wrote {}", file.display());
        }
    }
    Ok(())
}
