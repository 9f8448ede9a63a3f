//! `status`: running parts, and the paths of files.

use anyhow::Result;

use crate::{
    lab::{Lab, counted},
    part::{ON_CONTROL_PLANE, Part},
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
        text += &row("PART", "PID", "STATE");
        for machine in self.machines()? {
            let programs = match machine {
                Part::Node(number) => Part::on_node(number).to_vec(),
                _ => ON_CONTROL_PLANE.to_vec(),
            };
            for part in [machine].into_iter().chain(programs) {
                text += &part_status(record, part);
            }
        }

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
}

fn part_status(record: &Record, part: Part) -> String {
    let running = record.running(part);
    let state = match (running, record.stopped.contains(&part)) {
        (Some(_), _) => "running",
        (None, true) => "stopped",
        (None, false) => "ENDED",
    };
    let pid = running.map_or_else(|| "-".into(), |process| process.pid.to_string());
    row(&part.to_string(), &pid, state)
}

fn row(part: &str, pid: &str, state: &str) -> String {
    format!("{part:<22} {pid:>8}  {state}\n")
}
