//! `cargo xtask results`: documents show what kept results say.
//!
//! docs/results/NAME holds results as `perfrun run` writes them, compressed, and the document that was
//! measured. README.md and docs/ show parts of the report of these results ([`marks`]). `perfrun report`
//! makes the report, so that a published number never differs from what a reader gets from the same
//! results. Tables about many runs are those of [`comparisons`]. [`benchmarks`] of perfrun itself are shown
//! as they were printed, and other measurements as medians ([`records`]).

mod again;
mod benchmarks;
mod comparisons;
mod marks;
mod medians;
mod records;
mod report;

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};

pub(crate) use self::benchmarks::Benchmark;
use self::report::Report;
use crate::{
    files,
    generated::{self, Generated},
    go, install,
    shell::{Profile, Workspace},
    step::Outcome,
};

/// The folder of kept results.
const FOLDER: &str = "docs/results";
/// The results in it, as `perfrun report` reads them.
const RESULTS: &str = "results.json.gz";
/// The flame graphs and stacks of results with profiles. Reports link them relative to the results.
const PROFILES: &str = "profiles";
/// The document that was measured.
const DOCUMENT: &str = "perfrun.yaml";
/// The page about all kept results.
const PAGE: &str = "docs/results/kept.md";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when a document differs from what the kept results say
    #[arg(long, conflicts_with = "run")]
    check: bool,
    /// Build in release mode, measure examples/NAME.yaml, keep the results, and say whether they differ from
    /// those before. `NAME-pods` measures the same document in pods of the cluster of KUBECONFIG, with the
    /// images there. `NAME-profile` measures it with `--profile` and keeps the profiles, too
    #[arg(long, value_name = "NAME", num_args = 1..)]
    run: Vec<String>,
    /// Keep what these runs found, and their trials, in docs/results/comparisons, in place of earlier runs of
    /// these documents
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["check", "run"])]
    comparisons: Vec<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if !args.comparisons.is_empty() {
        comparisons::keep(&folder_of_comparisons(workspace), &args.comparisons)?;
    }
    if args.run.is_empty() {
        workspace.build(Profile::Dev, &["perfrun"])?;
        if args.check {
            return generated::checked(check(workspace)?);
        }
        generate(workspace, &program(workspace))?.write(&workspace.root)?;
        return Ok(ExitCode::SUCCESS);
    }
    let perfrun = build(workspace)?;
    let measured = args
        .run
        .iter()
        .map(|name| again::measure(workspace, &perfrun, name));
    let said = measured.collect::<Result<Vec<_>>>()?;
    generate(workspace, &perfrun)?.write(&workspace.root)?;
    println!("\n{}", said.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Builds perfrun and its nodes in release mode, with everything that a release has, because any document may
/// need it. Returns the path of perfrun.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    install::packages(workspace, install::BUILD)?;
    println!(
        "==> building perfrun and its nodes in release; the first time takes some twenty minutes on two cores"
    );
    workspace.build(Profile::Release, &["perfrun", "perfrun-node"])?;
    match go::obstacle() {
        None => go::build(workspace, Profile::Release)?,
        Some(obstacle) => println!("==> {obstacle}: documents that name go-libp2p cannot run"),
    }
    Ok(workspace.program(Profile::Release, "perfrun"))
}

/// `cargo xtask test`'s step. perfrun is already built.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    generate(workspace, &program(workspace))?.check(&workspace.root)
}

fn program(workspace: &Workspace) -> PathBuf {
    workspace.program(Profile::Dev, "perfrun")
}

fn folder_of_comparisons(workspace: &Workspace) -> PathBuf {
    workspace.root.join(FOLDER).join(comparisons::NAME)
}

fn generate(workspace: &Workspace, perfrun: &Path) -> Result<Generated> {
    let root = &workspace.root;
    let mut reports = BTreeMap::new();
    for name in kept(&root.join(FOLDER))? {
        let report = Report::of(workspace, perfrun, &name)?;
        reports.insert(name, report);
    }
    if let Some(report) = comparisons::report(&folder_of_comparisons(workspace))? {
        reports.insert(comparisons::NAME.to_owned(), report);
    }
    reports.extend(benchmarks::reports(workspace)?);
    reports.extend(records::reports(&benchmarks::folder(workspace))?);
    let mut documents = vec![];
    let below_docs = files::files_under(&root.join("docs"))?.into_iter();
    for file in below_docs
        .map(|file| Path::new("docs").join(file))
        .chain(["README.md".into()])
    {
        let name = file.to_string_lossy().into_owned();
        if file.extension().is_some_and(|extension| extension == "md") && name != PAGE {
            documents.push((name, files::read(&root.join(file))?));
        }
    }
    // No folder holds generated files only.
    let generated = Generated::new(workspace, "results", |_| true)?;
    for (file, text) in files(&reports, &documents)? {
        generated.add(&file, &text)?;
    }
    Ok(generated)
}

/// The names of kept results.
fn kept(folder: &Path) -> Result<Vec<String>> {
    let context = || format!("failed to list {}", folder.display());
    let entries = fs::read_dir(folder).with_context(context)?;
    let paths = entries.map(|entry| Ok(entry.with_context(context)?.path()));
    let paths = paths.collect::<Result<Vec<_>>>()?;
    let kept = paths.iter().filter(|path| path.join(RESULTS).is_file());
    Ok(kept
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect())
}

