//! The operator on a real cluster, from `kubectl apply` to results, including failures on the way.

mod applied;
mod chart;
mod compared;
mod conformance;
mod crashes;
mod dashboards;
mod deleted;
mod examples;
mod families;
mod hopeless;
mod installed;
mod lifecycle;
mod links;
mod lost;
mod newer;
mod plugin;
mod refused;
mod relay;
mod rights;
mod schedule;
mod stored;
mod verdict;
