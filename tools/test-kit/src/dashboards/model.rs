//! The parts of a dashboard's JSON that tests read.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dashboard {
    /// The identifier that links to the dashboard use.
    pub uid: String,
    pub title: String,
    #[serde(default)]
    pub description: String,
    /// Version of Grafana's format.
    pub schema_version: u32,
    /// Tags, by which dashboards link to each other.
    pub tags: Vec<String>,
    /// Variables that users choose.
    pub templating: List<Variable>,
    pub annotations: List<Value>,
    /// Panels, including rows.
    pub panels: Vec<Panel>,
    /// Links to other dashboards.
    pub links: Vec<Value>,
    #[serde(skip)]
    pub file: PathBuf,
}

/// An object around a list, as Grafana writes some of them.
#[derive(Clone, Debug, Deserialize)]
pub struct List<T> {
    pub list: Vec<T>,
}

/// A variable that users choose at the top of a dashboard.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// The name, `$name` in expressions.
    pub name: String,
    /// `datasource` or `query`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The query, if the variable has one.
    #[serde(default)]
    pub definition: String,
    /// The part of an answer of `query_result` that is an option.
    #[serde(default)]
    pub regex: String,
    /// Whether "All" can be chosen.
    #[serde(default)]
    pub include_all: bool,
    /// The value of "All".
    #[serde(default)]
    pub all_value: Option<String>,
}

/// A panel or a row.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    /// Unique in the dashboard.
    pub id: u32,
    /// Kind of visualization.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub title: String,
    /// The variable that repeats the panel for each of its values.
    #[serde(default)]
    pub repeat: Option<String>,
    #[serde(default)]
    pub description: String,
    pub grid_pos: GridPosition,
    /// Data source.
    #[serde(default)]
    pub datasource: Value,
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Options of fields: units, colours, limits.
    #[serde(default)]
    pub field_config: Value,
    /// Options of the visualization.
    #[serde(default)]
    pub options: Value,
    /// Transformations of the data.
    #[serde(default)]
    pub transformations: Vec<Value>,
}

/// A place on the grid, 24 wide.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct GridPosition {
    pub x: u32,
    pub y: u32,
    pub w: u32,
    pub h: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Unique in the panel.
    pub ref_id: String,
    /// PromQL, with variables.
    pub expr: String,
    /// Template for the names of series.
    #[serde(default)]
    pub legend_format: String,
    /// Whether the query is for the end of the time range only.
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
