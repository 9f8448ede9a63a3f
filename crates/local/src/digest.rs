//! Digests of programs, each read once for all its nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use crate::nodes::Program;

/// How much is read in one call, in bytes.
const CHUNK: usize = 1 << 18;

/// What an executable file of Linux begins with.
const ELF: &[u8] = b"\x7fELF";

/// The SHA-256 digests of programs, in hexadecimal, by their paths. Without files that cannot be read, and
/// without programs that start another one: scripts, and those with arguments.
pub(crate) async fn of(programs: impl Iterator<Item = &Program>) -> BTreeMap<PathBuf, String> {
    let paths: BTreeSet<_> = programs
        .filter(|program| program.args.is_empty())
        .map(|program| program.path.clone())
        .collect();
    let read = spawn_blocking(|| {
        let known = |path: PathBuf| {
            let digest = File::open(&path).and_then(digest).ok()??;
            Some((path, digest))
        };
        paths.into_iter().filter_map(known).collect()
    });
    read.await.unwrap_or_default()
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
}