/// What documents, plots and the page about results must have, by their paths.
fn files(
    reports: &BTreeMap<String, Report>,
    documents: &[(String, String)],
) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut shown: BTreeMap<&str, String> = BTreeMap::new();
    for (file, text) in documents {
        let root = "../".repeat(file.matches('/').count());
        let filled = marks::filled(file, text, |name, parts| {
            let (name, report) = reports.get_key_value(name).with_context(|| {
                let names: Vec<_> = reports.keys().map(String::as_str).collect();
                let command = benchmarks::command(name).unwrap_or_else(|| format!("results --run {name}"));
                format!(
                    "{FOLDER} has no {name:?}: name one of {}, or measure it with `cargo xtask {command}`",
                    names.join(", ")
                )
            })?;
            let mut content = vec![];
            for part in parts {
                if let Some(plot) = report.plot(part) {
                    let path = format!("docs/img/{name}-{part}");
                    content.push(format!("![{}]({root}{path})", plot.title()));
                    files.insert(path, plot.svg.clone());
                } else {
                    let text = report.text(part).with_context(|| {
                        format!(
                            "the report of {name} has no {part:?}: name one of {}, or the first words of a finding",
                            report.parts().join(", ")
                        )
                    })?;
                    let profiles = format!("](<{root}{FOLDER}/{name}/{PROFILES}/");
                    content.push(text.replace(&format!("](<{PROFILES}/"), &profiles));
                }
            }
            let (day, build) = (report.day(), report.build());
            content.push(format!(
                "From [{name}]({root}{PAGE}#{name}), measured {day}, build {build}."
            ));
            let _ = write!(
                shown.entry(name).or_default(),
                " [{file}](../../{file}) shows {}.",
                parts.join(", ")
            );
            Ok(content.join("\n\n"))
        })?;
        files.insert(file.clone(), filled);
    }
    files.insert(PAGE.to_owned(), page(reports, &shown));
    Ok(files)
}

/// The page that says what each of the published numbers is of.
fn page(reports: &BTreeMap<String, Report>, shown: &BTreeMap<&str, String>) -> String {
    let mut page = "# Kept results\n\n\
        `cargo xtask results` generates this page. It has the build, the machine and the day of all results that \
        this folder keeps.\n\n\
        `perfrun report docs/results/NAME` prints all tables of one. It cannot print comparisons, which are of many \
        runs, or the output of `cargo xtask bench` and `cargo xtask fuzz`.\n"
        .to_owned();
    for (name, report) in reports {
        let shown = shown.get(&name[..]).map_or("", String::as_str);
        let _ = writeln!(page, "\n## {name}\n\n{}.{shown}", report.sources());
        if let Some(environment) = report.text("Environment") {
            let _ = writeln!(page, "\n{environment}");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{PAGE, Report, files};

    const REPORT: &str = "# quick

Worse: uploads.

Worse: downloads.

Verdict: Fail.

## Goodput

Of the receiver.

| Pair | tcp |
| --- | ---: |
| a | 1 Mbit/s |

¹ 5 of 6 trials.

## Profiles

| cell | flame graph |
| --- | --- |
| a | [profiles/a.svg](<profiles/a.svg>) |

## Environment

|  |  |
| --- | --- |
| Build | commit 89abcde, sha256 0123 |
| Build profile | release |
| Started | 2026-11-26T08:42:42Z |
";

    fn made(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let reports = BTreeMap::from([("quick".to_owned(), Report::with(REPORT, "speed.svg"))]);
        files(&reports, &[("docs/how-to/a.md".to_owned(), text.to_owned())])
    }

    fn refusal(part: &str) -> String {
        let text = format!("a\n<!-- results {part} -->\n<!-- end -->\n");
        format!("{:#}", made(&text).unwrap_err())
    }

    #[test]
    fn a_document_shows_findings_tables_and_plots_with_their_build() {
        let text = "<!-- results quick Worse; Goodput; speed.svg -->\nold\n<!-- end -->\n";
        let files = made(text).unwrap();
        let shown = "<!-- results quick Worse; Goodput; speed.svg -->

Worse: uploads.

Worse: downloads.

Of the receiver.

| Pair | tcp |
| --- | ---: |
| a | 1 Mbit/s |

¹ 5 of 6 trials.

![speed](../../docs/img/quick-speed.svg)

From [quick](../../docs/results/kept.md#quick), measured 2026-11-26, build commit 89abcde, sha256 0123.

<!-- end -->
";
        assert_eq!(files["docs/how-to/a.md"], shown);
        assert!(files["docs/img/quick-speed.svg"].starts_with("<svg>"));
        let page = &files[PAGE];
        let link = "\n[results](quick/results.json.gz). [docs/how-to/a.md](../../docs/how-to/a.md) shows Worse, Goodput, \
                    speed.svg.";
        assert!(page.contains(link), "{page}");
        assert!(
            page.contains("\n## quick\n") && page.contains("\n| Build profile | release |\n"),
            "{page}"
        );
        assert_eq!(files.len(), 3);
    }

    #[test]
    fn a_document_links_the_profiles_of_the_results() {
        let files = made("<!-- results quick Profiles -->\n<!-- end -->\n").unwrap();
        let link = "[profiles/a.svg](<../../docs/results/quick/profiles/a.svg>)";
        assert!(files["docs/how-to/a.md"].contains(link), "{files:?}");
    }

    #[test]
    fn unknown_results_and_parts_are_named_with_those_that_exist() {
        assert_eq!(
            refusal("slow Goodput"),
            "docs/how-to/a.md:2: docs/results has no \"slow\": name one of quick, or measure it with `cargo xtask \
             results --run slow`"
        );
        assert_eq!(
            refusal("bench-plans Output"),
            "docs/how-to/a.md:2: docs/results has no \"bench-plans\": name one of quick, or measure it with `cargo \
             xtask bench plans --keep`"
        );
        assert_eq!(
            refusal("quick Speed"),
            "docs/how-to/a.md:2: the report of quick has no \"Speed\": name one of Goodput, Profiles, Environment, \
             speed.svg, or the first words of a finding"
        );
    }
}
