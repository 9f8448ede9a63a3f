//! Checks the language of this repository: `cargo xtask prose [PATH…]` runs it.
//!
//! Vale judges, by the rules in `styles` and those made from docs/glossary.md. This program copies the prose
//! of each file to a page of its own, at the same lines. Vale can read comments of some languages, but takes
//! four times as long, loses a few findings, and reads no messages. This program needs no other crate of the
//! workspace, so that `cargo xtask prose` builds little.

mod glossary;
mod lines;
mod page;
mod rust;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::page::{COLUMNS, Page};

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
    for path in files(&args.paths)? {
        // A file that was deleted is listed until that is committed.
        let Ok(source) = fs::read_to_string(&path) else {
            continue;
        };
        let Some(page) = read(&path, &source) else {
            continue;
        };
        let too_wide = format!("comments end at column {COLUMNS}");
        findings.extend(
            page.too_wide
                .iter()
                .map(|&line| (path.clone(), line, too_wide.clone())),
        );
        let file = args.scratch.join("pages").join(format!("{path}.md"));
        let folder = file.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        fs::write(&file, page.markdown()).with_context(|| format!("failed to write {}", file.display()))?;
    }
    let output = Command::new(&args.vale)
        .current_dir(&args.scratch)
        .args(["--config=vale.ini", "--output=line", "--no-exit", "pages"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to start {}", args.vale.display()))?;
    let alerts = String::from_utf8(output.stdout).context("vale writes UTF-8")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "vale: {alerts}{errors}");
    for alert in alerts.lines() {
        findings.insert(finding(alert).with_context(|| format!("vale: {alert}"))?);
    }
    Ok(findings)
}

/// One line of Vale: path of the page, line, column, rule, message.
fn finding(alert: &str) -> Option<(String, usize, String)> {
    let (path, rest) = alert.strip_prefix("pages/")?.split_once(".md:")?;
    let mut rest = rest.splitn(4, ':');
    let line = rest.next()?.parse().ok()?;
    Some((path.to_owned(), line, rest.nth(2)?.to_owned()))
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
        let rule = fs::read_to_string(entry.path()).context("failed to read a rule")?;
        fs::write(ours.join(entry.file_name()), across_lines(&rule)).context("failed to write a rule")?;
    }
    let glossary = fs::read_to_string("docs/glossary.md").context("failed to read docs/glossary.md")?;
    fs::write(
        ours.join("Glossary.yml"),
        across_lines(&glossary::style(&glossary)?),
    )
    .context("failed to write the glossary's rules")?;
    let configuration = "StylesPath = styles\nMinAlertLevel = error\n[*.md]\nBasedOnStyles = perfrun\n";
    fs::write(scratch.join("vale.ini"), configuration).context("failed to write vale.ini")
}

