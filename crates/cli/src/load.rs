//! How busy this machine is.

use std::fs;

use perfrun_contract::machine::{BUSY_FOREIGN, BUSY_STEAL, MachineTime};

/// CPU time of this machine since it was started. `None` where the kernel does not report it.
pub(crate) fn read() -> Option<MachineTime> {
    MachineTime::since_boot(&fs::read_to_string("/proc/stat").ok()?, None)
}

/// Why a machine is busy. `None` if it is quiet.
pub(crate) fn why_busy(time: &MachineTime) -> Option<String> {
    let (foreign, steal) = (time.foreign(0.0), time.steal());
    let foreign =
        (foreign > BUSY_FOREIGN).then(|| format!("other processes use {:.0} % of its CPUs", foreign * 100.0));
    let steal = (steal > BUSY_STEAL).then(|| {
        let percent = steal * 100.0;
        format!("its hypervisor gives {percent:.0} % of their time to other machines")
    });
    match (foreign, steal) {
        (Some(foreign), Some(steal)) => Some(format!("{foreign}, and {steal}")),
        (foreign, steal) => foreign.or(steal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two CPUs for half a second, of which others use these shares.
    fn load(foreign: f64, steal: f64) -> MachineTime {
        MachineTime {
            cpus: 2,
            total_seconds: 1.0,
            busy_seconds: foreign + 0.02,
            steal_seconds: steal + 0.01,
            ..MachineTime::default()
        }
    }

    #[test]
    fn a_busy_machine_is_described() {
        assert_eq!(why_busy(&load(0.1, 0.05)), None);
        assert_eq!(
            why_busy(&load(0.43, 0.0)).unwrap(),
            "other processes use 43 % of its CPUs"
        );
        assert_eq!(
            why_busy(&load(0.43, 0.08)).unwrap(),
            "other processes use 43 % of its CPUs, and its hypervisor gives 8 % of their time to other machines"
        );
        assert!(
            why_busy(&load(0.0, 0.08))
                .unwrap()
                .starts_with("its hypervisor gives 8 %")
        );
    }
}
