//! Paths of a lab's files. All of them are below one folder, which `down` removes.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{name::Name, part::Part};

/// The folder of labs is persistent, unlike /run: a few hundred MiB of programs and images do not
/// belong in memory.
const LABS: &str = "/var/lib/perfrun/lab";

/// [`Paths::lib`] as the programs of a machine see it.
pub(crate) const LIB: &str = "/var/lib/perfrun";

/// The socket of containerd, as the programs of a machine see it.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

pub(crate) struct Paths(PathBuf);

impl Paths {
    pub(crate) fn new(name: &Name) -> Self {
        Self(Path::new(LABS).join(name.to_string()))
    }

    /// The paths of all labs on this host.
    pub(crate) fn all() -> Result<Vec<Self>> {
        if !Path::new(LABS).exists() {
            return Ok(Vec::new());
        }
        let context = || format!("failed to list {LABS}");
        fs::read_dir(LABS)
            .with_context(context)?
            .map(|entry| Ok(Self(entry.with_context(context)?.path())))
            .collect()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.join("admin.kubeconfig")
    }

    /// The folder of the programs, for people and for the machines.
    pub(crate) fn bin(&self) -> PathBuf {
        self.0.join("bin")
    }

    pub(crate) fn pause_image(&self) -> PathBuf {
        self.0.join("pause.tar")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    pub(crate) fn log(&self, part: Part) -> PathBuf {
        self.logs().join(format!("{part}.log"))
    }

    /// The folder of a machine. The machine sees its `var-lib`, `var-log` and `run` as /var/lib, /var/log and
    /// /run.
    pub(crate) fn machine(&self, machine: Part) -> PathBuf {
        self.0.join(machine.to_string())
    }

    /// The configuration of a machine's programs, which see it as [`LIB`].
    pub(crate) fn lib(&self, machine: Part) -> PathBuf {
        self.machine(machine).join("var-lib/perfrun")
    }
}

/// Writes a file that only its owner can read: most of them contain a key.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file of a lab is in a folder")?;
    create_folder(folder)?;
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("failed to write {}", path.display()))
}

pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}
