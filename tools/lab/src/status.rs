//! `status`: running parts, their memory, and the paths of files.

use anyhow::Result;

use crate::{
    Lab, counted,
    part::{ON_CONTROL_PLANE, Part},
    process::{self, Process},
    record::Record,
};

impl Lab {
    pub(crate) fn status(&self) -> Result<String> {
        let record = self.record()?;
        let mut text = format!(
            "lab {:?}: {} in 10.{}.0.0/16{}\n\n",
            self.name.to_string(),
            counted(record.nodes),
            record.subnet.number(),
            if record.ready {
                ""
            } else {
                ", INCOMPLETE: `up` did not finish"
            },
        );
        text += &row("PART", "PID", "STATE", "MEMORY");
        let mut total = 0;
        for machine in self.machines()? {
            let (rows, memory) = self.machine_status(machine)?;
            text += &rows;
            total += memory;
        }
        text += &row("all", "", "", &mebibytes(total));

        let nodes = self.kubectl(&["get", "nodes", "--output", "wide"]);
        text += &format!(
            "\n{}\n\nkubeconfig: {}\nprograms:   {} (kubectl, ctr)\nlogs:       {}\n",
            nodes.unwrap_or_else(|error| format!("{error:#}")).trim_end(),
            self.paths.kubeconfig().display(),
            self.paths.bin().display(),
            self.paths.logs().display()
        );
        Ok(text)
    }

    /// The lines of a machine with its programs, and its memory in KiB, containers included.
    fn machine_status(&self, machine: Part) -> Result<(String, u64)> {
        let record = self.record()?;
        let namespace = record.running(machine).and_then(Process::pid_namespace);
        let (memory, count) = namespace.as_ref().map_or((0, 0), process::memory_of_namespace);
        let mut rows = part_status(record, machine, memory);
        rows.insert_str(rows.len() - 1, &format!("  in {count} processes"));
        let programs = match machine {
            Part::Node(number) => Part::on_node(number).to_vec(),
            _ => ON_CONTROL_PLANE.to_vec(),
        };
        for program in programs {
            let memory = record.running(program).map_or(0, Process::memory);
            rows += &part_status(record, program, memory);
        }
        Ok((rows, memory))
    }

    pub(crate) fn machines(&self) -> Result<impl Iterator<Item = Part> + use<>> {
        let nodes = self.record()?.nodes;
        Ok([Part::ControlPlane]
            .into_iter()
            .chain((1..=nodes).map(Part::Node)))
    }
}

fn part_status(record: &Record, part: Part, memory: u64) -> String {
    let running = record.running(part);
    let state = match (running, record.stopped.contains(&part)) {
        (Some(_), _) => "running",
        (None, true) => "stopped",
        (None, false) => "ENDED",
    };
    let pid = running.map_or_else(|| "-".into(), |process| process.pid.to_string());
    row(&part.to_string(), &pid, state, &mebibytes(memory))
}

fn row(part: &str, pid: &str, state: &str, memory: &str) -> String {
    format!("{part:<22} {pid:>8}  {state:<8} {memory:>9}\n")
}

fn mebibytes(kibibytes: u64) -> String {
    format!("{} MiB", kibibytes.div_ceil(1024))
}
