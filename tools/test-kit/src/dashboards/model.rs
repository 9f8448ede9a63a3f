//! What of a dashboard's JSON is looked at.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// A dashboard.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dashboard {
    /// What links to it name.
    pub uid: String,
    /// For people.
    pub title: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Version of the format.
    pub schema_version: u32,
    /// What the links between dashboards go by.
    pub tags: Vec<String>,
    /// What can be chosen.
    pub templating: List<Variable>,
    /// Marks on the time axis.
    pub annotations: List<Value>,
    /// What is shown, rows included.
    pub panels: Vec<Panel>,
    /// Links to others.
    pub links: Vec<Value>,
    /// The file.
    #[serde(skip)]
    pub file: PathBuf,
}

/// Grafana puts some lists into objects.
#[derive(Clone, Debug, Deserialize)]
pub struct List<T> {
    /// The list.
    pub list: Vec<T>,
}

/// Something that can be chosen at the top of a dashboard.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// `$name` in expressions.
    pub name: String,
    /// `datasource` or `query`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The query, of one that has one.
    #[serde(default)]
    pub definition: String,
    /// What of an answer of `query_result` is a choice.
    #[serde(default)]
    pub regex: String,
    /// Whether "All" can be chosen.
    #[serde(default)]
    pub include_all: bool,
    /// What "All" is.
    #[serde(default)]
    pub all_value: Option<String>,
}

/// A panel or a row.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    /// Unique in the dashboard.
    pub id: u32,
    /// What kind of picture it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    #[serde(default)]
    pub title: String,
    /// The variable for each of whose values it is there once.
    #[serde(default)]
    pub repeat: Option<String>,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Where it is.
    pub grid_pos: Place,
    /// Where its data come from.
    #[serde(default)]
    pub datasource: Value,
    /// Its queries.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// How values are written and drawn.
    #[serde(default)]
    pub field_config: Value,
    /// What is done to the data before they are drawn.
    #[serde(default)]
    pub transformations: Vec<Value>,
}

/// A place on the grid, 24 wide.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Place {
    pub x: u32,
    pub y: u32,
    pub w: u32,
    pub h: u32,
}

/// A query.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Unique in the panel.
    pub ref_id: String,
    /// PromQL, with variables.
    pub expr: String,
    /// What series are called.
    #[serde(default)]
    pub legend_format: String,
    /// Whether only the end of the time range is asked for.
    #[serde(default)]
    pub instant: bool,
}

impl Dashboard {
    /// Panels that show something, with their queries.
    pub fn shown(&self) -> impl Iterator<Item = &Panel> {
        self.panels.iter().filter(|panel| panel.kind != "row")
    }

    /// Panels that show something, each with the variable that repeats it or its row.
    pub fn repeated(&self) -> impl Iterator<Item = (&Panel, Option<&str>)> {
        let mut of_row = None;
        self.panels.iter().filter_map(move |panel| {
            if panel.kind == "row" {
                of_row = panel.repeat.as_deref();
                return None;
            }
            Some((panel, panel.repeat.as_deref().or(of_row)))
        })
    }
}

/// The folder of the dashboards and alerting rules.
pub fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboards"))
}

/// All dashboards.
pub fn all() -> Result<Vec<Dashboard>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    files.into_iter().map(read).collect()
}

fn read(file: PathBuf) -> Result<Dashboard> {
    let text = fs::read_to_string(&file)?;
    let parsed = serde_json::from_str(&text);
    let mut dashboard: Dashboard = parsed.with_context(|| format!("unable to read {}", file.display()))?;
    dashboard.file = file;
    Ok(dashboard)
}
