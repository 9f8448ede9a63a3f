//! `perfrun describe`: what a node program reports of its stacks, as entries of `stacks` for a document.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, ensure};
use perfrun_api::spec::StackVariant;
use perfrun_contract::{
    matrix::{IpFamily, NodeProgramKind, Stack, StackSettings},
    node::{CONTRACT, Info},
    plan::{Cpus, Plan, PlannedNode},
    role::Role,
};
use perfrun_local::{
    LocalIsolation,
    nodes::{LocalNodes, NodeSettings, Program, Programs},
};
use serde::Serialize;

use crate::{args, executable, output::write_to_stdout};

/// How long a node may take to answer.
const PROVISION_TIMEOUT: Duration = Duration::from_secs(10);

/// The part of a document that names stacks.
#[derive(Serialize)]
struct Stacks {
    stacks: Vec<StackVariant>,
}

/// Starts the program, and prints the stacks that it reports.
pub async fn describe(args: &args::Describe) -> anyhow::Result<()> {
    let info = info(&args.command).await?;
    ensure!(
        info.contract == CONTRACT,
        "the node speaks version {} of the node contract, and this perfrun speaks version {CONTRACT}",
        info.contract
    );
    let variant = |(name, capabilities): (&String, &_)| StackVariant {
        // The names of built-in stacks are taken.
        name: match Stack::named(name) {
            Some(_) => format!("my-{name}"),
            None => name.clone(),
        },
        stack: Stack::External,
        image: None,
        command: args.command.clone(),
        env: BTreeMap::new(),
        settings: StackSettings::default(),
        capabilities: Some(Clone::clone(capabilities)),
    };
    let stacks: Vec<_> = info.capabilities.iter().map(variant).collect();
    ensure!(!stacks.is_empty(), "the node reports no capabilities in /v1/info");
    write_to_stdout(&serde_saphyr::to_string(&Stacks { stacks }).context("failed to write YAML")?)
}

/// Starts a node on loopback, and asks it what it is.
async fn info(command: &[String]) -> anyhow::Result<Info> {
    const NODE: &str = "node";
    let (program, first) = command.split_first().context("name the program of the node")?;
    let path = executable::in_path(program).with_context(|| format!("unable to run {program}"))?;
    let plan = Plan {
        nodes: vec![PlannedNode {
            name: NODE.to_owned(),
            role: Role::Server,
            variant: None,
            program: NodeProgramKind::External,
            ip_family: IpFamily::IPv4,
        }],
        ..Plan::default()
    };
    let programs = Programs::of(&plan, |_| {
        anyhow::Ok(Program {
            path: path.clone(),
            args: first.to_vec(),
            env: BTreeMap::new(),
        })
    })?;
    let logs = tempfile::tempdir().context("failed to create a folder for the node's log")?;
    let settings = NodeSettings {
        run: "describe".to_owned(),
        programs,
        isolation: LocalIsolation::Loopback,
        cpus: Cpus::Shared,
        provision_timeout: PROVISION_TIMEOUT,
        logs: logs.path().to_owned(),
    };
    let nodes = LocalNodes::start(settings, |_| {}).await?;
    let ready = nodes.wait_until_ready().await?;
    let info = ready[NODE]
        .node
        .info()
        .await
        .context("the node does not speak the node contract");
    nodes.stop().await;
    info
}
