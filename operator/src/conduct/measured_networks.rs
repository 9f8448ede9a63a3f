//! The networks of a run according to the records of its trials: which were measured, and whether each was
//! as configured the last time.

use std::collections::{BTreeMap, BTreeSet};

use perfrun_api::cluster::condition::{self, Status};
use perfrun_contract::{node::Reason, record::TrialRecord, tally::EndReason};

use crate::api::conditions::ConditionValues;

/// Reason of the condition about links that are not as configured.
pub(crate) const NOT_EFFECTIVE: condition::Reason = condition::Reason::End(EndReason::ImpairmentNotEffective);

/// The networks of a run that were measured.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct MeasuredNetworks {
    /// By name: why the network was not as configured the last time. `None` if it was.
    networks: BTreeMap<String, Option<String>>,
    /// The backends that impaired links in any trial.
    backends: BTreeSet<String>,
}

impl MeasuredNetworks {
    /// Adds the record of a trial on a network. Records are added in the order of the trials.
    pub(crate) fn add(&mut self, network: &str, record: &TrialRecord) {
        let failure = record.failure.as_ref();
        let wrong = failure.filter(|failure| failure.reason == Reason::ImpairmentNotEffective);
        // Other records hold no measurement of links.
        if wrong.is_some() || record.links.is_some() {
            let wrong = wrong.map(|failure| failure.message.clone());
            self.networks.insert(network.to_owned(), wrong);
        }
        let links = record.nodes.values().filter_map(|node| node.link.as_ref());
        self.backends.extend(links.map(|link| link.backend.to_string()));
    }

    /// Status, reason and message of the condition of a run with this number of networks. `None` if none was
    /// measured.
    pub(crate) fn condition(&self, of: usize) -> Option<ConditionValues<'static>> {
        if self.networks.is_empty() {
            return None;
        }
        let mut wrong = self.networks.values().flatten();
        let Some(first) = wrong.next() else {
            let verified = self.networks.len();
            let by = match self.backends.is_empty() {
                true => String::new(),
                false => format!(
                    "; impaired by: {}",
                    Vec::from_iter(self.backends.iter().cloned()).join(", ")
                ),
            };
            let message = format!("{verified} of {of} networks were measured and are as configured{by}");
            return Some((Status::True, condition::Reason::AsConfigured, message.into()));
        };
        let others = match wrong.count() {
            0 => String::new(),
            1 => "; and 1 other network".to_owned(),
            others => format!("; and {others} other networks"),
        };
        Some((Status::False, NOT_EFFECTIVE, format!("{first}{others}").into()))
    }
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        node::Measured,
        record::{LinkCheck, LinkRecord, NodeRecord, TrialFailure},
        role::Role,
    };
    use perfrun_link::{ActiveBackend, Mode};
    use perfrun_test_kit::records::{completed, failed};

    use super::*;

    #[test]
    fn networks_are_counted_as_they_are_measured() {
        let mut networks = MeasuredNetworks::default();
        assert_eq!(networks.condition(2), None);
        networks.add("none", &measured("none", None));
        let first = networks.condition(2).unwrap();
        assert_eq!(
            first,
            (
                Status::True,
                condition::Reason::AsConfigured,
                "1 of 2 networks were measured and are as configured".into()
            )
        );
        networks.add("wan", &measured("wan", None));
        networks.add("wan", &completed("c1.i1"));
        networks.add("wan", &failed("c1.i2", Reason::Timeout));
        assert!(networks.condition(2).unwrap().2.starts_with("2 of 2"));
    }

    #[test]
    fn the_condition_names_the_backend() {
        let impaired = |backend| LinkRecord {
            backend,
            mode: Mode::SuperPackets,
            traffic: vec![],
            worker: None,
        };
        let node = NodeRecord {
            role: Role::Client,
            measured: Measured::default(),
            link: Some(impaired(ActiveBackend::Userspace)),
        };
        let mut record = measured("wan", None);
        record.nodes = [("client-0".to_owned(), node)].into();
        let mut networks = MeasuredNetworks::default();
        networks.add("wan", &record);
        let message = networks.condition(1).unwrap().2;
        assert!(
            message.ends_with("as configured; impaired by: userspace"),
            "{message}"
        );
    }

    #[test]
    fn the_last_measurement_of_a_network_counts() {
        let mut networks = MeasuredNetworks::default();
        networks.add(
            "wan",
            &measured("wan", Some("wan, client-0 to server-0: too fast")),
        );
        networks.add("none", &measured("none", None));
        let wrong = networks.condition(2).unwrap();
        assert_eq!(
            wrong,
            (
                Status::False,
                NOT_EFFECTIVE,
                "wan, client-0 to server-0: too fast".into()
            )
        );
        // Not measured again, and not to be used.
        networks.add("wan", &failed("c1.i0", Reason::ImpairmentNotEffective));
        assert_eq!(networks.condition(2).unwrap().0, Status::False);
        networks.add("wan", &measured("wan", None));
        assert_eq!(networks.condition(2).unwrap().0, Status::True);
    }

    fn measured(network: &str, wrong: Option<&str>) -> TrialRecord {
        TrialRecord {
            links: Some(LinkCheck {
                network: network.to_owned(),
                set_seconds: 0.1,
                probe_seconds: 1.0,
                legs: vec![],
            }),
            failure: wrong.map(|message| TrialFailure {
                node: None,
                reason: Reason::ImpairmentNotEffective,
                message: message.to_owned(),
                other_limit: false,
            }),
            ..completed("c1.i0")
        }
    }
}
