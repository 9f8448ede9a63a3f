//! Documents show what committed results say: `cargo xtask results` runs this program.
//!
//! docs/results/NAME holds results as `perfrun run` writes them, compressed, and the document that was
//! measured. README.md and docs/ show parts of the report of these results (`marks`), so that a published
//! number never differs from what a reader gets from the same results. Tables about many runs are those of
//! `comparisons`. `benchmarks` of perfrun itself are shown as they were printed, and other measurements as
//! medians (`measurements`).

mod benchmarks;
mod comparisons;
mod folder;
mod marks;
mod measurements;
mod medians;
mod remeasure;
mod report;
mod terminal;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Parser;

use self::{
    folder::{FOLDER, PROFILES, RESULTS, entries, read},
    report::{ENVIRONMENT, Report},
};

/// The page about all committed results.
const PAGE: &str = "docs/results/kept.md";

/// For each name, the documents that show its results, and the parts there.
type Shown<'a> = BTreeMap<&'a str, Vec<(&'a str, String)>>;

/// The page of all commands. It is made here because no other generator knows perfrun.
const COMMANDS: &str = "docs/reference/commands.md";

#[derive(Parser)]
#[command(about = "Documents that show what committed results say, and measuring these again")]
enum Command {
    /// Write what documents, plots and the page about results must have to a folder
    Documents {
        folder: PathBuf,
        /// Documents that may show results
        documents: Vec<String>,
    },
    /// Measure committed results again, and say what differs from those before
    Measure {
        /// The program that measures
        perfrun: PathBuf,
        /// An empty folder for what it writes
        scratch: PathBuf,
        names: Vec<String>,
    },
    /// Keep what the comparisons of these runs found, and their trials
    Comparisons { runs: Vec<PathBuf> },
}

#[expect(clippy::print_stderr, reason = "where a command line tool says why it failed")]
fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Documents { folder, documents } => generate(&folder, &documents),
        Command::Measure {
            perfrun,
            scratch,
            names,
        } => remeasure::measure(&perfrun, &scratch, &names),
        Command::Comparisons { runs } => comparisons::keep(&runs),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn generate(to: &Path, documents: &[String]) -> Result<()> {
    let mut reports = BTreeMap::new();
    for folder in entries(Path::new(FOLDER))? {
        if folder.join(RESULTS).is_file() {
            let name = folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let report = Report::of(&folder, &name)?;
            reports.insert(name, report);
        }
    }
    reports.extend(comparisons::report()?);
    reports.extend(benchmarks::reports()?);
    reports.extend(measurements::reports()?);
    let documents = documents.iter().filter(|document| *document != PAGE);
    let documents = documents.map(|document| Ok((document.clone(), read(Path::new(document))?)));
    for (file, text) in files(&reports, &documents.collect::<Result<Vec<_>>>()?)? {
        let file = to.join(file);
        let write = || {
            fs::create_dir_all(file.parent().unwrap_or(to))?;
            fs::write(&file, text)
        };
        write().with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(())
}

/// What documents, plots and the page about results must have, by their paths.
fn files(
    reports: &BTreeMap<String, Report>,
    documents: &[(String, String)],
) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut shown = Shown::new();
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
                if let Some(svg) = report.plots.get(*part) {
                    let path = format!("docs/img/{name}-{part}");
                    content.push(format!("![{}]({root}{path})", title(svg)));
                    files.insert(path, svg.clone());
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
            let Report { day, build, .. } = report;
            content.push(format!(
                "From [{name}]({root}{PAGE}#{name}), measured {day}, build {build}."
            ));
            let shown = shown.entry(name).or_default();
            shown.push((file.as_str(), parts.join(", ")));
            Ok(content.join("\n\n"))
        })?;
        files.insert(file.clone(), filled);
    }
    files.insert(PAGE.to_owned(), page(reports, &shown));
    files.insert(COMMANDS.to_owned(), perfrun_cli::args::reference());
    Ok(files)
}

