//! The command line.

use std::{io::stderr, net::SocketAddr};

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

/// The operator of perfrun: reconciles PerfRuns of a cluster.
///
/// Finds its cluster as kubectl does: by KUBECONFIG or ~/.kube/config, and inside a pod by its service account.
#[derive(Clone, Debug, Parser)]
#[command(version, name = "perfrun-operator")]
pub struct Args {
    /// What to do instead of reconciling.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Reconcile the PerfRuns of these namespaces only, separated by commas, instead of those of all.
    #[arg(
        long,
        env = "PERFRUN_WATCH_NAMESPACES",
        value_name = "NAMESPACE",
        value_delimiter = ','
    )]
    pub watch_namespaces: Vec<String>,
    /// Image of nodes whose stack variant names none.
    #[arg(long, env = "PERFRUN_NODE_IMAGE", default_value_t = default_image())]
    pub node_image: String,
    /// When to pull images of nodes: `Always`, `IfNotPresent` or `Never`; otherwise as Kubernetes does by their tag.
    #[arg(long, env = "PERFRUN_NODE_IMAGE_PULL_POLICY", value_name = "POLICY")]
    pub node_image_pull_policy: Option<String>,
    /// Secrets to pull images of nodes with, separated by commas, in each namespace that has runs. Those of a run's
    /// template are added.
    #[arg(
        long,
        env = "PERFRUN_NODE_IMAGE_PULL_SECRETS",
        value_name = "SECRET",
        value_delimiter = ','
    )]
    pub node_image_pull_secrets: Vec<String>,
    /// How nodes are reached: `direct` by pod IP, `proxy` through the API server; `auto` is `direct` inside the cluster.
    #[arg(long, env = "PERFRUN_NODE_ACCESS", value_enum, default_value_t = NodeAccess::Auto)]
    pub node_access: NodeAccess,
    /// Runs that may be active together; exclusive ones (spec.topology.exclusive) are alone anyway.
    #[arg(long, env = "PERFRUN_MAX_CONCURRENT_RUNS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_concurrent_runs: u32,
    /// Namespace of the Lease and of the operator's key: its own.
    #[arg(long, env = "PERFRUN_NAMESPACE", default_value = "perfrun-system")]
    pub lease_namespace: String,
    /// Name of the Lease. Operators that watch different namespaces need different names.
    #[arg(long, env = "PERFRUN_LEASE_NAME", default_value = "perfrun-operator")]
    pub lease_name: String,
    /// Where to serve /livez, /readyz and /metrics.
    #[arg(long, env = "PERFRUN_ADMIN", default_value = "0.0.0.0:8080")]
    pub admin: SocketAddr,
    /// Log filter, e.g. `info` or `perfrun_operator=debug`; logs are JSON lines on standard error.
    #[arg(
        long,
        env = "RUST_LOG",
        default_value = "info,kube_client=warn,kube_runtime=warn"
    )]
    pub log: String,
}

/// What the operator's program does besides reconciling.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Apply a PerfRun of some seconds, wait until it has ended, and remove it; exits with 0 if it succeeded.
    SelfTest(SelfTest),
}

/// See [`Command::SelfTest`].
#[derive(Clone, Debug, clap::Args)]
pub struct SelfTest {
    /// Where to apply it: a namespace that an operator watches.
    #[arg(long)]
    pub namespace: String,
    /// How long it may take. It waits for exclusive runs that are there already.
    #[arg(long, default_value_t = 240)]
    pub timeout_seconds: u64,
}

/// How nodes are reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum NodeAccess {
    /// Directly inside the cluster, through the API server outside.
    Auto,
    /// By pod IP.
    Direct,
    /// Through the API server's pod proxy.
    Proxy,
}

fn default_image() -> String {
    format!("perfrun/node:{}", env!("CARGO_PKG_VERSION"))
}

impl Args {
    /// Logs as asked, from here on.
    pub fn start_logging(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).context("unable to read --log")?;
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter(filter)
            .with_writer(stderr)
            .init();
        Ok(())
    }
}
