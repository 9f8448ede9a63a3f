//! Committed files that a command generates: writing them, and checking that they are fresh.
//!
//! A command generates a tree into a scratch folder, so that writing and checking compare the same files by
//! the same rule.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};

use crate::{
    files::{copy, empty, files_under, read},
    shell::Workspace,
    step::Outcome,
};

/// The number of changed lines of each side that a difference shows.
const DIFF_LINES: usize = 6;

/// Generated files.
pub(crate) struct Generated {
    /// The folder with them.
    tree: PathBuf,
    /// The command of xtask that generates them.
    command: &'static str,
    /// Whether a folder holds other files beside generated ones.
    is_mixed: fn(&Path) -> bool,
}

impl Generated {
    /// An empty tree for the files.
    pub(crate) fn new(
        workspace: &Workspace,
        command: &'static str,
        is_mixed: fn(&Path) -> bool,
    ) -> Result<Self> {
        let tree = workspace.scratch()?.join("generated").join(command);
        empty(&tree)?;
        Ok(Self {
            tree,
            command,
            is_mixed,
        })
    }

    /// The folder for the files, by their paths in the repository.
    pub(crate) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Writes what differs to the repository with this root.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let differences = compare(root, &self.tree, self.is_mixed)?;
        for difference in &differences {
            match difference {
                Difference::Stale { file, .. } => {
                    copy(&self.tree.join(file), &root.join(file))?;
                    println!("wrote {}", file.display());
                }
                Difference::LeftOver { .. } => println!("{difference}"),
            }
        }
        if differences.is_empty() {
            println!("generated files are fresh; nothing to write");
        }
        Ok(())
    }

    /// Compares the files in the repository with this root.
    pub(crate) fn check(&self, root: &Path) -> Result<Outcome> {
        let differences = compare(root, &self.tree, self.is_mixed)?;
        if differences.is_empty() {
            return Ok(Outcome::Passed);
        }
        let list: Vec<_> = differences.iter().map(ToString::to_string).collect();
        Ok(Outcome::Failed(format!(
            "{}\nrun `cargo xtask {}` and commit the result",
            list.join("\n"),
            self.command
        )))
    }
}

/// What a command with `--check` makes of the outcome.
pub(crate) fn checked(outcome: Outcome) -> Result<ExitCode> {
    let code = outcome.into_exit_code()?;
    println!("generated files are fresh");
    Ok(code)
}

enum Difference {
    /// The file is missing, or differs from what is generated.
    Stale { file: PathBuf, diff: String },
    /// Nothing generates the file any more, although its folder holds generated files only. It is reported,
    /// and not deleted.
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

/// A folder with a generated file holds generated files only, unless it is mixed.
fn compare(committed: &Path, generated: &Path, is_mixed: impl Fn(&Path) -> bool) -> Result<Vec<Difference>> {
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
    for folder in folders.into_iter().filter(|folder| !is_mixed(folder)) {
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

    use super::{Difference, Generated, compare, copy, short_diff};
    use crate::step::Outcome;

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
            compare(&self.0.join("committed"), &self.0.join("generated"), |folder| {
                folder.ends_with("mixed")
            })
            .unwrap()
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
                ("committed/mixed/by-hand.md", ""),
                ("committed/mixed/generated.md", ""),
                ("generated/mixed/generated.md", ""),
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
    fn a_check_fails_with_the_difference_and_the_command() {
        let trees = Trees::new(
            "check",
            &[
                ("committed/README.md", "| a | 6.39 Gbit/s |\n"),
                ("generated/README.md", "| a | 4.70 Gbit/s |\n"),
            ],
        );
        let generated = Generated {
            tree: trees.0.join("generated"),
            command: "results",
            is_mixed: |_| true,
        };
        let committed = trees.0.join("committed");
        let Outcome::Failed(reason) = generated.check(&committed).unwrap() else {
            panic!("a file differs")
        };
        assert_eq!(
            reason,
            "README.md is stale:\n@@ line 1 @@\n-| a | 6.39 Gbit/s |\n+| a | 4.70 Gbit/s |\nrun `cargo xtask results` \
             and commit the result"
        );
        generated.write(&committed).unwrap();
        assert!(matches!(generated.check(&committed).unwrap(), Outcome::Passed));
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
