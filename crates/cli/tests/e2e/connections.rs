//! What nodes are connected to, as the kernel tells it.

use std::{collections::BTreeSet, fs};

/// The control port's address, 127.0.0.1, as `/proc/net/tcp` has it on a little-endian machine.
const CONTROL: &str = "0100007F:";
const ESTABLISHED: &str = "01";

/// Whether a process has a TCP connection that is not one to or from a conductor.
pub(crate) fn is_connected(process: u32) -> bool {
    let sockets = sockets(process);
    // Of the whole network namespace, which on loopback others share.
    let all = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default();
    all.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, remote, state, _, _, _, _, _, inode, ..] = fields[..] else {
            return false;
        };
        state == ESTABLISHED && !remote.starts_with(CONTROL) && sockets.contains(inode)
    })
}

fn sockets(process: u32) -> BTreeSet<String> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    files
        .filter_map(|file| {
            let target = fs::read_link(file.ok()?.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}
