//! Measuring kept results again, and what differs from those before.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Output,
};

use anyhow::{Context, Result, bail, ensure};
use flate2::{Compression, write::GzEncoder};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{DOCUMENT, FOLDER, PROFILES, RESULTS};
use crate::{
    files,
    shell::{self, Workspace},
};

/// Results of which documents show tables or plots that are made from samples.
const SAMPLED: [&str; 11] = [
    "echo-period",
    "relay-stress",
    "webrtc-effective",
    "webrtc-go",
    "webrtc-litep2p-1",
    "webrtc-litep2p-2",
    "webrtc-published-1",
    "webrtc-published-2",
    "webrtc-scenario-1",
    "webrtc-scenario-2",
    "webrtc-scenario-2-pods",
];

/// Runs the document of these results, with the options of [`how`], and replaces them. Returns how the new
/// results differ from those before.
pub(super) fn measure(workspace: &Workspace, perfrun: &Path, name: &str) -> Result<String> {
    let (example, options) = how(name);
    let folder = workspace.root.join(FOLDER).join(name);
    let kept = folder.join(DOCUMENT);
    let example = workspace
        .root
        .join("examples")
        .join(example)
        .with_extension("yaml");
    let document = [&example, &kept].into_iter().find(|document| document.is_file());
    let document = document.with_context(|| {
        let [example, kept] = [&example, &kept].map(|document| document.display().to_string());
        format!("there is neither {example} nor {kept}: write the document that {name} measures")
    })?;

    let scratch = workspace.scratch()?.join("results");
    files::empty(&scratch)?;
    println!("\n==> perfrun run {} {}", document.display(), options.join(" "));
    let mut run = workspace.command(perfrun);
    run.arg("run").arg(document).args(options);
    run.arg("--results").arg(&scratch);
    let status = shell::status(&mut run)?;
    // 3 and 4 are verdicts on what the document expects, of a run that is complete.
    ensure!(
        matches!(status.code(), Some(0 | 3 | 4)),
        "`{}`: {status}; the kept results of {name} are unchanged, and those of this run are in {}",
        shell::line(&run),
        scratch.display()
    );
    let new = only_run(&scratch)?;
    let said = if folder.join(RESULTS).is_file() {
        compared(workspace, perfrun, &folder, &new)?
    } else {
        "There are no earlier results.\n".to_owned()
    };
    if document != &kept {
        files::copy(document, &kept)?;
    }
    keep(
        &new.join("results.json"),
        &folder.join(RESULTS),
        SAMPLED.contains(&name),
    )?;
    if new.join(PROFILES).is_dir() {
        files::replace(&new.join(PROFILES), &folder.join(PROFILES))?;
        compress_stacks(&folder.join(PROFILES))?;
    }
    Ok(format!("{name}, compared with the results before:\n{said}"))
}

/// The example that results with this name are of, and the options with which `perfrun run` measures them.
fn how(name: &str) -> (&str, &'static [&'static str]) {
    if let Some(example) = name.strip_suffix("-pods") {
        return (example, &["--cluster"]);
    }
    match name.strip_suffix("-profile") {
        Some(example) => (example, &["--wait-quiet", "60s", "--profile"]),
        None => (name, &["--wait-quiet", "60s"]),
    }
}

fn only_run(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let runs: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    match &runs[..] {
        [run] => Ok(run.clone()),
        _ => bail!("{} runs: a document whose results are kept has one", runs.len()),
    }
}

/// Compresses results. Histograms, of which no document shows more than the percentiles, are left out, and
/// samples unless a document shows what is made from them.
fn keep(from: &Path, to: &Path, has_samples: bool) -> Result<()> {
    let mut results: Value = serde_json::from_str(&files::read(from)?)
        .with_context(|| format!("failed to read {}", from.display()))?;
    lighten(&mut results, has_samples);
    compress(&serde_json::to_vec(&results)?, to)
}

/// Compresses the stacks of profiles.
fn compress_stacks(profiles: &Path) -> Result<()> {
    for file in files::files_under(profiles)? {
        let file = profiles.join(file);
        if file.extension().is_some_and(|extension| extension == "folded") {
            compress(files::read(&file)?.as_bytes(), &file.with_extension("folded.gz"))?;
            fs::remove_file(&file).with_context(|| format!("failed to remove {}", file.display()))?;
        }
    }
    Ok(())
}

fn compress(bytes: &[u8], to: &Path) -> Result<()> {
    let write = || {
        let mut compressed = GzEncoder::new(File::create(to)?, Compression::best());
        compressed.write_all(bytes)?;
        compressed.finish()
    };
    write().with_context(|| format!("failed to write {}", to.display()))?;
    Ok(())
}

fn lighten(results: &mut Value, has_samples: bool) {
    let trials = results.get_mut("trials").and_then(Value::as_array_mut);
    let nodes = trials
        .into_iter()
        .flatten()
        .filter_map(|trial| trial.get_mut("nodes")?.as_object_mut());
    let nodes = nodes.flat_map(Map::values_mut);
    for measured in nodes.filter_map(|node| node.get_mut("measured")?.as_object_mut()) {
        measured.remove("histograms");
        if !has_samples {
            measured.remove("samples");
        }
    }
}

