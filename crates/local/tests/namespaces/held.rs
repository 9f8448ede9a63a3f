//! Processes and namespaces that must not be left.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
};

use perfrun_local::{LocalNetwork, NodeProcess, Slot};
use perfrun_test_kit::remains::{self, is_alive, processes};

/// The environment variable of the nodes of a `scenario_churn` with the process that started them.
pub(crate) const CHURNED_BY: &str = "PERFRUN_TEST_CHURNED_BY";

/// Processes and namespaces that must go.
pub(crate) struct Held {
    pub pids: BTreeSet<u32>,
    pub namespaces: BTreeSet<u64>,
}

impl Held {
    pub(crate) fn of(network: &LocalNetwork, nodes: &[NodeProcess]) -> Self {
        Self {
            pids: nodes.iter().map(NodeProcess::pid).collect(),
            namespaces: network.slots().iter().map(id).collect(),
        }
    }

    pub(crate) fn write(&self) {
        let numbers = self.pids.iter().map(|pid| format!("pid {pid}"));
        let numbers = numbers.chain(self.namespaces.iter().map(|id| format!("namespace {id}")));
        print!("{}\n\n", numbers.collect::<Vec<_>>().join("\n"));
        io::stdout().flush().unwrap();
    }

    pub(crate) fn read(from: &mut impl Read) -> Self {
        let mut held = Self {
            pids: BTreeSet::new(),
            namespaces: BTreeSet::new(),
        };
        for line in BufReader::new(from).lines() {
            match line.unwrap().split_once(' ') {
                Some(("pid", pid)) => drop(held.pids.insert(pid.parse().unwrap())),
                Some(("namespace", id)) => drop(held.namespaces.insert(id.parse().unwrap())),
                _ => break,
            }
        }
        held
    }

    pub(crate) fn alive(&self) -> BTreeSet<u32> {
        self.pids.iter().copied().filter(|&pid| is_alive(pid)).collect()
    }

    /// Those that any process is in, or holds open.
    pub(crate) fn present(&self) -> BTreeSet<u64> {
        remains::present(&self.namespaces)
    }
}

/// Nodes of a `scenario_churn`, by the environment it gave them.
pub(crate) fn started_by(perfrun: u32) -> Vec<u32> {
    let mark = format!("{CHURNED_BY}={perfrun}");
    let marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == mark.as_bytes())
    };
    processes().filter(marked).filter(|&pid| is_alive(pid)).collect()
}

pub(crate) fn id(slot: &Slot) -> u64 {
    slot.namespace().unwrap().id().unwrap()
}
