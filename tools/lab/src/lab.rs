//! A lab: its name, its paths and its record.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command as Program, ExitCode, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{image, name::Name, part::Part, paths::Paths, process::Process, record::Record};

/// A lab of that name, which may not exist.
pub(crate) struct Lab {
    pub(crate) name: Name,
    pub(crate) paths: Paths,
    pub(crate) record: Option<Record>,
}

impl Lab {
    pub(crate) fn open(name: Name) -> Result<Self> {
        let paths = Paths::new(&name);
        let record = Record::load(&paths)?;
        Ok(Self { name, paths, record })
    }

    pub(crate) fn existing(name: Name) -> Result<Self> {
        let lab = Self::open(name)?;
        if lab.record.is_none() {
            bail!(lab.absent());
        }
        Ok(lab)
    }

    pub(crate) fn absent(&self) -> String {
        format!(
            "there is no lab {:?}; start it with `cargo xtask lab{} up`",
            self.name.to_string(),
            self.option()
        )
    }

    /// The option that selects this lab on the command line.
    fn option(&self) -> String {
        match self.name.to_string().as_str() {
            "lab" => String::new(),
            name => format!(" --name {name}"),
        }
    }

    pub(crate) fn record(&self) -> Result<&Record> {
        self.record.as_ref().context("the lab has no record")
    }

    pub(crate) fn machines(&self) -> Result<impl Iterator<Item = Part> + use<>> {
        let nodes = self.record()?.nodes;
        Ok([Part::ControlPlane]
            .into_iter()
            .chain((1..=nodes).map(Part::Node)))
    }

    /// Changes the record, and returns when the change is on disk.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Record)) -> Result<()> {
        let record = self.record.as_mut().context("the lab has no record")?;
        change(record);
        record.save(&self.paths)
    }

    pub(crate) fn holder(&self, machine: Part) -> Result<Process> {
        self.record()?.running(machine).with_context(|| {
            format!(
                "{machine} is not running; `cargo xtask lab{} start {machine}` starts it",
                self.option()
            )
        })
    }

    pub(crate) fn check_exists(&self, part: Part) -> Result<()> {
        let nodes = self.record()?.nodes;
        if part.node().is_some_and(|node| !(1..=nodes).contains(&node)) {
            bail!("unable to find {part}: the lab has nodes 1 to {nodes}");
        }
        Ok(())
    }

    pub(crate) fn report_existing(&self, nodes: u8, dual_stack: bool) -> Result<ExitCode> {
        let record = self.record()?;
        let option = self.option();
        let missing: Vec<_> = record
            .dead()
            .into_iter()
            .chain(record.stopped.iter().copied())
            .map(|part| part.to_string())
            .collect();
        if record.nodes != nodes {
            bail!(
                "lab {:?} is up with {}, not {nodes}; take it down first with `cargo xtask lab{option} down`",
                self.name.to_string(),
                counted(record.nodes)
            );
        }
        if dual_stack && !record.subnet.dual_stack {
            bail!(
                "lab {:?} is up without IPv6; take it down first with `cargo xtask lab{option} down`",
                self.name.to_string()
            );
        }
        if !missing.is_empty() {
            bail!(
                "lab {:?} is up but for {}; use `cargo xtask lab{option} start PART`, or `down` and `up`",
                self.name.to_string(),
                missing.join(", ")
            );
        }
        println!("lab {:?} is up already", self.name.to_string());
        self.print_next();
        Ok(ExitCode::SUCCESS)
    }

    pub(crate) fn print_next(&self) {
        let option = self.option();
        println!(
            "\nNext:\n\
             \x20   export KUBECONFIG=$(cargo xtask lab{option} kubeconfig)\n\
             \x20   export PATH={}:$PATH      # kubectl, ctr\n\
             \x20   kubectl get nodes\n\
             \x20   cargo xtask lab{option} load IMAGE.tar\n\
             \x20   cargo xtask lab{option} down",
            self.paths.bin().display()
        );
    }

    pub(crate) fn load(&self, archives: &[PathBuf]) -> Result<()> {
        let ctr = self.paths.bin().join("ctr");
        for archive in archives {
            if !archive.is_file() {
                bail!("unable to load {}: there is no such file", archive.display());
            }
            let mut count = 0;
            for machine in self.machines()? {
                // A stopped node keeps its images and gets no new ones.
                if machine.node().is_some() && !self.record()?.stopped.contains(&machine) {
                    image::load(&ctr, self.holder(machine)?, archive)
                        .with_context(|| format!("failed on {machine}"))?;
                    count += 1u8;
                }
            }
            println!("{}: loaded into {}", archive.display(), counted(count));
        }
        Ok(())
    }

    pub(crate) fn logs(&self, part: Part, follow: bool, lines: &str) -> Result<ExitCode> {
        self.check_exists(part)?;
        let parts = match part {
            Part::Node(number) => Part::on_node(number).to_vec(),
            part => vec![part],
        };
        let mut tail = Program::new("tail");
        tail.arg(format!("--lines={lines}"));
        if follow {
            tail.arg("--follow=name");
        }
        tail.args(parts.into_iter().map(|part| self.paths.log(part)));
        Err(tail.exec()).context("failed to start `tail`; is coreutils installed and on PATH?")
    }

    /// Copies the logs of a failure, because `down` removes them.
    pub(crate) fn keep_logs(&self) -> Option<PathBuf> {
        let kept = env::temp_dir().join(format!("perfrun-lab-{}-logs", self.name));
        let _ = fs::remove_dir_all(&kept);
        let mut copy = Program::new("cp");
        copy.arg("-r")
            .args([&self.paths.logs(), &kept])
            .stderr(Stdio::null());
        copy.status().is_ok_and(|status| status.success()).then_some(kept)
    }
}

/// "1 node", "2 nodes".
pub(crate) fn counted(nodes: u8) -> String {
    format!("{nodes} node{}", if nodes == 1 { "" } else { "s" })
}