/// What differs between the kept results and new ones, in words.
fn compared(workspace: &Workspace, perfrun: &Path, kept: &Path, new: &Path) -> Result<String> {
    let printed = |args: &[&str], results: &[&Path]| {
        let mut command = workspace.command(perfrun);
        command
            .args(args)
            .args(["--output", "json", "--inconclusive", "pass"])
            .args(results);
        command
            .output()
            .with_context(|| format!("failed to start `{}`", shell::line(&command)))
    };
    let both = [kept, new];
    let mut compared = printed(&["compare"], &both)?;
    let refusal = String::from_utf8_lossy(&compared.stderr).into_owned();
    // A refusal lists what differs besides the values, and names the fields.
    if let Some((_, fields)) = refusal.split_once("--allow ") {
        let fields = fields.split_whitespace().next().unwrap_or_default();
        compared = printed(&["compare", "--allow", fields], &both)?;
    }
    // 3 says that something is slower.
    if !matches!(compared.status.code(), Some(0 | 3)) {
        return Ok(refusal);
    }
    let compared: Compared = parsed(&compared)?;
    let [kept, new] = [
        parsed(&printed(&["report"], &[kept])?)?,
        parsed(&printed(&["report"], &[new])?)?,
    ];
    Ok(refusal + &words(&compared, &kept, &new))
}

fn parsed<T: DeserializeOwned>(ended: &Output) -> Result<T> {
    serde_json::from_slice(&ended.stdout).with_context(|| {
        let stderr = String::from_utf8_lossy(&ended.stderr);
        format!("failed to read what perfrun printed: {stderr}")
    })
}

/// What `perfrun compare` prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    is_same_program: bool,
    comparisons: Vec<Comparison>,
}

#[derive(Deserialize)]
struct Comparison {
    metric: String,
}

/// What `perfrun report` prints.
#[derive(Deserialize)]
struct Results {
    summary: Vec<Row>,
}

/// A median.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    cell: String,
    metric: String,
    median: f64,
    ci95_low: Option<f64>,
    ci95_high: Option<f64>,
}

/// A line for each cell and each metric that stands for the workload. Two medians are the same if their
/// intervals overlap. The interval of `perfrun compare` holds for both medians together, which needs more
/// than the six trials of a short document.
fn words(compared: &Compared, kept: &Results, new: &Results) -> String {
    let metrics: BTreeSet<_> = compared
        .comparisons
        .iter()
        .map(|comparison| &comparison.metric)
        .collect();
    let mut lines = match compared.is_same_program {
        true => "Both runs have the same program.\n",
        false => "The programs differ.\n",
    }
    .to_owned();
    let (mut same, mut all) = (0, 0);
    for row in new.summary.iter().filter(|row| metrics.contains(&row.metric)) {
        let is_of_row = |other: &&Row| other.cell == row.cell && other.metric == row.metric;
        let word = match kept.summary.iter().find(is_of_row) {
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
fn overlap(a: &Row, b: &Row) -> Option<bool> {
    Some(a.ci95_low? <= b.ci95_high? && b.ci95_low? <= a.ci95_high?)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::{Value, how, lighten, words};

    #[test]
    fn kept_results_have_no_histograms_and_samples_only_where_they_are_shown() {
        let results =
            |measured: Value| json!({"trials": [{"nodes": {"client-0": {"measured": measured}}}, {}]});
        let whole = json!({"bytes": 1, "histograms": {}, "samples": []});
        for (has_samples, kept) in [
            (true, json!({"bytes": 1, "samples": []})),
            (false, json!({"bytes": 1})),
        ] {
            let mut light = results(whole.clone());
            lighten(&mut light, has_samples);
            assert_eq!(light, results(kept));
        }
    }

    fn results(rows: &[(&str, &str, [f64; 3])]) -> Value {
        let rows = rows.iter().map(|(cell, metric, [low, median, high])| {
            json!({"cell": cell, "metric": metric, "median": median, "ci95Low": low, "ci95High": high})
        });
        json!({"name": "quick", "summary": rows.collect::<Vec<_>>()})
    }

    #[test]
    fn the_end_of_a_name_says_how_its_example_is_measured() {
        assert_eq!(how("compare-pods"), ("compare", &["--cluster"][..]));
        let options = ["--wait-quiet", "60s", "--profile"];
        assert_eq!(how("compare-profile"), ("compare", &options[..]));
        assert_eq!(how("compare"), ("compare", &options[..2]));
    }

    #[test]
    fn medians_are_the_same_if_their_intervals_overlap() {
        let compared = json!({"isSameProgram": false, "comparisons": [
            {"metric": "uploadGoodput", "candidate": "a.tcp"},
            {"metric": "uploadGoodput", "candidate": "b.tcp"},
        ]});
        let kept = results(&[
            ("raw.tcp", "uploadGoodput", [9.0, 10.0, 12.0]),
            ("a.tcp", "uploadGoodput", [3.0, 4.0, 4.5]),
            ("b.tcp", "uploadGoodput", [3.0, 4.0, 4.5]),
        ]);
        let mut new = results(&[
            ("raw.tcp", "uploadGoodput", [11.5, 13.0, 15.0]),
            ("raw.tcp", "rss", [1.0, 1.0, 1.0]),
            ("a.tcp", "uploadGoodput", [4.6, 5.0, 6.0]),
            ("b.tcp", "uploadGoodput", [3.0, 3.9, 4.5]),
            ("c.tcp", "uploadGoodput", [3.0, 4.0, 4.5]),
        ]);
        new["summary"][3].as_object_mut().unwrap().remove("ci95Low");
        assert_eq!(
            words(
                &from_value(compared).unwrap(),
                &from_value(kept).unwrap(),
                &from_value(new).unwrap()
            ),
            "The programs differ.
  raw.tcp uploadGoodput: the same, +30.0 %
  a.tcp uploadGoodput: differs, +25.0 %
  b.tcp uploadGoodput: too few trials for an interval, -2.5 %
  c.tcp uploadGoodput: not measured before
1 of 4 are the same: the 95 % intervals of both medians overlap.
"
        );
    }
}
