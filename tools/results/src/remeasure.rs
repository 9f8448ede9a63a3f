//! Measuring committed results again, and what differs from those before.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    slice::from_ref,
};

use anyhow::{Context, Result, bail, ensure};
use flate2::{Compression, write::GzEncoder};
use perfrun_api::results::Results;
use perfrun_cli::results_folder;
use perfrun_contract::{metric::Metric, summary::SummaryRow};
use perfrun_judge::runs::Basis;
use perfrun_report::{
    differences::{differences, differences_table},
    runs::{ComparedRuns, RunsComparison},
};

use crate::{
    folder::{DOCUMENT, FOLDER, PROFILES, RESULTS, entries, read},
    marks,
};

/// Measures these results again, replaces them, and prints how they differ from those before.
pub(crate) fn measure(perfrun: &Path, scratch: &Path, names: &[String]) -> Result<()> {
    let changes = names
        .iter()
        .map(|name| replace(perfrun, &scratch.join(name), name));
    let changes = changes.collect::<Result<Vec<_>>>()?;
    println!("\n{}", changes.join("\n"));
    Ok(())
}

/// Runs the document of these results, with the options of [`example_and_options`], and replaces them.
/// Returns how the new results differ from those before.
fn replace(perfrun: &Path, scratch: &Path, name: &str) -> Result<String> {
    let (example, options) = example_and_options(name);
    let folder = Path::new(FOLDER).join(name);
    let kept = folder.join(DOCUMENT);
    let example = Path::new("examples").join(example).with_extension("yaml");
    let document = [&example, &kept].into_iter().find(|document| document.is_file());
    let document = document.with_context(|| {
        let [example, kept] = [&example, &kept].map(|document| document.display());
        format!("there is neither {example} nor {kept}: write the document that {name} measures")
    })?;

    if scratch.is_dir() {
        fs::remove_dir_all(scratch).with_context(|| format!("failed to empty {}", scratch.display()))?;
    }
    println!("\n==> perfrun run {} {}", document.display(), options.join(" "));
    let mut run = Command::new(perfrun);
    run.arg("run").arg(document).args(options);
    run.arg("--results").arg(scratch).stdin(Stdio::null());
    let status = run
        .status()
        .with_context(|| format!("failed to start {}", perfrun.display()))?;
    // 3 and 4 are verdicts on what the document expects, of a run that is complete.
    ensure!(
        matches!(status.code(), Some(0 | 3 | 4)),
        "`perfrun run {}`: {status}; the committed results of {name} are unchanged, and those of this run are in {}",
        document.display(),
        scratch.display()
    );
    let run = only_run(scratch)?;
    let mut new = results_folder::read(&run)?;
    let changes = match folder
        .join(RESULTS)
        .is_file()
        .then(|| results_folder::read(&folder))
    {
        Some(Ok(kept)) => compared(&kept, &new),
        Some(Err(error)) => format!("{:#}\n", anyhow::Error::from(error)),
        None => "There are no earlier results.\n".to_owned(),
    };
    lighten(&mut new, shows_samples(&pages()?, name)?);
    let new = serde_json::to_vec(&new).context("failed to encode the results")?;
    let write = || {
        fs::create_dir_all(&folder)?;
        if document != &kept {
            fs::copy(document, &kept)?;
        }
        compress(&new, &folder.join(RESULTS))
    };
    write().with_context(|| format!("failed to write to {}", folder.display()))?;
    if run.join(PROFILES).is_dir() {
        keep_profiles(&run.join(PROFILES), &folder.join(PROFILES))?;
    }
    Ok(format!("{name}, compared with the results before:\n{changes}"))
}

/// The example that results with this name are of, and the options with which `perfrun run` measures them.
fn example_and_options(name: &str) -> (&str, &'static [&'static str]) {
    if let Some(example) = name.strip_suffix("-pods") {
        return (example, &["--cluster"]);
    }
    match name.strip_suffix("-profile") {
        Some(example) => (example, &["--wait-quiet", "60s", "--profile"]),
        None => (name, &["--wait-quiet", "60s"]),
    }
}

fn only_run(folder: &Path) -> Result<PathBuf> {
    match &entries(folder)?[..] {
        [run] => Ok(run.clone()),
        runs => bail!("{} runs: a document whose results are kept has one", runs.len()),
    }
}

/// The text of all pages about results. No other document shows what is made from samples.
fn pages() -> Result<String> {
    let files = entries(Path::new(FOLDER))?.into_iter();
    let pages = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    pages.map(|page| read(&page)).collect()
}

