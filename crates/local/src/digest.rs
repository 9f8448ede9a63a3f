//! Digests of programs, each read once for all its nodes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tokio::{sync::Mutex, task::spawn_blocking};

/// How much is read in one call, in bytes.
const CHUNK: usize = 1 << 18;

/// What an executable file of Linux begins with.
const ELF: &[u8] = b"\x7fELF";

/// What tells a file from the one that was at its path before, for example by a build during the run.
#[derive(Debug, Eq, PartialEq)]
struct Identity {
    inode: (u64, u64),
    changed: (i64, i64),
    bytes: u64,
}

/// The SHA-256 digests of programs, in hexadecimal, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Digests(Mutex<BTreeMap<PathBuf, (Identity, Option<String>)>>);

impl Digests {
    /// The digest of the program at a path, which is read again only if its file is another one. `None` if it
    /// cannot be read, or is a script.
    pub(crate) async fn of(&self, path: &Path) -> Option<String> {
        let identity = identity(path).ok()?;
        let mut known = self.0.lock().await;
        if let Some((earlier, digest)) = known.get(path)
            && *earlier == identity
        {
            return digest.clone();
        }
        let file = path.to_owned();
        let read = spawn_blocking(|| File::open(file).and_then(digest).ok().flatten());
        let digest = read.await.ok().flatten();
        known.insert(path.to_owned(), (identity, digest.clone()));
        digest
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let file = fs::metadata(path)?;
    Ok(Identity {
        inode: (file.dev(), file.ino()),
        changed: (file.ctime(), file.ctime_nsec()),
        bytes: file.len(),
    })
}

/// The digest of an executable file. `None` for other files.
fn digest(mut from: impl Read) -> io::Result<Option<String>> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut is_first = true;
    loop {
        let length = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if is_first && !buffer[..length].starts_with(ELF) {
            return Ok(None);
        }
        if length == 0 {
            break;
        }
        is_first = false;
        digest.update(&buffer[..length]);
    }
    Ok(Some(
        digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_an_executable_file_has_a_digest() {
        assert_eq!(digest(&b"#!/bin/sh"[..]).unwrap(), None);
        assert_eq!(digest(io::empty()).unwrap(), None);
        let program = File::open("/proc/self/exe").and_then(digest).unwrap().unwrap();
        assert_eq!(program.len(), 64);
        assert_ne!(digest(&b"\x7fELF"[..]).unwrap().unwrap(), program);
    }

    #[tokio::test]
    async fn another_program_at_the_same_path_has_another_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        let digests = Digests::default();
        fs::write(&path, b"\x7fELF one").unwrap();
        let one = digests.of(&path).await.unwrap();
        assert_eq!(digests.of(&path).await.as_ref(), Some(&one));
        let next = folder.path().join("next");
        fs::write(&next, b"\x7fELF two").unwrap();
        fs::rename(next, &path).unwrap();
        assert_ne!(digests.of(&path).await.unwrap(), one);
    }
}
