//! How long the items of a step take: crates, tests, tools. Several processes note them, so they go through
//! a file.

use std::{
    cmp::Reverse,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::shell::Workspace;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Item {
    pub(crate) took: Duration,
    pub(crate) name: String,
}

/// The file of items, a line each: seconds and a name.
pub(crate) struct Times(PathBuf);

impl Times {
    /// The file of the step that runs now.
    pub(crate) fn of_step(workspace: &Workspace) -> Result<Self> {
        Ok(Self(workspace.scratch()?.join("times-of-step")))
    }

    /// The file of `cargo xtask tools`, which runs beside other steps.
    pub(crate) fn of_tools(workspace: &Workspace) -> Result<Self> {
        Ok(Self(workspace.scratch()?.join("times-of-tools")))
    }

    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Adds items in one write, as other processes add theirs at the same time.
    pub(crate) fn add(&self, items: impl IntoIterator<Item = Item>) -> Result<()> {
        let lines = items
            .into_iter()
            .map(|item| format!("{} {}\n", item.took.as_secs_f64(), item.name));
        File::options()
            .append(true)
            .create(true)
            .open(&self.0)
            .and_then(|mut file| file.write_all(lines.collect::<String>().as_bytes()))
            .with_context(|| format!("failed to add to {}", self.0.display()))
    }

    /// Does `work` as an item.
    pub(crate) fn timed<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = work()?;
        self.add([Item {
            took: start.elapsed(),
            name: name.to_owned(),
        }])?;
        Ok(done)
    }

    /// Removes all items and returns them, the longest first. Empty without a file.
    pub(crate) fn take(&self) -> Vec<Item> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        fs::remove_file(&self.0).ok();
        let item = |line: &str| {
            let (seconds, name) = line.split_once(' ')?;
            Some(Item {
                took: Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?,
                name: name.to_owned(),
            })
        };
        let mut items: Vec<_> = text.lines().filter_map(item).collect();
        items.sort_by_key(|item| Reverse(item.took));
        items
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use anyhow::bail;

    use super::{Item, Times};

    #[test]
    fn items_of_several_writers_are_taken_once_and_the_longest_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let times = Times::at(folder.path().join("times"));
        assert_eq!(times.take(), []);
        let item = |name: String, millis| Item {
            took: Duration::from_millis(millis),
            name,
        };
        thread::scope(|scope| {
            for writer in 0..4 {
                let times = &times;
                scope.spawn(move || {
                    for number in 0..50 {
                        let name = format!("test {writer} {number}");
                        times.add([item(name, writer * 1000 + number)]).unwrap();
                    }
                });
            }
        });
        let taken = times.take();
        assert_eq!(taken.len(), 200);
        assert_eq!(taken[0], item("test 3 49".to_owned(), 3049));
        assert_eq!(taken[199], item("test 0 0".to_owned(), 0));
        assert_eq!(times.take(), []);
    }

    #[test]
    fn work_that_ends_is_an_item() {
        let folder = tempfile::tempdir().unwrap();
        let times = Times::at(folder.path().join("times"));
        assert_eq!(times.timed("helm", || Ok(7)).unwrap(), 7);
        times.timed::<()>("vale", || bail!("no network")).unwrap_err();
        let names: Vec<_> = times.take().into_iter().map(|item| item.name).collect();
        assert_eq!(names, ["helm"]);
    }
}
