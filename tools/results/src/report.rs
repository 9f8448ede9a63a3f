//! What documents can show of committed results, in parts.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use perfrun_cli::results_folder;
use perfrun_contract::reported_run::ReportedRun;
use perfrun_report::MarkdownSections;

use crate::{
    folder::{DOCUMENT, RESULTS},
    medians::{self, Measurement},
    terminal,
};

/// The report of a run, or tables about something else.
#[derive(Default)]
pub(crate) struct Report {
    /// The day of the measurement.
    pub day: String,
    /// The build of the nodes.
    pub build: String,
    /// Links to what it is made of, for the page about results.
    pub sources: String,
    pub sections: MarkdownSections,
    /// SVG by the names of their files.
    pub plots: BTreeMap<&'static str, String>,
    /// Measurements from which a document chooses medians.
    pub measurements: Vec<Measurement>,
}

impl Report {
    /// What `perfrun report` shows of a folder of committed results.
    pub(crate) fn of(folder: &Path, name: &str) -> Result<Self> {
        let results = results_folder::read(folder)?;
        let profiles = results_folder::read_profiles(folder, &results.plan);
        let reported_run = ReportedRun {
            profiles: &profiles,
            ..results.reported_run()
        };
        Ok(Self {
            day: results.started.strftime("%F").to_string(),
            build: perfrun_report::builds(&reported_run).unwrap_or_else(|| UNKNOWN.to_owned()),
            sources: format!("[Document]({name}/{DOCUMENT}), [results]({name}/{RESULTS})"),
            sections: perfrun_report::markdown_sections(&reported_run),
            plots: perfrun_report::plots(&reported_run)
                .into_iter()
                .chain([(terminal::FILE, terminal::picture(name, &reported_run))])
                .collect(),
            measurements: vec![],
        })
    }

    /// A report of these tables and, if it has rows, of a table about the environment. Its rows [`BUILD`] and
    /// [`STARTED`] tell build and day.
    pub(crate) fn with(
        sources: String,
        mut tables: Vec<(String, String)>,
        environment: &[(&str, String)],
    ) -> Self {
        let value = |name: &str| {
            let row = environment.iter().find(|(row, _)| *row == name);
            row.map_or(UNKNOWN, |(_, value)| value)
        };
        if !environment.is_empty() {
            let rows = environment
                .iter()
                .map(|(row, value)| format!("\n| {row} | {value} |"));
            let table = format!("|  |  |\n| --- | --- |{}", rows.collect::<String>());
            tables.push((ENVIRONMENT.to_owned(), table));
        }
        let started = value(STARTED);
        Self {
            day: started.split_once('T').map_or(started, |(day, _)| day).to_owned(),
            build: value(BUILD).to_owned(),
            sources,
            sections: MarkdownSections {
                paragraphs: vec![],
                tables,
            },
            ..Self::default()
        }
    }

    /// A table with its caption and footnotes, by its heading. Otherwise, medians of measurements, or the
    /// findings that begin with these words.
    pub(crate) fn text(&self, part: &str) -> Option<String> {
        let MarkdownSections { paragraphs, tables } = &self.sections;
        let table = tables.iter().find(|(heading, _)| heading == part);
        let table = table.map(|(_, table)| table.clone());
        table
            .or_else(|| medians::table(&self.measurements, part))
            .or_else(|| {
                let found = paragraphs.iter().filter(|finding| finding.starts_with(part));
                let found: Vec<_> = found.map(String::as_str).collect();
                (!found.is_empty()).then(|| found.join("\n\n"))
            })
    }

    /// The CPUs of the machine, as the environment names them.
    pub(crate) fn cpu(&self) -> String {
        let environment = self.text(ENVIRONMENT).unwrap_or_default();
        let mut rows = environment.lines();
        let cpu = rows.find_map(|row| row.strip_prefix("| CPU | ")?.strip_suffix(" |"));
        cpu.unwrap_or(UNKNOWN).to_owned()
    }

    /// What it has, beside findings.
    pub(crate) fn parts(&self) -> Vec<&str> {
        let tables = self.sections.tables.iter().map(|(heading, _)| &**heading);
        let medians = (!self.measurements.is_empty()).then_some(medians::PART);
        tables.chain(medians).chain(self.plots.keys().copied()).collect()
    }
}

/// The heading of the table about the environment.
pub(crate) const ENVIRONMENT: &str = "Environment";
/// The row of the environment with the build.
pub(crate) const BUILD: &str = "Build";
/// The row of the environment with the moment of the start.
pub(crate) const STARTED: &str = "Started";
/// In place of a build or a day.
const UNKNOWN: &str = "unknown";
