//! Real-time priority for pods that ask for it, on kernels that would refuse it to every pod.
//!
//! With control groups of version 1 and `RT_GROUP_SCHED` a process may have real-time priority only if its group has a
//! share of it, and neither the kubelet nor a container runtime gives one. Few clusters run on such a kernel; on the others a
//! capability is enough. Shares do not count once the kernel's limit of all real-time threads together is lifted, which it
//! only is for the whole computer: from the first lab on to the last. A thread that turned all the time would then keep its
//! CPU; the link agents that ask for this priority limit themselves.

use std::fs;

use anyhow::{Context, Result};

use crate::{cgroup, record::Record};

/// In microseconds of each period, which is a second; -1 is no limit. See sched(7).
const LIMIT: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const NO_LIMIT: &str = "-1";

/// The limit that this computer has, or had before other labs lifted it, if it is in the way.
pub(crate) fn limit(others: &[Record]) -> Result<Option<u32>> {
    let known = others.iter().find_map(|other| other.real_time_limit);
    if known.is_some() || !cgroup::have_shares_of_real_time()? {
        return Ok(known);
    }
    let text = fs::read_to_string(LIMIT).with_context(|| format!("failed to read {LIMIT}"))?;
    // None of ours if there is no limit: -1 is not a number of microseconds.
    Ok(text.trim().parse().ok())
}

/// Lifts it. A lab is of use without that, too.
pub(crate) fn lift() {
    match fs::write(LIMIT, NO_LIMIT) {
        Ok(()) => println!(
            "==> no limit of real-time threads while there is a lab: with one, this kernel gives pods no real-time priority"
        ),
        Err(error) => println!("==> pods get no real-time priority: failed to write {LIMIT}: {error}"),
    }
}

/// Puts the limit back, unless another lab needs it lifted or somebody set it since.
pub(crate) fn restore(limit: u32, others: &[Record]) -> Result<()> {
    let current = fs::read_to_string(LIMIT).with_context(|| format!("failed to read {LIMIT}"))?;
    if !is_ours_to_restore(&current, others) {
        return Ok(());
    }
    fs::write(LIMIT, limit.to_string()).with_context(|| format!("failed to write {limit} to {LIMIT}"))
}

fn is_ours_to_restore(current: &str, others: &[Record]) -> bool {
    current.trim() == NO_LIMIT && others.iter().all(|other| other.real_time_limit.is_none())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{record::Record, subnet::Subnet},
        is_ours_to_restore,
    };

    #[test]
    fn the_limit_comes_back_with_the_last_lab_unless_somebody_set_it() {
        let lab = |limit| Record::new(Subnet::choose("", &[]).unwrap(), 1, limit).unwrap();
        assert!(is_ours_to_restore("-1\n", &[]));
        assert!(is_ours_to_restore("-1\n", &[lab(None)]));
        assert!(!is_ours_to_restore("-1\n", &[lab(None), lab(Some(950_000))]));
        assert!(!is_ours_to_restore("980000\n", &[]));
    }
}