/// Whether pages show a table or a plot of these results that is made from samples.
fn shows_samples(pages: &str, results: &str) -> Result<bool> {
    let mut shows = false;
    marks::filled(FOLDER, pages, |name, parts| {
        let is_of_samples = |part: &&str| {
            let is_course =
                part.ends_with("-over-time.svg") || part.starts_with("echo-") || *part == "payload.svg";
            part.starts_with("Echo as published") || is_course
        };
        shows |= name == results && parts.iter().any(is_of_samples);
        Ok(String::new())
    })?;
    Ok(shows)
}

/// Leaves out histograms, of which no document shows more than the percentiles, and samples unless a document
/// shows what is made from them.
fn lighten(results: &mut Results, has_samples: bool) {
    let nodes = results
        .trials
        .iter_mut()
        .flat_map(|trial| trial.nodes.values_mut());
    for node in nodes {
        node.measured.histograms.clear();
        if !has_samples {
            node.measured.samples.clear();
        }
    }
}

/// Keeps flame graphs, and stacks compressed, in place of others.
fn keep_profiles(from: &Path, to: &Path) -> Result<()> {
    let files = entries(from)?;
    let write = || -> io::Result<()> {
        if to.is_dir() {
            fs::remove_dir_all(to)?;
        }
        fs::create_dir_all(to)?;
        for file in &files {
            let kept = to.join(file.file_name().unwrap_or_default());
            match file.extension().is_some_and(|extension| extension == "folded") {
                true => compress(&fs::read(file)?, &kept.with_extension("folded.gz"))?,
                false => fs::copy(file, kept).map(drop)?,
            }
        }
        Ok(())
    };
    write().with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))
}

fn compress(bytes: &[u8], to: &Path) -> io::Result<()> {
    let mut compressed = GzEncoder::new(File::create(to)?, Compression::best());
    compressed.write_all(bytes)?;
    compressed.finish().map(drop)
}

/// What differs between the committed results and new ones, in words.
fn compared(kept: &Results, new: &Results) -> String {
    let [before, after] = [kept, new].map(Results::reported_run);
    let runs = ComparedRuns {
        baselines: from_ref(&before),
        candidates: from_ref(&after),
    };
    let plan = runs.shared_plan();
    if plan.judging.cell_pairs.is_empty() {
        return "The runs have no cell in common.\n".to_owned();
    }
    let differences = differences(&plan, runs);
    let mut changes = match differences.is_empty() {
        true => String::new(),
        false => differences_table(&differences, 1, COLUMNS) + "\n",
    };
    let programs = |results: &Results| -> BTreeSet<Option<String>> {
        let nodes = results.environment.nodes.values();
        nodes.map(|node| node.program_sha256.clone()).collect()
    };
    changes += match programs(kept) == programs(new) && !programs(new).contains(&None) {
        true => "Both runs have the same program.\n",
        false => "The programs differ.\n",
    };
    let compared = RunsComparison::new(Basis::TwoRuns, plan, runs);
    let metrics = compared.judged.comparisons.iter().map(|found| found.metric);
    changes + &changes_of_medians(&BTreeSet::from_iter(metrics), &kept.summary, &new.summary)
}

/// The width of tables.
const COLUMNS: usize = 120;

/// A line for each cell and each of the metrics, which stand for the workload. Two medians are the same if
/// their intervals overlap. The interval of `perfrun compare` holds for both medians together, which needs
/// more than the six trials of a short document.
fn changes_of_medians(metrics: &BTreeSet<Metric>, kept: &[SummaryRow], new: &[SummaryRow]) -> String {
    let (mut lines, mut same, mut all) = (String::new(), 0, 0);
    for row in new.iter().filter(|row| metrics.contains(&row.metric)) {
        let is_of_row = |other: &&SummaryRow| other.cell == row.cell && other.metric == row.metric;
        let word = match kept.iter().find(is_of_row) {
            Some(before) => {
                let change = (row.median / before.median - 1.0) * 100.0;
                let word = match overlap(before, row) {
                    Some(true) => "the same",
                    Some(false) => "differs",
                    None => "too few trials for an interval",
                };
                format!("{word}, {change:+.1} %")
            }
            None => "not measured before".to_owned(),
        };
        all += 1;
        same += u32::from(word.starts_with("the same"));
        let _ = writeln!(lines, "  {} {}: {word}", row.cell, row.metric);
    }
    let _ = writeln!(
        lines,
        "{same} of {all} are the same: the 95 % intervals of both medians overlap."
    );
    lines
}

/// Whether the intervals overlap. `None` if one of them has none.
fn overlap(a: &SummaryRow, b: &SummaryRow) -> Option<bool> {
    Some(a.ci95_low? <= b.ci95_high? && b.ci95_low? <= a.ci95_high?)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use perfrun_test_kit::results::run;

    use super::{
        Metric, SummaryRow, changes_of_medians, compared, example_and_options, lighten, shows_samples,
    };

    const SPEC: &str = "
  workload:
    bandwidth: {sizes: [64Mi], directions: [upload]}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp]}
  iterations: 6
