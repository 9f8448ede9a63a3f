//! `perfrun completions`.

use anyhow::Context;

use crate::{
    args::{self, Cli},
    output::write_to_stdout,
};

/// The program that scripts complete, whatever this one was called as: kubectl asks no script about a plugin.
const PROGRAM: &str = "perfrun";

/// Prints the script for a shell.
pub fn print_script(args: &args::Completions) -> anyhow::Result<()> {
    let mut script: Vec<u8> = vec![];
    clap_complete::generate(args.shell, &mut Cli::described(PROGRAM), PROGRAM, &mut script);
    write_to_stdout(&String::from_utf8(script).context("failed to make the script: it is not text")?)
}
