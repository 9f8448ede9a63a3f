//! `down` and `stop`. They kill only processes in the record, and remove only what this lab has made.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};

use crate::{cgroup, lab::Lab, network, part::Part, process::Process, realtime, record::Record};

/// How long a killed process can take to release memory or to finish writing to a slow disk.
const END_TIMEOUT: Duration = Duration::from_secs(30);

impl Lab {
    /// Kills a program, or a machine with all its programs, as a crash would.
    pub(crate) fn stop(&mut self, part: Part) -> Result<()> {
        self.check_exists(part)?;
        if part == Part::ControlPlane {
            bail!(
                "unable to stop the control plane: the network is on it; stop apiserver, or use `cargo xtask lab down`"
            );
        }
        let record = self.record()?;
        let (mut concerned, mut killed) = (vec![part], Vec::new());
        if let Part::Node(number) = part {
            concerned.extend(Part::on_node(number));
        }
        for part in &concerned {
            killed.extend(record.processes.get(part).copied());
        }
        // The record changes first, so that an intended kill is not reported as a failure.
        self.change(|record| {
            for part in &concerned {
                record.processes.remove(part);
                record.stopped.insert(*part);
            }
        })?;
        end(&killed)?;
        println!("{part} is stopped");
        Ok(())
    }

    /// Removes the lab, even if it is incomplete.
    pub(crate) fn remove(&mut self) -> Result<()> {
        if let Some(record) = &self.record {
            let processes: Vec<_> = record.processes.values().copied().collect();
            end(&processes)?;
            network::disconnect_host(record.subnet)?;
            cgroup::remove(&self.name)?;
            if let Some(limit) = record.real_time_limit {
                realtime::restore(limit, &Record::others(&self.paths)?)?;
            }
        }
        let root = self.paths.root().to_owned();
        unmount_below(&root)?;
        // The record is removed last, so that a second `down` can continue.
        remove_all_but(&root, &self.paths.record())?;
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("failed to remove {}", root.display()));
            }
            _ => {}
        }
        for folder in root.ancestors().skip(1).take(2) {
            // Another lab may use the folder.
            let _ = fs::remove_dir(folder);
        }
        self.record = None;
        Ok(())
    }
}

/// Kills processes. With that of a machine, the kernel kills all others on the machine, recorded or not.
fn end(processes: &[Process]) -> Result<()> {
    for process in processes {
        process.kill();
    }
    // Programs are killed before machines, in reverse order of the parts: a machine exits after its programs.
    for process in processes.iter().rev() {
        process.wait(END_TIMEOUT)?;
    }
    Ok(())
}

/// Fails if something is still mounted. A machine's own mounts are gone with it; other mounts would be
/// emptied by the removal that follows.
fn unmount_below(root: &Path) -> Result<()> {
    let file = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(file).with_context(|| format!("failed to read {file}"))?;
    for place in mounts_below(&mounts, root).into_iter().rev() {
        unmount(&place, UnmountFlags::empty()).with_context(|| {
            format!(
                "failed to unmount {}; `fuser -vm {0}` says who uses it",
                place.display()
            )
        })?;
    }
    Ok(())
}

/// Mount points in the order in which they were mounted. Paths with escaped characters are not the lab's.
fn mounts_below(mountinfo: &str, root: &Path) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|place| place.starts_with(root))
        .collect()
}

fn remove_all_but(root: &Path, kept: &Path) -> Result<()> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("failed to list {}", root.display())),
    };
    for entry in entries {
        let entry = entry.with_context(|| format!("failed to list {}", root.display()))?;
        let path = entry.path();
        if path == kept {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.with_context(|| format!("failed to remove {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use super::{mounts_below, remove_all_but};

    #[test]
    fn only_mounts_of_this_lab_are_found() {
        let info = "36 35 0:31 / /var/lib/perfrun/lab/lab/node-1/run rw - tmpfs tmpfs rw\n\
                    37 35 0:32 / /var/lib/perfrun/lab/lab2/node-1/run rw - tmpfs tmpfs rw\n\
                    38 35 0:33 / / rw - ext4 /dev/vda rw\n";
        assert_eq!(
            mounts_below(info, Path::new("/var/lib/perfrun/lab/lab")),
            [PathBuf::from("/var/lib/perfrun/lab/lab/node-1/run")]
        );
    }

    #[test]
    fn the_record_is_kept_to_the_end() {
        let root = std::env::temp_dir().join(format!("lab-down-{}", std::process::id()));
        fs::create_dir_all(root.join("node-1/var-lib")).unwrap();
        let record = root.join("record.json");
        fs::write(&record, "{}").unwrap();
        fs::write(root.join("admin.kubeconfig"), "{}").unwrap();
        remove_all_but(&root, &record).unwrap();
        let left: Vec<_> = fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(left, [record]);
        fs::remove_dir_all(&root).unwrap();
        remove_all_but(&root, Path::new("/none")).unwrap();
    }
}
