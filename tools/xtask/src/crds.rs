//! `cargo xtask crds`: writes or compares the committed files that are generated from the types.
//!
//! `perfrun-generate` generates files from types, and [`chart`] generates the chart's files from other files.
//! Both write a tree into a scratch folder, so that writing and checking compare the same files by the same
//! rule.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

use crate::{
    chart,
    shell::{self, Profile, Workspace},
    step::Outcome,
};

const GENERATOR: &str = "perfrun-generate";
const COMMAND: &str = "cargo xtask crds";

/// The number of changed lines of each side that a difference shows.
const DIFF_LINES: usize = 6;

pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<ExitCode> {
    workspace.build(Profile::Dev, &[GENERATOR])?;
    if check {
        return match self::check(workspace)? {
            Outcome::Failed(reason) => bail!(reason),
            Outcome::Passed | Outcome::Skipped(_) => {
                println!("generated files are fresh");
                Ok(ExitCode::SUCCESS)
            }
        };
    }

    let generated = generate(workspace)?;
    let differences = compare(&workspace.root, &generated)?;
    for difference in &differences {
        match difference {
            Difference::Stale { file, .. } => {
                copy(&generated.join(file), &workspace.root.join(file))?;
                println!("wrote {}", file.display());
            }
            Difference::LeftOver { .. } => println!("{difference}"),
        }
    }
    if differences.is_empty() {
        println!("generated files are fresh; nothing to write");
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares the committed files. The generator is already built.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let differences = compare(&workspace.root, &generate(workspace)?)?;
    if differences.is_empty() {
        return Ok(Outcome::Passed);
    }
    let list: Vec<_> = differences.iter().map(ToString::to_string).collect();
    Ok(Outcome::Failed(format!(
        "{}\nrun `{COMMAND}` and commit the result",
        list.join("\n")
    )))
}

fn generate(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.scratch()?.join("generated");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("failed to empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    shell::succeed(
        workspace
            .command(workspace.program(Profile::Dev, GENERATOR))
            .arg(&folder),
    )?;
    chart::generate(&workspace.root, &folder)?;
    Ok(folder)
}

enum Difference {
    /// The file is missing, or differs from the types.
    Stale { file: PathBuf, diff: String },
    /// The file is in a folder of generated files but is no longer generated. It is reported, not deleted.
    LeftOver { file: PathBuf },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { file, diff } => write!(f, "{} is stale:\n{diff}", file.display()),
            Self::LeftOver { file } => {
                write!(f, "{} is not generated any more: delete it", file.display())
            }
        }
    }
}

/// A folder with a generated file holds generated files only, except for the root and the chart's folder.
fn compare(committed: &Path, generated: &Path) -> Result<Vec<Difference>> {
    let expected = files_under(generated)?;
    let mut differences = Vec::new();
    for file in &expected {
        let new = read(&generated.join(file))?;
        let path = committed.join(file);
        let old = if path.exists() {
            read(&path)?
        } else {
            String::new()
        };
        if old != new || !path.exists() {
            differences.push(Difference::Stale {
                file: file.clone(),
                diff: short_diff(&old, &new),
            });
        }
    }

    let folders: BTreeSet<_> = expected.iter().filter_map(|file| file.parent()).collect();
    let mixed = ["", chart::FOLDER].map(Path::new);
    for folder in folders.into_iter().filter(|folder| !mixed.contains(folder)) {
        let present = committed.join(folder);
        for entry in fs::read_dir(&present).into_iter().flatten() {
            let entry = entry.with_context(|| format!("failed to list {}", present.display()))?;
            let file = folder.join(entry.file_name());
            if entry.path().is_file() && !expected.contains(&file) {
                differences.push(Difference::LeftOver { file });
            }
        }
    }
    Ok(differences)
}