/// A rule whose phrases, the keys of its map, can be broken at the end of a line.
fn across_lines(rule: &str) -> String {
    let across = |line: &str| match line.rsplit_once("': '") {
        Some((phrase, advice)) => format!("  {}': '{advice}\n", phrase.trim_start().replace(' ', r"\s")),
        None => format!("{line}\n"),
    };
    rule.lines().map(across).collect()
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
fn read<'a>(path: &str, source: &'a str) -> Option<Page<'a>> {
    let name = path.rsplit('/').next()?;
    let (_, extension) = name.rsplit_once('.').unwrap_or((name, name));
    Some(match extension {
        "md" => Page::verbatim(source),
        "txt" => {
            let mut page = Page::new(source);
            page.text(0, 0, source);
            page
        }
        "rs" => rust::page(source, path.contains("/tests/") || name == "tests.rs"),
        "tpl" => lines::page(source, "#", true),
        "yaml" => lines::page(source, "#", path.contains("/templates/")),
        "json" | "toml" | "yml" | "py" | "editorconfig" | "gitignore" | "dockerignore" | "Dockerfile"
        | "CODEOWNERS" => lines::page(source, "#", false),
        "c" | "css" | "go" | "js" => lines::page(source, "//", false),
        _ if path == ".ci/run" => lines::page(source, "#", false),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{across_lines, finding, read};

    /// The lines of a page that are not empty, each with its number.
    fn lines(path: &str, source: &str) -> Vec<String> {
        let text = read(path, source).unwrap().markdown();
        let lines = (1..).zip(text.lines()).filter(|(_, text)| !text.is_empty());
        lines.map(|(line, text)| format!("{line} {text}")).collect()
    }

    #[test]
    fn comments_of_rust_are_read_at_their_lines() {
        let source = "//! Owns\n//! links.\n\n/// A link.\n///\n/// - More.\nfn a(b: &'a str) {} // Why not.\nlet a = 1; // One.\n\
                      // Two\n// three.\n/* Four\n * five. */\n";
        let expected = [
            "1 Owns",
            "2 links.",
            "4 A link.",
            "6 - More.",
            "7 - Why not.",
            "8 - One.",
            "9 - Two",
            "10 three.",
            "11 - Four",
            "12 - five. */",
        ];
        assert_eq!(lines("a.rs", source), expected);
    }

    #[test]
    fn messages_of_rust_are_read() {
        let source = r##"#[error("failed to read {path}")]
            bail!("no node is ready", "# of `{0}` is not odd"); // Why.
            let key = ("trial-duration", "/proc/self/stat", "{name} {value}", "apiVersion: v1", "name   value");
            let rule = Rule::new("self.rate > 0 || self.delay > 0").message("set a rate or a delay");
            let raw = r#"say "run" and go"#;
            let long = "a first line \
                        and a <second>\nand more";
            #[cfg(test)]
            use a;
"##;
        let tests = "#[cfg(test)]\nmod tests {\n  // Why.\n  fn c() { d(\"four five six\") }\n}\n";
        let expected = [
            "1 failed to read `x`",
            "2 - no node is ready. \\# of `x` is not odd. Why.",
            "4 set a rate or a delay",
            "5 - say \"run\" and go",
            "6 - a first line",
            "7 and a &lt;second>. and more",
            "12 Why.",
        ];
        assert_eq!(lines("src/a.rs", &format!("{source}{tests}")), expected);
        assert!(lines("a/tests/a.rs", source).iter().all(|line| line == "2 Why."));
    }

    #[test]
    fn other_files_are_read_by_their_kind() {
        assert_eq!(lines("README.md", "# A\n"), ["1 # A"]);
        assert_eq!(lines("operator/Dockerfile", "#!a\n# Why.\n"), ["2 Why."]);
        assert_eq!(lines("a.go", "a(\"// no\") // Why.\n"), ["1 Why."]);
        assert_eq!(lines("NOTES.txt", "A {{ b }} c\n"), ["1 A `x` c"]);
        assert!(read("docs/img/a.svg", "<svg/>").is_none());
        let source = "# One\n# two.\na: \"# no\" # Why.\nb: it's # Three.\n\n#\nc: d#e\n";
        assert_eq!(
            lines("a.toml", source),
            ["1 One", "2 two.", "3 - Why.", "4 - Three."]
        );
        let source = "summary: Run {{ $labels.run }} failed.\nrunbook: >-\n  See\n  why.\nexpr: >-\n  a\n  \"title\": \"Trials\",\n";
        let expected = ["1 Run `x` failed.", "3 See", "4 why.", "7 Trials"];
        assert_eq!(lines("a.yaml", source), expected);
        let source =
            "{{- /* Why\nnot. */ -}}\n{{- fail \"set one of them\" }}\nkind: {{ \"Pod\" }}\n# Of YAML\n";
        let expected = ["1 Why", "2 not.", "3 - set one of them", "5 Of YAML"];
        assert_eq!(lines("charts/templates/a.yaml", source), expected);
    }

    #[test]
    fn only_comments_that_could_be_wrapped_are_too_wide() {
        let wide = |text: &str| format!("{}{text}\n", " ".repeat(100));
        let source = [
            "// words of it",
            "a(\"words of it\")",
            "/// | a | table |",
            "// https://example.org/",
        ]
        .map(wide);
        assert_eq!(read("a.rs", &source.concat()).unwrap().too_wide, [1]);
    }

    #[test]
    fn phrases_are_found_across_lines_and_findings_have_theirs() {
        assert_eq!(
            across_lines("swap:\n  'it''s so': 'a b'"),
            "swap:\n  'it''s\\sso': 'a b'\n"
        );
        let alert = "pages/a/README.md.md:3:7:perfrun.Phrases:write 'a': no";
        assert_eq!(
            finding(alert),
            Some(("a/README.md".to_owned(), 3, "write 'a': no".to_owned()))
        );
    }
}
