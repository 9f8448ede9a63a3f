//! A lock, so that one process at a time changes labs.

use std::{fs::File, thread, time::Duration};

use anyhow::{Context, Result};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::interrupt;

/// The parent of the folders of all labs. It exists before the first lab and after the last one.
const PARENT: &str = "/var/lib";

/// Released when the value is dropped or the process exits.
pub(crate) struct Lock {
    _folder: File,
}

impl Lock {
    /// Locks all labs while one of them changes: a lab chooses its addresses by those of the others.
    pub(crate) fn labs() -> Result<Self> {
        let folder = File::open(PARENT).with_context(|| format!("failed to open {PARENT}"))?;
        let mut waits = false;
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _folder: folder }),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error).context("failed to take a lock"),
            }
            if !waits {
                println!("==> another `cargo xtask lab` is running; waiting for it");
                waits = true;
            }
            interrupt::check()?;
            thread::sleep(Duration::from_millis(100));
        }
    }
}
