//! The report of kept results, in parts.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, ensure};

use super::{
    DOCUMENT, FOLDER, RESULTS,
    medians::{self, Record},
};
use crate::{
    files,
    shell::{self, Workspace},
};

/// What `perfrun report` gives, or tables of many runs.
#[derive(Default)]
pub(super) struct Report {
    markdown: String,
    /// Links to what it is made of, for the page about results.
    sources: String,
    /// By the names of their files.
    plots: BTreeMap<String, Plot>,
    /// Measurements from which a document chooses medians.
    records: Vec<Record>,
}

pub(super) struct Plot {
    pub(super) svg: String,
}

impl Plot {
    /// The words that a reader gets in place of the picture.
    pub(super) fn title(&self) -> &str {
        let title = self
            .svg
            .split_once("<title>")
            .and_then(|(_, rest)| rest.split_once("</title>"));
        title.map_or("plot", |(title, _)| title)
    }
}

impl Report {
    pub(super) fn of(workspace: &Workspace, perfrun: &Path, name: &str) -> Result<Self> {
        let folder = workspace.scratch()?.join("plots").join(name);
        files::empty(&folder)?;
        let mut report = workspace.command(perfrun);
        report.arg("report").arg(Path::new(FOLDER).join(name));
        report.args(["--output", "md", "--svg"]).arg(&folder);
        // Its standard error lists the plots.
        let ended = report
            .output()
            .with_context(|| format!("failed to start `{}`", shell::line(&report)))?;
        ensure!(
            ended.status.success(),
            "`{}` failed: {}",
            shell::line(&report),
            String::from_utf8_lossy(&ended.stderr)
        );
        let markdown = String::from_utf8(ended.stdout).context("a report is text")?;
        let plots = files::files_under(&folder)?.into_iter().map(|file| {
            let svg = files::read(&folder.join(&file))?;
            Ok((file.to_string_lossy().into_owned(), Plot { svg }))
        });
        Ok(Self {
            markdown,
            sources: format!("[Document]({name}/{DOCUMENT}), [results]({name}/{RESULTS})"),
            plots: plots.collect::<Result<_>>()?,
            records: vec![],
        })
    }

    /// A report with this Markdown, which has the headings of a report of perfrun.
    pub(super) fn of_tables(markdown: String, sources: String) -> Self {
        Self {
            markdown,
            sources,
            ..Self::default()
        }
    }

    /// A report with this Markdown about measurements.
    pub(super) fn of_records(markdown: String, sources: String, records: Vec<Record>) -> Self {
        Self {
            records,
            ..Self::of_tables(markdown, sources)
        }
    }

    pub(super) fn sources(&self) -> &str {
        &self.sources
    }

    pub(super) fn plot(&self, file: &str) -> Option<&Plot> {
        self.plots.get(file)
    }

    /// A table with its caption and footnotes, by its heading. Otherwise, medians of measurements, or the
    /// findings that begin with these words.
    pub(super) fn text(&self, part: &str) -> Option<String> {
        if let Some(medians) = medians::table(&self.records, part) {
            return Some(medians);
        }
        let (findings, tables) = self.divided();
        if let Some((_, table)) = tables.iter().find(|(heading, _)| *heading == part) {
            return Some(table.to_string());
        }
        let findings: Vec<_> = findings
            .split("\n\n")
            .filter(|finding| finding.starts_with(part))
            .collect();
        (!findings.is_empty()).then(|| findings.join("\n\n"))
    }

    /// What it has, beside findings.
    pub(super) fn parts(&self) -> Vec<&str> {
        let (_, tables) = self.divided();
        let tables = tables.into_iter().map(|(heading, _)| heading);
        let medians = (!self.records.is_empty()).then_some(medians::PART);
        let plots = self.plots.keys().map(String::as_str);
        tables.chain(medians).chain(plots).collect()
    }

    /// The day of the measurement.
    pub(super) fn day(&self) -> &str {
        let started = self.environment("Started");
        started.split_once('T').map_or(started, |(day, _)| day)
    }

    /// The build of the nodes.
    pub(super) fn build(&self) -> &str {
        self.environment("Build")
    }

    fn environment(&self, row: &str) -> &str {
        let (_, tables) = self.divided();
        let environment = tables.into_iter().find(|(heading, _)| *heading == "Environment");
        let mut rows = environment.iter().flat_map(|(_, table)| table.lines());
        let value = rows.find_map(|line| line.strip_prefix("| ")?.strip_prefix(row)?.strip_prefix(" | "));
        value.map_or("unknown", |value| value.trim_end_matches(" |"))
    }

    /// What is before the first heading, and all tables with their headings.
    fn divided(&self) -> (&str, Vec<(&str, &str)>) {
        let mut sections = self.markdown.split("\n## ");
        let findings = sections.next().unwrap_or_default();
        let tables = sections.filter_map(|section| section.split_once('\n'));
        (
            findings,
            tables.map(|(heading, table)| (heading, table.trim())).collect(),
        )
    }
}

#[cfg(test)]
impl Report {
    /// A report with this Markdown and a plot of this name.
    pub(super) fn with(markdown: &str, plot: &str) -> Self {
        let svg = "<svg><title>speed</title></svg>\n".to_owned();
        Self {
            markdown: markdown.to_owned(),
            sources: "[results](quick/results.json.gz)".to_owned(),
            plots: BTreeMap::from([(plot.to_owned(), Plot { svg })]),
            records: vec![],
        }
    }
}
