//! Checks the language of this repository: `cargo xtask prose [PATH…]` runs it.
//!
//! Vale judges, by the rules in `styles` and those made from docs/glossary.md. This program takes prose out
//! of the files that have it, and leads each finding back to its line. It must not need anything of the
//! workspace, which it is built before.

mod glossary;
mod lines;
mod literal;
mod page;
mod rust;
mod vale;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::page::Page;

/// As rustfmt.toml and .editorconfig have it.
const COLUMNS: usize = 110;

/// Generated from what is checked at its source, or the words of others.
const NOT_OURS: &[&str] = &[
    "LICENSE",
    "charts/perfrun/files/",
    "crds/",
    "docs/results/benchmarks/",
    "schema/",
];

#[derive(Parser)]
#[command(about = "Checks the language of documents, comments and messages")]
struct Args {
    /// The program
    #[arg(long)]
    vale: PathBuf,
    /// Folder for intermediate files, emptied first
    #[arg(long)]
    scratch: PathBuf,
    /// Files and folders to check, from the root of the repository (default: all)
    paths: Vec<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let findings = check(&args)?;
    for (path, line, message) in &findings {
        println!("{path}:{line}: {message}");
    }
    Ok(match findings.len() {
        0 => ExitCode::SUCCESS,
        count => {
            println!("{count} findings");
            ExitCode::FAILURE
        }
    })
}

/// Everything to change, sorted: path, line, advice.
fn check(args: &Args) -> Result<BTreeSet<(String, usize, String)>> {
    prepare(&args.scratch)?;
    let mut findings = BTreeSet::new();
    let mut pages = Vec::new();
    for path in files(&args.paths)? {
        // A file that was deleted is listed until that is committed.
        let Ok(source) = fs::read_to_string(&path) else {
            continue;
        };
        let Some(page) = read(&path, &source) else {
            continue;
        };
        for line in page.too_wide(&source, COLUMNS) {
            findings.insert((path.clone(), line, format!("comments end at column {COLUMNS}")));
        }
        let file = args.scratch.join("pages").join(format!("{path}.md"));
        let folder = file.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        fs::write(&file, page.text()).with_context(|| format!("failed to write {}", file.display()))?;
        pages.push((path, page));
    }
    let mut alerts = vale::alerts(&args.vale, &args.scratch)?;
    for (path, page) in pages {
        for alert in alerts.remove(&format!("pages/{path}.md")).unwrap_or_default() {
            let line = page.source_line(alert.line).unwrap_or_default();
            findings.insert((path.clone(), line, alert.message));
        }
    }
    ensure!(
        alerts.is_empty(),
        "vale found something in files that are not there: {alerts:?}"
    );
    Ok(findings)
}

/// An empty folder of pages, Vale's configuration and the rules.
fn prepare(scratch: &Path) -> Result<()> {
    if scratch.exists() {
        fs::remove_dir_all(scratch).with_context(|| format!("failed to remove {}", scratch.display()))?;
    }
    let ours = scratch.join("styles/perfrun");
    fs::create_dir_all(&ours).with_context(|| format!("failed to create {}", ours.display()))?;
    let rules = Path::new("tools/prose/styles");
    for entry in fs::read_dir(rules).with_context(|| format!("failed to list {}", rules.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), ours.join(entry.file_name())).context("failed to copy a rule")?;
    }
    let glossary = fs::read_to_string("docs/glossary.md").context("failed to read docs/glossary.md")?;
    fs::write(ours.join("Glossary.yml"), glossary::style(&glossary)?)
        .context("failed to write the glossary's rules")?;
    let configuration = "StylesPath = styles\nMinAlertLevel = error\n[*.md]\nBasedOnStyles = perfrun\n";
    fs::write(scratch.join("vale.ini"), configuration).context("failed to write vale.ini")
}

/// The files below `paths` that are in the repository or could be, from its root.
fn files(paths: &[PathBuf]) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
        ])
        .args(paths)
        .output()
        .context("failed to start git")?;
    ensure!(
        output.status.success(),
        "git: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(names
        .split_terminator('\0')
        .filter(|name| !NOT_OURS.iter().any(|folder| name.starts_with(folder)))
        .map(str::to_owned)
        .collect())
}

/// The prose of a file, if files of its kind have any.
fn read(path: &str, source: &str) -> Option<Page> {
    let name = path.rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    Some(match extension {
        "md" => Page::verbatim(source),
        "txt" => lines::text(source),
        "rs" => {
            let is_test = path.starts_with("tools/e2e/") || path.contains("/tests/") || stem == "tests";
            rust::page(source, is_test)
        }
        "tpl" => lines::template(source),
        "yaml" if path.contains("/templates/") => lines::template(source),
        "json" | "toml" | "yaml" | "yml" | "Dockerfile" | "editorconfig" | "gitignore" | "dockerignore" => {
            lines::page(source, "#")
        }
        "c" | "css" | "go" | "js" => lines::page(source, "//"),
        _ if matches!(name, "CODEOWNERS" | "Dockerfile") || path == ".ci/run" => lines::page(source, "#"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn what_is_read_depends_on_the_kind_of_file() {
        let text = |path, source| read(path, source).map(|page| page.text().to_owned());
        assert_eq!(text("README.md", "# A\n").as_deref(), Some("# A\n"));
        assert_eq!(text("operator/Dockerfile", "# Why.\n").as_deref(), Some("Why.\n"));
        let source = "fn a() { bail!(\"no such run\") }";
        assert_eq!(
            text("crates/cli/src/run.rs", source).as_deref(),
            Some("no such run\n\n")
        );
        assert_eq!(text("crates/cli/tests/run.rs", source).as_deref(), Some(""));
        assert_eq!(text("docs/img/a.svg", "<svg/>"), None);
    }
}
