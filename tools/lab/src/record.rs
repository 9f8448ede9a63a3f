//! What exists of a lab, written before it is made, so that a lab whose `up` was killed can be removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    part::Part,
    paths::{self, Paths},
    process::Process,
    subnet::Subnet,
};

#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Record {
    /// The kernel's ID of this boot. After a reboot no process of the record exists, and the kernel has its
    /// own limits again.
    pub boot: String,
    #[serde(flatten)]
    pub subnet: Subnet,
    pub nodes: u8,
    /// Whether `up` has finished.
    pub ready: bool,
    /// Processes that were started and not stopped on purpose since.
    pub processes: BTreeMap<Part, Process>,
    /// Parts that `stop` has stopped.
    pub stopped: BTreeSet<Part>,
    /// The limit that [`realtime`](crate::realtime) restores in the end.
    #[serde(default)]
    pub real_time_limit: Option<u32>,
}

impl Record {
    pub(crate) fn new(subnet: Subnet, nodes: u8, real_time_limit: Option<u32>) -> Result<Self> {
        Ok(Self {
            boot: boot()?,
            subnet,
            nodes,
            ready: false,
            processes: BTreeMap::new(),
            stopped: BTreeSet::new(),
            real_time_limit,
        })
    }

    /// `None` if the lab does not exist, or only as an empty folder.
    pub(crate) fn load(paths: &Paths) -> Result<Option<Self>> {
        let file = paths.record();
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
        let mut record = Self::parse(&text).with_context(|| {
            format!(
                "unable to read {}; was it written by another version of perfrun? use that one's `lab down`",
                file.display()
            )
        })?;
        if record.boot != boot()? {
            record.processes.clear();
            record.real_time_limit = None;
        }
        Ok(Some(record))
    }

    /// The records of all other labs on this host.
    pub(crate) fn others(own: &Paths) -> Result<Vec<Self>> {
        let mut others = Vec::new();
        for paths in Paths::all()? {
            if paths.root() != own.root() {
                others.extend(Self::load(&paths)?);
            }
        }
        Ok(others)
    }

    pub(crate) fn save(&self, paths: &Paths) -> Result<()> {
        let new = paths.root().join("record.json.new");
        paths::write(&new, &self.to_text()?)?;
        let file = paths.record();
        fs::rename(&new, &file).with_context(|| format!("failed to write {}", file.display()))
    }

    pub(crate) fn started(&mut self, part: Part, process: Process) {
        self.stopped.remove(&part);
        self.processes.insert(part, process);
    }

    /// The process of a part, if it was started and still runs.
    pub(crate) fn running(&self, part: Part) -> Option<Process> {
        self.processes
            .get(&part)
            .copied()
            .filter(|process| process.is_alive())
    }

    /// Parts that should be running but are not.
    pub(crate) fn dead(&self) -> Vec<Part> {
        self.processes
            .iter()
            .filter(|(_, process)| !process.is_alive())
            .map(|(part, _)| *part)
            .collect()
    }

    fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    fn to_text(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("failed to serialise the record of a lab")
    }
}

fn boot() -> Result<String> {
    let file = "/proc/sys/kernel/random/boot_id";
    let id = fs::read_to_string(file).with_context(|| format!("failed to read {file}"))?;
    Ok(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Record, Subnet};
    use crate::{part::Part, process::Process};

    fn record() -> Record {
        let mut record = Record::new(Subnet::choose("", &[]).unwrap(), 3, Some(950_000)).unwrap();
        let process = Process { pid: 7, started: 42 };
        record.processes.insert(Part::Kubelet(2), process);
        record.stopped.insert(Part::ApiServer);
        record
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = record().to_text().unwrap();
        assert_eq!(Record::parse(&text).unwrap(), record());
        assert!(text.contains("\"node-2/kubelet\": {"), "{text}");
        assert!(text.contains("\"apiserver\""), "{text}");
    }

    #[test]
    fn half_a_record_is_an_error() {
        let text = record().to_text().unwrap();
        assert!(Record::parse(&text[..text.len() / 2]).is_err());
    }

    #[test]
    fn a_pid_with_another_start_time_is_not_ours() {
        let mut record = record();
        let own = Process::of(std::process::id().try_into().unwrap()).unwrap();
        record.processes.insert(Part::Etcd, own);
        let reused = Process {
            started: own.started + 1,
            ..own
        };
        record.processes.insert(Part::Dns, reused);
        assert_eq!(record.running(Part::Etcd), Some(own));
        assert_eq!(record.running(Part::Dns), None);
        assert!(record.dead().contains(&Part::Dns));
    }
}
