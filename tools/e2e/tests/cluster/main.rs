//! The operator on a real cluster: from `kubectl apply` to results, and through whatever may go wrong on the way.

mod chart;
mod crashes;
mod dashboards;
mod deleted;
mod examples;
mod hopeless;
mod installed;
mod lifecycle;
mod links;
mod lost;
mod plugin;
mod refused;
mod relay;
mod verdict;
