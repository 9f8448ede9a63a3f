//! Real-time priority for pods that ask for it, on kernels that would refuse it to every pod.
//!
//! With cgroup version 1 and `RT_GROUP_SCHED`, a process can have real-time priority only if its group has a
//! share of it, and neither the kubelet nor a container runtime gives one. Few clusters run on such a kernel;
//! on others a capability is enough. Shares do not count when the kernel's limit on all real-time threads is
//! lifted. That limit is one for the whole host, so it is lifted from the first lab to the last. A thread
//! that never sleeps would then keep its CPU; the link agents, which ask for this priority, limit themselves.

use std::fs;

use anyhow::{Context, Result};

use crate::{cgroup, record::Record};

/// In microseconds of each period of one second; -1 means no limit. See sched(7).
const LIMIT: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const NO_LIMIT: &str = "-1";

/// The host's limit, or its limit before another lab lifted it. `None` if the limit does not matter.
pub(crate) fn limit(others: &[Record]) -> Result<Option<u32>> {
    let known = others.iter().find_map(|other| other.real_time_limit);
    if known.is_some() || !cgroup::have_shares_of_real_time()? {
        return Ok(known);
    }
    let text = fs::read_to_string(LIMIT).with_context(|| format!("failed to read {LIMIT}"))?;
    // -1, no limit, does not parse as microseconds.
    Ok(text.trim().parse().ok())
}

/// Lifts the limit. A lab is useful even if that fails.
pub(crate) fn lift() {
    match fs::write(LIMIT, NO_LIMIT) {
        Ok(()) => println!(
            "==> lifting the limit on real-time threads while a lab exists: with a limit, this kernel gives pods no real-time priority"
        ),
        Err(error) => println!("==> pods get no real-time priority: failed to write {LIMIT}: {error}"),
    }
}

/// Restores the limit, unless another lab needs it lifted or someone has changed it since.
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
    fn the_last_lab_restores_the_limit_unless_it_was_changed_since() {
        let lab = |limit| Record::new(Subnet::choose("", &[]).unwrap(), 1, limit).unwrap();
        assert!(is_ours_to_restore("-1\n", &[]));
        assert!(is_ours_to_restore("-1\n", &[lab(None)]));
        assert!(!is_ours_to_restore("-1\n", &[lab(None), lab(Some(950_000))]));
        assert!(!is_ours_to_restore("980000\n", &[]));
    }
}
