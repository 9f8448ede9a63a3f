//! What the end-to-end tests share: a cluster to run on, a namespace for each test, and what to print when
//! one fails.
//!
//! | variable | meaning |
//! |---|---|
//! | `PERFRUN_E2E_KUBECONFIG` | the cluster, with the operator installed; without it every test is skipped. `KUBECONFIG` is not looked at: that cluster might be somebody's |
//! | `PERFRUN_E2E_KUBECTL` | kubectl, if it is not the one on PATH |
//! | `PERFRUN_E2E_HELM`, `PERFRUN_E2E_HELM_BEFORE` | the current helm and the one before; without them, nothing is installed |
//! | `PERFRUN_E2E_LAB_PROGRAM`, `PERFRUN_E2E_LAB` | perfrun-lab, and the name of the lab that the cluster is; without them, parts of the cluster are not killed |
//! | `PERFRUN_E2E_HOSTILE_IMAGE` | the image of perfrun-hostile-node, for the soak |
//! | `PERFRUN_E2E_PROMETHEUS` | a Prometheus that finds pods, to ask what dashboards ask |
//! | `PERFRUN_E2E_PERFRUN` | perfrun, for its commands on clusters, and to compare with what it does locally |
//! | `PERFRUN_SKIP_LOG` | a file to which skipped tests append `name: reason` |
//! | `PERFRUN_FAILURE_LOG` | a file to which tests that return an error append `name: reason`. Tests that panic append nothing |
//! | `PERFRUN_REQUIRE` | what must be there: a test that is skipped because it is missing fails |
//!
//! [`e2e`], [`shared`] or [`admission`] is what a test calls. Clusters are small, so tests take turns unless
//! they say that they need not.

#![allow(clippy::print_stderr, reason = "tests print to their captured output")]

mod cluster;
pub mod helm;
pub mod lab;
mod left;
pub mod operators;
mod program;
pub mod results;
pub mod run;
mod scene;
mod until;

pub use cluster::Cluster;
pub use program::{find_perfrun, printed, repository};
pub use scene::{Scene, admission, e2e, shared};
pub use until::{seconds, until};
