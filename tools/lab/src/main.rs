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
mod lab;
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

use std::{os::unix::fs::MetadataExt, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, value_parser};

use crate::{lab::Lab, lock::Lock, name::Name, part::Part, paths::Paths};

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
        /// Kubernetes nodes besides the control plane
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
    interrupt::watch_signals()?;
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

/// The effective user, as the kernel shows it: our own `/proc` entry belongs to it.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn up(name: Name, nodes: u8, dual_stack: bool, programs: &[PathBuf]) -> Result<ExitCode> {
    let _lock = Lock::labs()?;
    let mut lab = Lab::open(name)?;
    if let Some(record) = &lab.record {
        if record.ready && record.running(Part::ControlPlane).is_some() {
            return lab.report_existing(nodes, dual_stack);
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
