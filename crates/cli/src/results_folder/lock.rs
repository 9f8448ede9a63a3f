//! Locks of results folders. The kernel releases a lock when its process ends, even if it is killed.

use std::{fs::File, io, path::Path};

use rustix::{fs::FlockOperation, io::Errno};

/// Locks a folder for this process. `None` if another process has locked it.
pub(super) fn exclusive(folder: &Path) -> io::Result<Option<File>> {
    let file = File::open(folder)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        // Some network file systems do not support locks.
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(Some(file)),
        Err(error) => Err(error.into()),
    }
}

/// Whether another perfrun process writes to a folder.
pub(super) fn is_in_use(folder: &Path) -> bool {
    let locked =
        File::open(folder).map(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared));
    matches!(locked, Ok(Err(Errno::WOULDBLOCK)))
}
