//! Entering network namespaces.

use std::{
    fmt,
    fs::{self, File},
    io::ErrorKind,
    os::fd::AsFd,
    panic,
    path::PathBuf,
    thread,
};

use anyhow::{Context, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::args::NetworkNamespace;

/// The folder of the namespaces that `ip netns` lists.
const NAMESPACES_FOLDER: &str = "/run/netns";

impl NetworkNamespace {
    /// Runs a function on a thread in this namespace. Sockets that it opens stay in the namespace.
    pub(super) fn enter<T: Send>(&self, act: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let namespace = self.open()?;
        let inside = || {
            if let Some(namespace) = &namespace {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .with_context(|| format!("failed to enter {self}: run as root"))?;
            }
            act()
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    fn open(&self) -> anyhow::Result<Option<File>> {
        let path = match (&self.netns, self.pid) {
            (Some(path), _) if path.contains('/') => PathBuf::from(path),
            (Some(name), _) => PathBuf::from(NAMESPACES_FOLDER).join(name),
            (None, Some(process)) => PathBuf::from(format!("/proc/{process}/ns/net")),
            (None, None) => return Ok(None),
        };
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.absent()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!("not permitted to open {self}: run as root")
            }
            Err(error) => Err(error).with_context(|| format!("failed to open {}", path.display())),
        }
    }

    fn absent(&self) -> anyhow::Error {
        let name = match (&self.netns, self.pid) {
            (Some(name), _) if !name.contains('/') => name,
            (Some(path), _) => {
                return anyhow!("the network namespace file {path} does not exist");
            }
            (None, process) => return anyhow!("process {} does not exist", process.unwrap_or_default()),
        };
        let mut names: Vec<String> = fs::read_dir(NAMESPACES_FOLDER)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        let advice = if names.is_empty() {
            format!("{NAMESPACES_FOLDER} is empty; for a container, choose one of its processes with --pid")
        } else {
            format!("choose one of {}", names.join(", "))
        };
        anyhow!("the network namespace {name:?} does not exist: {advice}")
    }
}

impl fmt::Display for NetworkNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.netns, self.pid) {
            (Some(name), _) => write!(f, "the network namespace {name}"),
            (None, Some(process)) => write!(f, "the network namespace of process {process}"),
            (None, None) => f.write_str("this network namespace"),
        }
    }
}

/// Checks that the calling thread's network namespace has an interface. The error lists those that it has.
pub(super) fn check_interface(name: &str) -> anyhow::Result<()> {
    let names = perfrun_emulator::interfaces()?;
    if names.iter().any(|other| other == name) {
        return Ok(());
    }
    bail!(
        "this network namespace has no interface {name:?}: choose one of {} with --interface",
        names.join(", ")
    )
}
