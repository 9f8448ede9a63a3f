//! The command line.

use std::{io::stderr, net::SocketAddr};

use anyhow::Context;
use clap::{Parser, Subcommand};
use perfrun_api::pod::{NODE_IMAGE, store::OPERATOR_IMAGE};
use tracing_subscriber::EnvFilter;

pub use crate::access::NodeAccess;
use crate::{policy::Policy, store::StoreArgs};

/// The operator of perfrun: reconciles the PerfRuns and PerfSchedules of a cluster.
///
/// It finds the cluster as kubectl does: by KUBECONFIG or ~/.kube/config, and in a pod by its service
/// account.
#[derive(Clone, Debug, Parser)]
#[command(version, name = "perfrun-operator")]
pub struct Args {
    /// What to do instead of reconciling.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Reconcile only the PerfRuns and PerfSchedules of these namespaces, separated by commas. Without it,
    /// those of all namespaces.
    #[arg(
        long,
        env = "PERFRUN_WATCH_NAMESPACES",
        value_name = "NAMESPACE",
        value_delimiter = ','
    )]
    pub watch_namespaces: Vec<String>,
    /// Image of nodes whose stack variant names none.
    #[arg(long, env = "PERFRUN_NODE_IMAGE", default_value = NODE_IMAGE)]
    pub node_image: String,
    /// Image of nodes of go-libp2p whose stack variant names none.
    #[arg(long, env = "PERFRUN_NODE_IMAGE_GO", default_value_t = default_go_image())]
    pub node_image_go: String,
    /// When to pull images of nodes: `Always`, `IfNotPresent` or `Never`. Without it, Kubernetes decides by
    /// their tag.
    #[arg(long, env = "PERFRUN_NODE_IMAGE_PULL_POLICY", value_name = "POLICY")]
    pub node_image_pull_policy: Option<String>,
    /// Names of Secrets for pulling images of nodes, separated by commas. They must exist in each namespace
    /// that has runs. The template of a run can add more.
    #[arg(
        long,
        env = "PERFRUN_NODE_IMAGE_PULL_SECRETS",
        value_name = "SECRET",
        value_delimiter = ','
    )]
    pub node_image_pull_secrets: Vec<String>,
    /// Image of this program, for pods that keep results (`spec.results.store`).
    #[arg(long, env = "PERFRUN_IMAGE", default_value = OPERATOR_IMAGE)]
    pub image: String,
    /// When to pull this image. Without the option, Kubernetes decides by the image's tag.
    #[arg(long, env = "PERFRUN_IMAGE_PULL_POLICY", value_name = "POLICY")]
    pub image_pull_policy: Option<String>,
    /// How to reach nodes: `direct` by pod IP, `proxy` through the API server. `auto` is `direct` inside the
    /// cluster.
    #[arg(long, env = "PERFRUN_NODE_ACCESS", value_enum, default_value_t = NodeAccess::Auto)]
    pub node_access: NodeAccess,
    /// How many runs may be active together. An exclusive run (spec.topology.exclusive) is active alone: in
    /// the cluster or in its namespace, as `exclusivePer` of the policy says.
    #[arg(long, env = "PERFRUN_MAX_CONCURRENT_RUNS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_concurrent_runs: u32,
    /// What documents may request, in JSON, as `policy` in the chart's values. Without it, everything.
    #[arg(long, env = "PERFRUN_POLICY", value_name = "JSON", default_value = "{}", value_parser = policy)]
    pub policy: Policy,
    /// How many bytes of compressed results a run may keep before samples are merged. Metrics are always
    /// kept.
    #[arg(long, env = "PERFRUN_MAX_RESULT_BYTES", value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u32).range(1 << 20..=128 << 20))]
    pub max_result_bytes: u32,
    /// Namespace of the operator's Lease and key: that of its pods.
    #[arg(long, env = "PERFRUN_NAMESPACE", default_value = "perfrun-system")]
    pub lease_namespace: String,
    /// Name of the Lease. Operators that watch different namespaces need different names.
    #[arg(long, env = "PERFRUN_LEASE_NAME", default_value = "perfrun-operator")]
    pub lease_name: String,
    /// Address that serves /metrics, and /livez and /readyz too.
    #[arg(long, env = "PERFRUN_ADMIN", default_value = "0.0.0.0:8080")]
    pub admin: SocketAddr,
    /// Address that serves only /livez and /readyz, for the kubelet: those who take all connections of the
    /// other address keep no probes away from this one.
    #[arg(long, env = "PERFRUN_PROBES", default_value = "0.0.0.0:8081")]
    pub probes: SocketAddr,
    /// Log filter, for example `info` or `perfrun_operator=debug`. Logs are JSON lines on standard error.
    #[arg(
        long,
        env = "RUST_LOG",
        default_value = "info,kube_client=warn,kube_runtime=warn"
    )]
    pub log: String,
}

/// What the program does instead of reconciling.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Create a short PerfRun, wait until it has ended, and delete it. Exits with 0 if the run succeeded.
    SelfTest(SelfTest),
    /// Serve the results of one run from an object store or a volume. The operator starts it in a pod of its
    /// own, for runs with `spec.results.store`.
    Store(StoreArgs),
}

/// See [`Command::SelfTest`].
#[derive(Clone, Debug, clap::Args)]
pub struct SelfTest {
    /// Namespace of the PerfRun. An operator must watch it.
    #[arg(long)]
    pub namespace: String,
    /// Timeout in seconds. It includes the wait for other runs.
    #[arg(long, default_value_t = 240)]
    pub timeout_seconds: u64,
}

fn policy(json: &str) -> serde_json::Result<Policy> {
    serde_json::from_str(json)
}

fn default_go_image() -> String {
    format!("perfrun.invalid/node-go:{}", env!("CARGO_PKG_VERSION"))
}

impl Args {
    /// Starts logging with the filter of the arguments.
    pub fn start_logging(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).with_context(|| {
            format!(
                "unable to read --log, or RUST_LOG in the environment, as a filter: {:?}",
                self.log
            )
        })?;
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter(filter)
            .with_writer(stderr)
            .init();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_chart_lets_no_extra_variable_replace_a_setting_of_the_operator() {
        let checks = include_str!("../../charts/perfrun/templates/_checks.tpl");
        let command = Args::command();
        for variable in command.get_arguments().filter_map(|argument| argument.get_env()) {
            let variable = variable.to_string_lossy();
            assert!(checks.contains(&format!("\"{variable}\"")), "{variable}");
        }
    }
}
