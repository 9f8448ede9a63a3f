//! The options of commands that describe the command line to shells and to `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

const COMPLETIONS_NOTES: &str = "\
Where a shell finds the script:
  bash        ~/.local/share/bash-completion/completions/perfrun
  elvish      at the end of ~/.config/elvish/rc.elv
  fish        ~/.config/fish/completions/perfrun.fish
  powershell  at the end of the file that $PROFILE names
  zsh         _perfrun, in a folder that $fpath lists

The script completes `perfrun` only: kubectl does not use it for its plugin.";

/// Options of `perfrun completions`.
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS_NOTES)]
pub struct Completions {
    /// The shell that reads the script.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Options of `perfrun man`.
#[derive(Args, Debug)]
pub struct Man {
    /// Write the pages to this folder, which is made if necessary. Pages of the same names are replaced.
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
}
