//! The dashboards in dashboards/ as values, so that tests can send a Prometheus every query that Grafana
//! would, and draw the answers.
//!
//! The JSON files are written by hand, not generated.

mod answer;
mod drawing;
mod empty;
mod expression;
mod live;
mod model;
mod prometheus;

pub use answer::Answer;
pub use drawing::{SENTENCE, keep_picture};
pub use expression::{Variables, labels_of_legend, metrics_of};
pub use live::{Scope, agrees_with, all_have_data, stays_when_targets_are_gone, without_intervals};
pub use model::{Dashboard, GridPosition, List, Panel, Target, Variable, all, folder};
pub use prometheus::{Prometheus, Series, now, promtool};
