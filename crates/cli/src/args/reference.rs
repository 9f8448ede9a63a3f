//! The page of all commands.

use std::fmt::Write;

use clap::Command;

use super::Cli;

/// Columns of the page, whatever the terminal has in which it is made.
const WIDTH: usize = 100;

/// What `--help` of every command prints, as a page in Markdown.
pub fn reference() -> String {
    let mut command = Cli::described("perfrun").term_width(WIDTH);
    command.build();
    let mut page =
        "# Commands\n\nWhat `--help` of every command prints. `cargo xtask results` generates this page.\n"
            .to_owned();
    append(&mut page, &mut command, "perfrun");
    page
}

/// Appends a command and those in it. clap adds commands that print this help, too.
fn append(page: &mut String, command: &mut Command, path: &str) {
    let help = command.render_long_help().to_string();
    let _ = write!(page, "\n## {path}\n\n```text\n{}\n```\n", help.trim_end());
    for inner in command
        .get_subcommands_mut()
        .filter(|inner| inner.get_name() != "help")
    {
        let path = format!("{path} {}", inner.get_name());
        append(page, inner, &path);
    }
}

#[cfg(test)]
mod tests {
    use super::{WIDTH, reference};

    #[test]
    fn the_page_has_every_command_and_no_long_line() {
        let page = reference();
        for heading in [
            "perfrun",
            "perfrun run",
            "perfrun get results",
            "perfrun link set",
        ] {
            assert!(
                page.contains(&format!("\n## {heading}\n\n```text\n")),
                "{heading}"
            );
        }
        assert!(!page.contains("## perfrun help"));
        // Examples and the table of exit statuses are not wrapped.
        let long = page.lines().filter(|line| line.chars().count() > WIDTH);
        assert!(
            long.clone().all(|line| line.starts_with("  ")),
            "{:?}",
            long.collect::<Vec<_>>()
        );
    }
}