";

    #[test]
    fn kept_results_have_no_histograms_and_samples_only_where_they_are_shown() {
        let echo = "
  workload: {echo: {loads: [{connections: 2, streamsPerConnection: 50}], duration: 20s}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp]}
";
        for has_samples in [true, false] {
            let mut results = run(echo).results();
            lighten(&mut results, has_samples);
            let nodes = || results.trials.iter().flat_map(|trial| trial.nodes.values());
            assert!(nodes().all(|node| node.measured.histograms.is_empty()));
            assert_eq!(nodes().any(|node| !node.measured.samples.is_empty()), has_samples);
        }
    }

    #[test]
    fn samples_are_kept_if_a_page_shows_what_is_made_from_them() {
        let pages = "<!-- results a Echo; Echo as published: all streams -->\n<!-- end -->\n\
                     <!-- results b Echo; relay-stress-circuits-over-time.svg -->\n<!-- end -->\n\
                     <!-- results c Echo; echo-payload.svg -->\n<!-- end -->\n\
                     <!-- results d Goodput; comparison.svg -->\n<!-- end -->\n";
        let shows = ["a", "b", "c", "d"].map(|name| shows_samples(pages, name).unwrap());
        assert_eq!(shows, [true, true, true, false]);
    }

    #[test]
    fn differences_of_two_runs_are_listed_before_their_medians() {
        let kept = run(SPEC).results();
        let mut new = run(SPEC).changed("libp2p.", Metric::UploadGoodput, 0.5).results();
        let node = new.environment.nodes.values_mut().next().unwrap();
        (node.kernel, node.program_sha256) = ("6.19".to_owned(), None);
        let changes = compared(&kept, &new);
        assert!(changes.contains("kernel"), "{changes}");
        assert!(changes.contains("\nThe programs differ.\n"), "{changes}");
        assert!(changes.contains("uploadGoodput: differs, -50.0 %\n"), "{changes}");
        assert!(changes.contains("uploadGoodput: the same, +0.0 %\n"), "{changes}");
        assert!(compared(&kept, &kept).starts_with("Both runs have the same program.\n"));
    }

    fn rows(rows: &[(&str, Metric, [f64; 3])]) -> Vec<SummaryRow> {
        let row = |(cell, metric, [low, median, high]): &(&str, Metric, [f64; 3])| SummaryRow {
            cell: (*cell).to_owned(),
            metric: *metric,
            unit: metric.unit(),
            count: 6,
            median: *median,
            mean: *median,
            ci95_low: Some(*low),
            ci95_high: Some(*high),
            min: *low,
            max: *high,
            share_of_raw: None,
            share_of_raw_low: None,
            share_of_raw_high: None,
            flags: BTreeMap::new(),
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn the_suffix_of_a_name_selects_how_its_example_is_measured() {
        assert_eq!(
            example_and_options("compare-pods"),
            ("compare", &["--cluster"][..])
        );
        let options = ["--wait-quiet", "60s", "--profile"];
        assert_eq!(example_and_options("compare-profile"), ("compare", &options[..]));
        assert_eq!(example_and_options("compare"), ("compare", &options[..2]));
    }

    #[test]
    fn medians_are_the_same_if_their_intervals_overlap() {
        let goodput = Metric::UploadGoodput;
        let kept = rows(&[
            ("raw.tcp", goodput, [9.0, 10.0, 12.0]),
            ("a.tcp", goodput, [3.0, 4.0, 4.5]),
            ("b.tcp", goodput, [3.0, 4.0, 4.5]),
        ]);
        let mut new = rows(&[
            ("raw.tcp", goodput, [11.5, 13.0, 15.0]),
            ("raw.tcp", Metric::ClientPeakRss, [1.0, 1.0, 1.0]),
            ("a.tcp", goodput, [4.6, 5.0, 6.0]),
            ("b.tcp", goodput, [3.0, 3.9, 4.5]),
            ("c.tcp", goodput, [3.0, 4.0, 4.5]),
        ]);
        new[3].ci95_low = None;
        assert_eq!(
            changes_of_medians(&BTreeSet::from([goodput]), &kept, &new),
            "  raw.tcp uploadGoodput: the same, +30.0 %
  a.tcp uploadGoodput: differs, +25.0 %
  b.tcp uploadGoodput: too few trials for an interval, -2.5 %
  c.tcp uploadGoodput: not measured before
1 of 4 are the same: the 95 % intervals of both medians overlap.
"
        );
    }
}
