//! What a control group allows its processes, from its files: of version 2 or of version 1.
//!
//! The caller passes a function that returns the content of one of these files, by its name.

/// Folders in which the control group of a process may be for this controller, according to
/// `/proc/PID/cgroup`. The root of the mount comes last, where a container sees its own group.
pub fn folders(groups: &str, controller: &str) -> Vec<String> {
    let mut folders = vec![];
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        if controllers.split(',').any(|name| name == controller) {
            folders.push(format!("/sys/fs/cgroup/{controllers}{path}"));
            folders.push(format!("/sys/fs/cgroup/{controller}{path}"));
            folders.push(format!("/sys/fs/cgroup/{controller}"));
        } else if controllers.is_empty() {
            folders.push(format!("/sys/fs/cgroup{path}"));
            folders.push("/sys/fs/cgroup".to_owned());
        }
    }
    folders
}

/// CPUs that the group allows. `None` without a limit.
pub fn cpu_limit(read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    if let Some(max) = read("cpu.max") {
        let (quota, period) = max.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let number = |file: &str| read(file)?.trim().parse::<f64>().ok();
    let quota = number("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
    Some(quota / number("cpu.cfs_period_us")?)
}

/// Memory that the group allows, in bytes. `None` without a limit.
pub fn memory_limit(read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    /// Version 1 has a number near 2^63 for no limit.
    const NO_LIMIT: u64 = 1 << 60;
    ["memory.max", "memory.limit_in_bytes"]
        .into_iter()
        .find_map(|file| read(file)?.trim().parse().ok())
        .filter(|bytes| *bytes < NO_LIMIT)
}

/// Processes and threads that the group allows. `None` without a limit.
pub fn process_limit(read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    read("pids.max")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group with these files.
    fn group(files: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |wanted| {
            let mut files = files.iter();
            let (_, text) = files.find(|(name, _)| *name == wanted)?;
            Some(format!("{text}\n"))
        }
    }

    #[test]
    fn folders_cover_both_versions_and_containers() {
        let v1 = folders("4:cpu,cpuacct:/pod/a\n3:memory:/m\n", "cpu");
        assert_eq!(v1[0], "/sys/fs/cgroup/cpu,cpuacct/pod/a");
        assert_eq!(v1[2], "/sys/fs/cgroup/cpu");
        let v2 = folders("0::/kubepods/x\n", "cpu");
        assert_eq!(v2, ["/sys/fs/cgroup/kubepods/x", "/sys/fs/cgroup"]);
    }

    #[test]
    fn limits_are_read_from_both_versions() {
        let v2 = group(&[
            ("cpu.max", "150000 100000"),
            ("memory.max", "1073741824"),
            ("pids.max", "4096"),
        ]);
        assert_eq!(
            (cpu_limit(&v2), memory_limit(&v2), process_limit(&v2)),
            (Some(1.5), Some(1 << 30), Some(4096))
        );
        let v1 = group(&[
            ("cpu.cfs_quota_us", "50000"),
            ("cpu.cfs_period_us", "100000"),
            ("memory.limit_in_bytes", "1048576"),
        ]);
        assert_eq!((cpu_limit(&v1), memory_limit(&v1)), (Some(0.5), Some(1 << 20)));
    }

    #[test]
    fn a_group_without_limits_has_none() {
        let v2 = group(&[
            ("cpu.max", "max 100000"),
            ("memory.max", "max"),
            ("pids.max", "max"),
        ]);
        let v1 = group(&[
            ("cpu.cfs_quota_us", "-1"),
            ("cpu.cfs_period_us", "100000"),
            ("memory.limit_in_bytes", "9223372036854771712"),
        ]);
        for limits in [
            (cpu_limit(&v2), memory_limit(&v2), process_limit(&v2)),
            (cpu_limit(&v1), memory_limit(&v1), process_limit(&v1)),
        ] {
            assert_eq!(limits, (None, None, None));
        }
    }
}
