//! `perfrun man`.

use std::fs;

use anyhow::Context;

use crate::{
    args::{self, Cli},
    output::write_line_to_stderr,
};

/// Writes a page for each command that `perfrun --help` lists, and for those in it.
pub fn write_pages(args: &args::Man) -> anyhow::Result<()> {
    let folder = args.output.display();
    fs::create_dir_all(&args.output).with_context(|| format!("failed to create {folder}"))?;
    clap_mangen::generate_to(Cli::described("perfrun"), &args.output)
        .with_context(|| format!("failed to write the pages to {folder}"))?;
    write_line_to_stderr(format_args!("wrote a page for each command to {folder}"));
    Ok(())
}
