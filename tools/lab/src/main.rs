//! `cargo xtask lab`: a real Kubernetes cluster on this machine, without containers around it, an image
//! registry or a virtual machine.
//!
//! Every node is a set of namespaces (`machine`) with a kubelet, containerd and kube-proxy. The control
//! plane is another set. `cargo xtask lab` installs packages and builds the programs that `up` starts.
//! Everything is written to the `record` before it is made, so that `down` finds it after any failure.

mod cgroup;
mod control_plane;
mod dns;
mod down;
mod image;
mod interrupt;
mod lock;
mod machine;
mod name;
mod network;
mod node;
mod part;
mod paths;
mod pki;
mod process;
mod realtime;
mod record;
mod status;
mod subnet;
mod up;

use std::{
    env,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::PathBuf,
    process::{Command as Program, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, value_parser};

use crate::{lock::Lock, name::Name, part::Part, paths::Paths, process::Process, record::Record};

#[derive(Parser)]
#[command(
    name = "cargo xtask lab",
    bin_name = "cargo xtask lab",
    about = "A real Kubernetes cluster on this machine"
)]
struct Args {
    /// The name of the lab; several labs can run side by side
    #[arg(long, global = true, default_value = "lab")]
    name: Name,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster; install and build what is missing
    #[command(override_usage = "cargo xtask lab up [OPTIONS]")]
    Up {
        /// Worker nodes
        #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..=i64::from(subnet::NODES_MAX)))]
        nodes: u8,
        /// Give pods and services addresses of IPv6, too. Each pod then starts a second or two later
        #[arg(long)]
        dual_stack: bool,
        /// The programs of a cluster, which `cargo xtask lab` builds
        #[arg(required = true, hide = true, value_name = "PROGRAM")]
        programs: Vec<PathBuf>,
    },
    /// Show parts, the nodes, and the paths of files
    Status,
    /// Print the path of the administrator's kubeconfig
    Kubeconfig,
    /// Load images into every node
    Load {
        /// Archives as `docker save` and `buildah push … docker-archive:` write them
        #[arg(required = true, value_name = "IMAGE.tar")]
        archives: Vec<PathBuf>,
    },
    /// Show the log of a part, e.g. apiserver, or of the programs of a node, e.g. node-1
    Logs {
        part: Part,
        /// Keep printing new lines
        #[arg(long, short)]
        follow: bool,
        /// Number of lines from the end; +1 shows all
        #[arg(long, short = 'n', default_value = "100", value_name = "LINES")]
        lines: String,
    },
    /// Kill a part as a crash would, e.g. apiserver or, with its containers, node-2
    Stop { part: Part },
    /// Start a stopped part and wait until it works
    Start { part: Part },
    /// Remove the cluster and all its files, except for the cached programs
    Down,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "where a command line tool says why it failed")]
            {
                eprintln!("error: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<ExitCode> {
    let Args { name, command } = args;
    if !matches!(command, Command::Kubeconfig) && !is_root() {
        bail!(
            "the lab makes namespaces, links and control groups, which needs root: run `cargo xtask lab` as root"
        );
    }
    interrupt::notice()?;
    match command {
        Command::Up {
            nodes,
            dual_stack,
            programs,
        } => return up(name, nodes, dual_stack, &programs),
        Command::Down => return down(name),
        Command::Kubeconfig => return print_kubeconfig(name),
        Command::Status => print!("{}", Lab::existing(name)?.status()?),
        Command::Load { archives } => Lab::existing(name)?.load(&archives)?,
        Command::Logs { part, follow, lines } => return Lab::existing(name)?.logs(part, follow, &lines),
        Command::Stop { part } => {
            let _lock = Lock::labs()?;
            Lab::existing(name)?.stop(part)?;
        }
        Command::Start { part } => {
            let _lock = Lock::labs()?;
            Lab::existing(name)?.start(part)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A lab of that name, which may not exist.
struct Lab {
    name: Name,
    paths: Paths,
    record: Option<Record>,
}

/// The effective user, as the kernel shows it: our own `/proc` entry belongs to it.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn up(name: Name, nodes: u8, dual_stack: bool, programs: &[PathBuf]) -> Result<ExitCode> {
    let _lock = Lock::labs()?;
    let mut lab = Lab::open(name)?;
    if let Some(record) = &lab.record {
        if record.ready && record.running(Part::ControlPlane).is_some() {
            return lab.is_up_already(nodes, dual_stack);
        }
        println!("==> removing what an earlier lab {:?} left", lab.name.to_string());
        lab.remove()?;
    }

    let start = Instant::now();
    if let Err(error) = lab.create(nodes, dual_stack, programs) {
        let logs = lab.keep_logs();
        println!("==> that failed; taking down what was started");
        if let Err(error) = lab.remove() {
            println!("==> not everything could be removed: {error:#}");
        }
        return Err(match logs {
            Some(logs) => error.context(format!(
                "failed to start the lab; its logs are in {}",
                logs.display()
            )),
            None => error,
        });
    }
    println!("==> up in {} s", start.elapsed().as_secs());
    lab.print_next();
    Ok(ExitCode::SUCCESS)
}

/// Prints the path. A user who started the lab through sudo needs the path but cannot read the record.
fn print_kubeconfig(name: Name) -> Result<ExitCode> {
    let lab = Lab {
        paths: Paths::new(&name),
        name,
        record: None,
    };
    let kubeconfig = lab.paths.kubeconfig();
    if !kubeconfig.exists() {
        bail!(lab.absent());
    }
    println!("{}", kubeconfig.display());
    Ok(ExitCode::SUCCESS)
}

fn down(name: Name) -> Result<ExitCode> {
    let _lock = Lock::labs()?;
    let mut lab = Lab::open(name)?;
    if !lab.paths.root().exists() {
        println!("there is no lab {:?}; nothing to do", lab.name.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    lab.remove()?;
    println!("lab {:?} is down", lab.name.to_string());
    Ok(ExitCode::SUCCESS)
}

impl Lab {
    fn open(name: Name) -> Result<Self> {
        let paths = Paths::new(&name);
        let record = Record::load(&paths)?;
        Ok(Self { name, paths, record })
    }

    fn existing(name: Name) -> Result<Self> {
        let lab = Self::open(name)?;
        if lab.record.is_none() {
            bail!(lab.absent());
        }
        Ok(lab)
    }

    fn absent(&self) -> String {
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

    fn record(&self) -> Result<&Record> {
        self.record.as_ref().context("the lab has no record")
    }

    /// Changes the record, and returns when the change is on disk.
    fn change(&mut self, change: impl FnOnce(&mut Record)) -> Result<()> {
        let record = self.record.as_mut().context("the lab has no record")?;
        change(record);
        record.save(&self.paths)
    }

    fn holder(&self, machine: Part) -> Result<Process> {
        self.record()?.running(machine).with_context(|| {
            format!(
                "{machine} is not running; `cargo xtask lab{} start {machine}` starts it",
                self.option()
            )
        })
    }

    fn check_exists(&self, part: Part) -> Result<()> {
        let nodes = self.record()?.nodes;
        if part.node().is_some_and(|node| !(1..=nodes).contains(&node)) {
            bail!("unable to find {part}: the lab has nodes 1 to {nodes}");
        }
        Ok(())
    }

    fn is_up_already(&self, nodes: u8, dual_stack: bool) -> Result<ExitCode> {
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

    fn print_next(&self) {
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

    fn load(&self, archives: &[PathBuf]) -> Result<()> {
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

    fn logs(&self, part: Part, follow: bool, lines: &str) -> Result<ExitCode> {
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
    fn keep_logs(&self) -> Option<PathBuf> {
        let kept = env::temp_dir().join(format!("perfrun-lab-{}-logs", self.name));
        let _ = std::fs::remove_dir_all(&kept);
        let mut copy = Program::new("cp");
        copy.arg("-r")
            .args([&self.paths.logs(), &kept])
            .stderr(Stdio::null());
        copy.status().is_ok_and(|status| status.success()).then_some(kept)
    }
}

/// "1 node", "2 nodes".
fn counted(nodes: u8) -> String {
    format!("{nodes} node{}", if nodes == 1 { "" } else { "s" })
}
