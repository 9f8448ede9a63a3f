//! One xtask at a time.

use std::{fs::File, path::Path, thread, time::Duration};

use anyhow::{Context, Result};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::interrupt;

/// The parent of all labs' folders, because it exists before the first and after the last.
const LABS: &str = "/var/lib";

/// Holds until it is dropped, or xtask ends.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// While a lab is changed. One for all labs: they choose their addresses by looking at each other.
    pub fn labs() -> Result<Self> {
        let folder = File::open(LABS).with_context(|| format!("failed to open {LABS}"))?;
        Self::take(folder, "another `cargo xtask lab` is at work")
    }

    /// While programs are built into a folder.
    pub fn build(folder: &Path) -> Result<Self> {
        let folder = File::open(folder).with_context(|| format!("failed to open {}", folder.display()))?;
        Self::take(folder, "another xtask builds the same programs")
    }

    fn take(file: File, busy: &str) -> Result<Self> {
        let mut said = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error).context("failed to take a lock"),
            }
            if !said {
                println!("==> {busy}; waiting for it");
                said = true;
            }
            interrupt::check()?;
            thread::sleep(Duration::from_millis(100));
        }
    }
}
