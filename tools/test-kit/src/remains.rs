//! Processes and namespaces that a test has left behind.

use std::{collections::BTreeSet, fs};

/// All processes of this machine that are visible to this one.
pub fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process is alive. A zombie is not: reaping it is the duty of its parent.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Network namespaces that a process is in, or holds open.
pub fn namespaces_of(process: u32) -> BTreeSet<u64> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let links = descriptors.map(|entry| entry.path());
    let links = links.chain([format!("/proc/{process}/ns/net").into()]);
    let targets = links.filter_map(|link| fs::read_link(link).ok());
    targets
        .filter_map(|target| namespace_id(target.to_str()?))
        .collect()
}

/// The namespaces that still exist, because a process is in them or holds them open.
pub fn present(namespaces: &BTreeSet<u64>) -> BTreeSet<u64> {
    let present: BTreeSet<u64> = processes().flat_map(namespaces_of).collect();
    namespaces.intersection(&present).copied().collect()
}

fn namespace_id(link: &str) -> Option<u64> {
    link.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}
