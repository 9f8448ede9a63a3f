//! The control groups of a lab: `/perfrun-lab/NAME/node-N` in every hierarchy of cgroup version 1 or 2.

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

/// How long a group can stay busy after its last process has exited.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// The group into which a node's kubelet puts pods, as the kubelet's configuration names it.
pub(crate) fn of(name: &Name, machine: Part) -> String {
    format!("/{ROOT}/{name}/{machine}")
}

/// Creates a node's group. The kubelet requires that it exists.
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

/// Removes the lab's groups after their processes have been killed.
pub(crate) fn remove(name: &Name) -> Result<()> {
    let deadline = Instant::now() + RELEASE_TIMEOUT;
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
        // Another lab may still use the parent group.
        let _ = fs::remove_dir(root);
    }
    Ok(())
}

/// Whether the kernel grants real-time priority only to groups with a share of real-time time.
pub(crate) fn have_shares_of_real_time() -> Result<bool> {
    let hierarchies = hierarchies()?;
    Ok(hierarchies
        .iter()
        .any(|hierarchy| hierarchy.join("cpu.rt_runtime_us").exists()))
}

/// Version 2: lets children of a group use the controllers that the group has.
fn delegate(group: &Path) {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        // Some kernels cannot delegate every controller. The kubelet reports the ones that it misses.
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Version 1: a new cpuset is empty, and no process can join it before it has CPUs and memory.
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

/// Removes groups depth first, and returns whether all of them were removed. Only groups are removed; the
/// kernel removes their files.
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
