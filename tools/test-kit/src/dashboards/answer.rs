//! What a dashboard shows.

use super::Series;

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Identifier of the dashboard.
    pub dashboard: String,
    /// Title of the panel, or name of the annotation.
    pub panel: String,
    /// Title of the panel with values in place of variables.
    pub title: String,
    /// Letter of the query.
    pub letter: String,
    /// The value for which a repeated panel is shown.
    pub repeated_for: Option<String>,
    /// The expression that was sent.
    pub expression: String,
    /// Whether the query is for the end of the time range only.
    pub instant: bool,
    /// The series that have data.
    pub series: Vec<Series>,
}

impl Answer {
    /// The name in messages, the same for all repetitions.
    pub fn name(&self) -> String {
        format!("{}, {}, {}", self.dashboard, self.panel, self.letter)
    }
}