/// The words that a reader gets in place of the picture.
fn title(svg: &str) -> &str {
    let title = svg.split_once("<title>");
    let title = title.and_then(|(_, rest)| rest.split_once("</title>"));
    title.map_or("plot", |(title, _)| title)
}

/// The page that says what each of the published numbers is of.
fn page(reports: &BTreeMap<String, Report>, shown: &Shown<'_>) -> String {
    let mut page = "# Committed results\n\n\
        `cargo xtask results` generates this page. It has the build, the machine and the day of all results that \
        this folder keeps.\n\n\
        `perfrun report docs/results/NAME --all` prints all tables of one. It cannot print the folder comparisons/, \
        which is of many runs, or the output of `cargo xtask bench` and `cargo xtask fuzz`.\n\n\
        | Results | Build | Day | CPU | Pages |\n\
        | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let shown = |name: &str| shown.get(name).into_iter().flatten();
    for (name, report) in reports {
        let pages: BTreeSet<_> = shown(name).map(|(file, _)| link(file)).collect();
        let pages = Vec::from_iter(pages).join(", ");
        let Report { day, build, .. } = report;
        let cpu = report.cpu();
        let _ = writeln!(page, "| [{name}](#{name}) | {build} | {day} | {cpu} | {pages} |");
    }
    for (name, report) in reports {
        let parts = shown(name).map(|(file, parts)| format!(" {} shows {parts}.", link(file)));
        let parts: String = parts.collect();
        let _ = writeln!(page, "\n## {name}\n\n{}.{parts}", report.sources);
        if let Some(environment) = report.text(ENVIRONMENT) {
            let _ = writeln!(page, "\n{environment}");
        }
    }
    page + "\nNext: [how results are kept](../how-to/contribute/keep-results.md).\n"
}

/// A link to a document, for the page about all committed results.
fn link(file: &str) -> String {
    format!("[{file}](../../{file})")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{PAGE, Report, files};

    fn made(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let table = |heading: &str, text: &str| (heading.to_owned(), text.to_owned());
        let tables = vec![
            table(
                "Goodput",
                "Of the receiver.\n\n| Pair | tcp |\n| --- | ---: |\n| a | 1 Mbit/s |",
            ),
            table("Profiles", "| a | [profiles/a.svg](<profiles/a.svg>) |"),
        ];
        let environment = [
            ("Build", "commit 89abcde, sha256 0123".to_owned()),
            ("CPU", "2 × Some CPU".to_owned()),
            ("Started", "2026-11-26T08:42:42Z".to_owned()),
        ];
        let mut report = Report::with(
            "[results](quick/results.json.gz)".to_owned(),
            tables,
            &environment,
        );
        report.sections.paragraphs = ["Worse: uploads.", "Worse: downloads.", "Verdict: Fail."]
            .map(str::to_owned)
            .into();
        let svg = "<svg><title>speed</title></svg>\n".to_owned();
        report.plots = BTreeMap::from([("speed.svg", svg)]);
        let reports = BTreeMap::from([("quick".to_owned(), report)]);
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
            page.contains("\n## quick\n") && page.contains("\n| Started | 2026-11-26T08:42:42Z |\n"),
            "{page}"
        );
        assert_eq!(files.len(), 4);
    }

    #[test]
    fn the_page_begins_with_a_row_for_each_name_that_names_each_document_once() {
        let block = "<!-- results quick Goodput -->\n<!-- end -->\n";
        let files = made(&block.repeat(2)).unwrap();
        let row = "| --- |\n| [quick](#quick) | commit 89abcde, sha256 0123 | 2026-11-26 | 2 × Some CPU | \
                   [docs/how-to/a.md](../../docs/how-to/a.md) |\n\n## quick\n";
        assert!(files[PAGE].contains(row), "{}", files[PAGE]);
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
