//! Measuring kept results again, and what differs from those before.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
    process::Output,
};

use anyhow::{Context, Result, bail, ensure};
use flate2::{Compression, write::GzEncoder};
use serde::Deserialize;

use super::{DOCUMENT, FOLDER, RESULTS};
use crate::{
    generated,
    shell::{self, Workspace},
};

/// Runs the document of these results, and replaces them. Returns what the new results say beside those
/// before.
pub(super) fn measure(workspace: &Workspace, perfrun: &Path, name: &str) -> Result<String> {
    let folder = workspace.root.join(FOLDER).join(name);
    let kept = folder.join(DOCUMENT);
    let example = workspace.root.join("examples").join(name).with_extension("yaml");
    let document = [&example, &kept].into_iter().find(|document| document.is_file());
    let document = document.with_context(|| {
        let [example, kept] = [&example, &kept].map(|document| document.display().to_string());
        format!("there is neither {example} nor {kept}: write the document that {name} measures")
    })?;

    let scratch = workspace.scratch()?.join("results");
    generated::empty(&scratch)?;
    println!("\n==> perfrun run {}", document.display());
    let mut run = workspace.command(perfrun);
    run.arg("run")
        .arg(document)
        .args(["--wait-quiet", "60s", "--results"])
        .arg(&scratch);
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
        generated::copy(document, &kept)?;
    }
    compress(&new.join("results.json"), &folder.join(RESULTS))?;
    Ok(format!("{name}, beside the results before:\n{said}"))
}

fn only_run(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let runs: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    match &runs[..] {
        [run] => Ok(run.clone()),
        _ => bail!("{} runs: a document whose results are kept has one", runs.len()),
    }
}

fn compress(from: &Path, to: &Path) -> Result<()> {
    let copy = || {
        let mut compressed = GzEncoder::new(File::create(to)?, Compression::best());
        io::copy(&mut BufReader::new(File::open(from)?), &mut compressed)?;
        compressed.finish()
    };
    copy().with_context(|| format!("failed to compress {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// What differs between the kept results and new ones, in words.
fn compared(workspace: &Workspace, perfrun: &Path, kept: &Path, new: &Path) -> Result<String> {
    let compare = |allowed: &[&str]| {
        let mut compare = workspace.command(perfrun);
        compare.arg("compare").args([kept, new]);
        compare
            .args(["--output", "json", "--inconclusive", "pass"])
            .args(allowed);
        compare
            .output()
            .with_context(|| format!("failed to start `{}`", shell::line(&compare)))
    };
    let ended = compare(&[])?;
    if ended.status.success() {
        return words(&ended);
    }
    let refusal = String::from_utf8_lossy(&ended.stderr).into_owned();
    // The refusal lists what differs besides the numbers, and names the fields.
    let Some((_, fields)) = refusal.split_once("--allow ") else {
        return Ok(refusal);
    };
    let fields = fields.split_whitespace().next().unwrap_or_default();
    Ok(refusal.clone() + "\n" + &words(&compare(&["--allow", fields])?)?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    is_same_program: bool,
    comparisons: Vec<Comparison>,
}

#[derive(Deserialize)]
struct Comparison {
    candidate: String,
    metric: String,
    ratio: Option<Ratio>,
}

#[derive(Deserialize)]
struct Ratio {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
}

/// A line for each value of each cell. Two medians are the same if their intervals overlap: then the interval
/// of their ratio contains 1.
fn words(ended: &Output) -> Result<String> {
    ensure!(
        ended.status.success(),
        "`perfrun compare` failed: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let compared: Compared =
        serde_json::from_slice(&ended.stdout).context("failed to read what `perfrun compare` printed")?;
    let mut lines = match compared.is_same_program {
        true => "Both runs have the same program.\n",
        false => "The programs differ.\n",
    }
    .to_owned();
    let mut same = 0;
    for Comparison {
        candidate,
        metric,
        ratio,
    } in &compared.comparisons
    {
        let percent = |share: f64| format!("{:+.1}", (share - 1.0) * 100.0);
        let word = match ratio {
            Some(Ratio {
                value,
                low: Some(low),
                high: Some(high),
            }) => {
                let is_same = (*low..=*high).contains(&1.0);
                same += usize::from(is_same);
                let word = if is_same { "the same" } else { "differs" };
                format!(
                    "{word}, {} % [{}, {}]",
                    percent(*value),
                    percent(*low),
                    percent(*high)
                )
            }
            _ => "not comparable: one of the two has no interval".to_owned(),
        };
        let _ = writeln!(lines, "  {candidate} {metric}: {word}");
    }
    let _ = writeln!(
        lines,
        "{same} of {} are the same: the intervals of both medians overlap.",
        compared.comparisons.len()
    );
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{ExitStatus, Output},
    };

    use super::words;

    #[test]
    fn medians_are_the_same_if_their_intervals_overlap() {
        let stdout = br#"{"basis": "twoRuns", "isSameProgram": false, "comparisons": [
            {"candidate": "a.tcp", "metric": "uploadGoodput", "ratio": {"value": 0.878, "low": 0.737, "high": 1.222}},
            {"candidate": "b.tcp", "metric": "uploadGoodput", "ratio": {"value": 1.2, "low": 1.05, "high": 1.31}},
            {"candidate": "c.tcp", "metric": "uploadGoodput", "ratio": {"value": 1.0}},
            {"candidate": "d.tcp", "metric": "uploadGoodput"}
        ]}"#;
        let ended = Output {
            status: ExitStatus::from_raw(0),
            stdout: stdout.to_vec(),
            stderr: vec![],
        };
        assert_eq!(
            words(&ended).unwrap(),
            "The programs differ.
  a.tcp uploadGoodput: the same, -12.2 % [-26.3, +22.2]
  b.tcp uploadGoodput: differs, +20.0 % [+5.0, +31.0]
  c.tcp uploadGoodput: not comparable: one of the two has no interval
  d.tcp uploadGoodput: not comparable: one of the two has no interval
1 of 4 are the same: the intervals of both medians overlap.\n"
        );
    }
}
