//! All checks, and what they say together.

use super::{
    can_do::{counters, go_node, namespaces, netem, node, perf, tun},
    facts::Facts,
    finding::Finding,
    spoils::{
        clock_source, congestion_control, cpu_limit, cpus, governor, load, memory, mitigations, open_files,
        processes, real_time, smt, swap, udp_buffers,
    },
};

/// What a check is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Group {
    CanDo,
    Spoils,
}

/// A check of this machine.
pub(super) struct Check {
    pub group: Group,
    pub name: &'static str,
    /// What a run cannot do if this is missing.
    pub without: Without,
    check: fn(&Facts) -> Finding,
}

/// What a run cannot do if something is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Without {
    /// It does not run.
    Everything,
    /// It runs with an option only.
    But(&'static str),
    /// It runs without this.
    Part(&'static str),
}

const fn can_do(name: &'static str, without: Without, check: fn(&Facts) -> Finding) -> Check {
    Check {
        group: Group::CanDo,
        name,
        without,
        check,
    }
}

const fn spoils(name: &'static str, check: fn(&Facts) -> Finding) -> Check {
    Check {
        group: Group::Spoils,
        name,
        without: Without::Everything,
        check,
    }
}

/// What a run without impaired links lacks, whichever backend is missing.
const LINKS: Without = Without::Part("impaired links");

/// All checks, in the order in which they are printed.
static CHECKS: [Check; 21] = [
    can_do("namespaces", Without::But("--loopback"), namespaces),
    can_do("perfrun-node", Without::Everything, node),
    can_do("perfrun-node-go", Without::Part("go-libp2p"), go_node),
    can_do("kernel links", LINKS, netem),
    can_do("user-space links", LINKS, tun),
    can_do("profiles", Without::Part("--profile"), perf),
    can_do("cycle counters", Without::Part("CPU cycles per byte"), counters),
    spoils("load", load),
    spoils("CPUs", cpus),
    spoils("CPU limit", cpu_limit),
    spoils("governor", governor),
    spoils("SMT", smt),
    spoils("clock source", clock_source),
    spoils("UDP buffers", udp_buffers),
    spoils("real-time links", real_time),
    spoils("open files", open_files),
    spoils("processes", processes),
    spoils("memory", memory),
    spoils("swap", swap),
    spoils("congestion control", congestion_control),
    spoils("mitigations", mitigations),
];

/// What all checks have found.
pub(super) struct Report(Vec<(&'static Check, Finding)>);

impl Report {
    /// Makes all checks.
    pub(super) fn of(facts: &Facts) -> Self {
        Self(CHECKS.iter().map(|check| (check, (check.check)(facts))).collect())
    }

    /// Each check with its finding.
    pub(super) fn findings(&self) -> impl Iterator<Item = (&Check, &Finding)> {
        self.0.iter().map(|(check, finding)| (*check, finding))
    }

    /// Whether `perfrun run` works here without further options.
    pub(super) fn works(&self) -> bool {
        self.lacks().all(|without| matches!(without, Without::Part(_)))
    }

    /// What can be run here, in a sentence.
    pub(super) fn summary(&self) -> String {
        let hints = self
            .findings()
            .filter(|(_, finding)| matches!(finding, Finding::Hint { .. }));
        let uncertain = match hints.count() {
            0 => String::new(),
            1 => ", and one finding makes its numbers less certain".to_owned(),
            hints => format!(", and {hints} findings make its numbers less certain"),
        };
        if self.lacks().any(|without| without == Without::Everything) {
            return "`perfrun run` does not work here: mend what is marked with an x.".to_owned();
        }
        let option = self.lacks().find_map(|without| match without {
            Without::But(option) => Some(option),
            _ => None,
        });
        let mut parts = vec![];
        for without in self.lacks() {
            if let Without::Part(part) = without
                && !parts.contains(&part)
            {
                parts.push(part);
            }
        }
        let how = match option {
            Some(option) => format!(" with {option} only"),
            None => String::new(),
        };
        let but = match parts.split_last() {
            None => String::new(),
            Some((only, [])) => format!(", without {only}"),
            Some((last, others)) => format!(", without {} and {last}", others.join(", ")),
        };
        format!("`perfrun run` works here{how}{but}{uncertain}.")
    }

    /// What a run cannot do because of each thing that is missing.
    fn lacks(&self) -> impl Iterator<Item = Without> {
        let missing = self
            .findings()
            .filter(|(_, finding)| matches!(finding, Finding::Missing { .. }));
        missing.map(|(check, _)| check.without)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::facts::NoNamespaces, *};
    use perfrun_local::network;

    fn of(change: impl FnOnce(&mut Facts)) -> (bool, String) {
        let mut facts = Facts::good();
        change(&mut facts);
        let report = Report::of(&facts);
        (report.works(), report.summary())
    }

    fn works(summary: &str) -> (bool, String) {
        (true, summary.to_owned())
    }

    #[test]
    fn every_check_has_a_name_of_its_own() {
        for (i, check) in CHECKS.iter().enumerate() {
            assert!(
                CHECKS[..i].iter().all(|other| other.name != check.name),
                "{}",
                check.name
            );
        }
    }

    #[test]
    fn the_summary_says_what_works() {
        assert_eq!(of(|_| ()), works("`perfrun run` works here."));
        let hints = of(|facts| {
            facts.cpus = Some(1);
            facts.files.smt_active = Some("1".to_owned());
        });
        assert_eq!(
            hints,
            works("`perfrun run` works here, and 2 findings make its numbers less certain.")
        );
    }

    #[test]
    fn a_run_works_without_its_parts() {
        let none = || Err("there is no such file".to_owned());
        let parts = of(|facts| {
            facts.go_node = none();
            facts.perf = Some(Err(crate::profile::Error::FindPerf));
        });
        assert_eq!(
            parts,
            works("`perfrun run` works here, without go-libp2p and --profile.")
        );
        let broken = of(|facts| facts.node = none());
        assert_eq!(
            broken,
            (
                false,
                "`perfrun run` does not work here: mend what is marked with an x.".to_owned()
            )
        );
    }

    #[test]
    fn without_namespaces_a_run_needs_an_option() {
        let (works, summary) = of(|facts| {
            facts.namespaces = Err(NoNamespaces::Network(network::Error::NoIpv6));
            facts.abilities = None;
        });
        assert!(!works);
        // Both backends lack the same.
        assert!(
            summary.starts_with("`perfrun run` works here with --loopback only, without impaired links"),
            "{summary}"
        );
    }
}