/// Every file below `folder`, relative to it.
fn files_under(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(current) = open.pop() {
        let context = || format!("failed to list {}", current.display());
        for entry in fs::read_dir(&current).with_context(context)? {
            let path = entry.with_context(context)?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.insert(path.strip_prefix(folder).expect("it was found below").to_owned());
            }
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a generated file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    fs::copy(from, to).with_context(|| format!("failed to write {}", to.display()))?;
    Ok(())
}

/// The changed middle of two texts, shortened: enough to recognise the change. `git diff` shows the rest.
fn short_diff(old: &str, new: &str) -> String {
    let old: Vec<_> = old.split_inclusive('\n').collect();
    let new: Vec<_> = new.split_inclusive('\n').collect();
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..]
        .iter()
        .rev()
        .zip(new[start..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();

    let side = |mark: char, lines: &[&str]| {
        let shown = lines
            .iter()
            .take(DIFF_LINES)
            .map(|text| format!("\n{mark}{}", text.trim_end()));
        let hidden = lines.len().saturating_sub(DIFF_LINES);
        let rest = (hidden > 0).then(|| format!("\n{mark} … {hidden} more lines"));
        shown.chain(rest).collect::<String>()
    };
    let removed = side('-', &old[start..old.len() - end]);
    let added = side('+', &new[start..new.len() - end]);
    format!("@@ line {} @@{removed}{added}", start + 1)
}

#[cfg(test)]
mod tests {
    use std::{
        env, fs,
        path::{Path, PathBuf},
        process,
    };

    use super::{Difference, compare, copy, short_diff};

    /// Two trees, `committed` and `generated`, below a folder that is removed when the value is dropped.
    struct Trees(PathBuf);

    impl Trees {
        fn new(test: &str, files: &[(&str, &str)]) -> Self {
            let root = env::temp_dir().join(format!("xtask-{test}-{}", process::id()));
            for tree in ["committed", "generated"] {
                fs::create_dir_all(root.join(tree)).unwrap();
            }
            for (file, text) in files {
                fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
                fs::write(root.join(file), text).unwrap();
            }
            Self(root)
        }

        fn compare(&self) -> Vec<Difference> {
            compare(&self.0.join("committed"), &self.0.join("generated")).unwrap()
        }
    }

    impl Drop for Trees {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn equal_trees_are_fresh_and_other_folders_do_not_matter() {
        let trees = Trees::new(
            "fresh",
            &[
                ("committed/crds/a.yaml", "kind: A\n"),
                ("generated/crds/a.yaml", "kind: A\n"),
                ("committed/src/lib.rs", ""),
            ],
        );
        assert!(trees.compare().is_empty());
    }

    #[test]
    fn a_changed_file_is_stale_until_it_is_written() {
        let trees = Trees::new(
            "stale",
            &[
                ("committed/crds/a.yaml", "kind: A\nversion: 1\n"),
                ("generated/crds/a.yaml", "kind: A\nversion: 2\n"),
            ],
        );
        let [difference] = &trees.compare()[..] else {
            panic!("one file differs")
        };
        assert_eq!(
            difference.to_string(),
            "crds/a.yaml is stale:\n@@ line 2 @@\n-version: 1\n+version: 2"
        );

        copy(
            &trees.0.join("generated/crds/a.yaml"),
            &trees.0.join("committed/crds/a.yaml"),
        )
        .unwrap();
        assert!(trees.compare().is_empty());
    }

    #[test]
    fn a_file_that_was_never_written_is_stale_even_when_empty() {
        let trees = Trees::new("new", &[("generated/docs/reference/a.md", "")]);
        let [Difference::Stale { file, .. }] = &trees.compare()[..] else {
            panic!("one file is stale")
        };
        assert_eq!(file, Path::new("docs/reference/a.md"));
    }

    #[test]
    fn a_file_that_is_no_longer_generated_is_left_over() {
        let trees = Trees::new(
            "left",
            &[
                ("committed/crds/a.yaml", ""),
                ("generated/crds/a.yaml", ""),
                ("committed/crds/old.yaml", ""),
                ("committed/README.md", ""),
            ],
        );
        let [Difference::LeftOver { file }] = &trees.compare()[..] else {
            panic!("one file is left over")
        };
        assert_eq!(file, Path::new("crds/old.yaml"));
    }

    #[test]
    fn a_diff_shows_the_changed_lines_only() {
        assert_eq!(
            short_diff("a\nb\nc\n", "a\nX\nY\nc\n"),
            "@@ line 2 @@\n-b\n+X\n+Y"
        );
        assert_eq!(short_diff("a\na\n", "a\na\na\n"), "@@ line 3 @@\n+a");
        assert_eq!(short_diff("a", "a\n"), "@@ line 1 @@\n-a\n+a");
    }

    #[test]
    fn a_long_diff_is_cut() {
        let new: String = (1..=8).map(|line| format!("{line}\n")).collect();
        assert_eq!(
            short_diff("", &new),
            "@@ line 1 @@\n+1\n+2\n+3\n+4\n+5\n+6\n+ … 2 more lines"
        );
    }
}
