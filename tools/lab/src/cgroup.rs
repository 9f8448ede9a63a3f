//! The control groups of a lab, `/perfrun-lab/NAME/node-N` in every hierarchy of either version.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{name::Name, part::Part};

const ROOT: &str = "perfrun-lab";

/// After its last process has ended a group is busy for a moment.
const RELEASE: Duration = Duration::from_secs(10);

/// The group that a node's kubelet puts pods into, as it is told.
pub(crate) fn of(name: &Name, machine: Part) -> String {
    format!("/{ROOT}/{name}/{machine}")
}

/// Makes a node's group; the kubelet insists that it exists.
pub(crate) fn create(name: &Name, machine: Part) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut group = hierarchy.clone();
        for folder in [ROOT, &name.to_string(), &machine.to_string()] {
            delegate(&group);
            group.push(folder);
            if !group.exists() {
                fs::create_dir(&group).with_context(|| format!("failed to create {}", group.display()))?;
            }
            inherit(&group);
        }
    }
    Ok(())
}

/// Removes the lab's groups, whose processes have been killed.
pub(crate) fn remove(name: &Name) -> Result<()> {
    let deadline = Instant::now() + RELEASE;
    for hierarchy in hierarchies()? {
        let root = hierarchy.join(ROOT);
        let group = root.join(name.to_string());
        while group.exists() && !remove_tree(&group) {
            if Instant::now() > deadline {
                bail!(
                    "failed to remove {}: it is still in use; `find {0} -name cgroup.procs | xargs cat` lists by whom",
                    group.display()
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
        // Another lab may still be in it.
        let _ = fs::remove_dir(root);
    }
    Ok(())
}

/// Whether groups have to be given a share before their processes can have real-time priority.
pub(crate) fn have_shares_of_real_time() -> Result<bool> {
    let hierarchies = hierarchies()?;
    Ok(hierarchies
        .iter()
        .any(|hierarchy| hierarchy.join("cpu.rt_runtime_us").exists()))
}

/// Version 2: lets children of a group have what the group has.
fn delegate(group: &Path) {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        // Some cannot be delegated on some kernels; the kubelet names those that it misses.
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Version 1: a new cpuset is empty, and no process can be in it before it is filled.
fn inherit(group: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = fs::read_to_string(group.join(file));
        if own.is_ok_and(|own| own.trim().is_empty())
            && !group.join("cgroup.controllers").exists()
            && let Some(Ok(above)) = group.parent().map(|above| fs::read_to_string(above.join(file)))
        {
            let _ = fs::write(group.join(file), above.trim());
        }
    }
}

/// Depth first, and whether all of it went. Only groups are removed; their files come and go with them.
fn remove_tree(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let file = "/proc/self/mounts";
    let mounts = fs::read_to_string(file).with_context(|| format!("failed to read {file}"))?;
    let hierarchies = parse(&mounts);
    if hierarchies.is_empty() {
        bail!("unable to find control groups; mount them at /sys/fs/cgroup, as systemd does");
    }
    Ok(hierarchies)
}

fn parse(mounts: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let place = fields.next()?;
            matches!(fields.next()?, "cgroup" | "cgroup2").then(|| place.into())
        })
        .filter(|place: &PathBuf| place.starts_with("/sys/fs/cgroup"))
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::parse;

    #[test]
    fn hierarchies_of_both_versions_are_found_once() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      proc /proc proc rw 0 0\n";
        let expected: [PathBuf; 2] = ["/sys/fs/cgroup/cpu".into(), "/sys/fs/cgroup/unified".into()];
        assert_eq!(parse(mounts), expected);
        assert_eq!(
            parse("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            [PathBuf::from("/sys/fs/cgroup")]
        );
    }
}
