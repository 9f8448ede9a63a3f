//! Which runs may be active together. Runs that share a cluster disturb each other's numbers.
//!
//! Namespaces take turns: of the waiting runs, one of the namespace goes first whose last turn is the longest
//! ago. A namespace with many runs does not keep another from its first. Messages name runs of the same
//! namespace only, because authors may have no right to see others.

use crate::policy::{ExclusivePer, Policy};

/// A run that is active, or would like to be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Contender<'a> {
    /// When the run was created, in seconds. Earlier runs of a namespace go first.
    pub(crate) created: i64,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    /// Whether no other run may be active.
    pub(crate) exclusive: bool,
    pub(crate) standing: Standing,
    /// The number of the turn in which a run of the namespace began last. 0 if none has.
    pub(crate) last_turn: u64,
}

impl Contender<'_> {
    /// The place of a waiting run: the least one goes first.
    fn order(&self) -> (u64, i64, &str, &str) {
        (self.last_turn, self.created, self.namespace, self.name)
    }
}

/// How a run stands in the way of others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// The run may not start yet.
    Waiting,
    /// A pass creates the run's first objects now. It may fail.
    Starting,
    /// The run has objects.
    Active,
    /// The run has ended: it is not in the way.
    Ended,
}

/// Why a run may not start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Blocked {
    pub(crate) why: String,
    /// Whether this may change although no run ends, so that nothing wakes the waiting run.
    pub(crate) recheck: bool,
}

/// How many runs may be active together, and which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    /// The largest number of active runs.
    pub(crate) max_active: usize,
    pub(crate) policy: &'a Policy,
}

/// Whether `run` may start beside the others.
///
/// The first in the order goes first, even if a later run would fit in. Otherwise an exclusive run might
/// wait forever. A run that waits only for its own namespace does not keep others waiting.
///
/// Only the first in the order learns which run it waits for: with each end of a run, the reason of all
/// others would change, and the status of a thousand waiting runs would be written.
pub(crate) fn may_begin(
    run: &Contender<'_>,
    others: &[Contender<'_>],
    limits: Limits<'_>,
) -> Result<(), Blocked> {
    let others: Vec<_> = others.iter().filter(|other| other.uid != run.uid).collect();
    let active: Vec<_> = others
        .iter()
        .copied()
        .filter(|other| matches!(other.standing, Standing::Active | Standing::Starting))
        .collect();
    let goes_first = |other: &&Contender<'_>| {
        let same = other.namespace == run.namespace;
        other.standing == Standing::Waiting
            && other.order() < run.order()
            && (same || !limits.waits_for_its_namespace(other, &active))
    };
    let limited = limits
        .of_exclusive_runs(run, &active)
        .and_then(|()| limits.of_namespace(run, &active))
        .and_then(|()| limits.of_cluster(&active));
    if !others.iter().any(goes_first) {
        return limited;
    }
    Err(Blocked {
        why: "other runs go first: namespaces take turns, and within a namespace the earliest run goes first"
            .to_owned(),
        recheck: limited.err().is_none_or(|blocked| blocked.recheck),
    })
}

impl Blocked {
    fn by(other: &Contender<'_>, run: &Contender<'_>, why: &str) -> Self {
        let other_name = if other.namespace == run.namespace {
            format!("{}/{}", other.namespace, other.name)
        } else {
            "a run of another namespace".to_owned()
        };
        Self {
            why: format!("{other_name} {why}"),
            recheck: other.standing != Standing::Active,
        }
    }

    fn by_number(active: &[&Contender<'_>], why: String) -> Self {
        Self {
            why,
            recheck: active.iter().any(|other| other.standing != Standing::Active),
        }
    }
}

impl Limits<'_> {
    fn of_exclusive_runs(self, run: &Contender<'_>, active: &[&Contender<'_>]) -> Result<(), Blocked> {
        let disturbs = |other: &&&Contender<'_>| {
            self.policy.exclusive_per == ExclusivePer::Cluster || other.namespace == run.namespace
        };
        let mut active = active.iter().filter(disturbs);
        let why = if run.exclusive {
            "is active, and this run is exclusive (spec.topology.exclusive)"
        } else {
            "is active, and is exclusive (spec.topology.exclusive)"
        };
        match active.find(|other| run.exclusive || other.exclusive) {
            Some(other) => Err(Blocked::by(other, run, why)),
            None => Ok(()),
        }
    }

    fn of_namespace(self, run: &Contender<'_>, active: &[&Contender<'_>]) -> Result<(), Blocked> {
        let own: Vec<_> = active
            .iter()
            .copied()
            .filter(|other| other.namespace == run.namespace)
            .collect();
        match self.policy.active_runs_per_namespace {
            limit if limit > 0 && own.len() >= limit => {
                let why = format!(
                    "{} runs of namespace {} are active, the maximum that the operator allows \
                     (policy.activeRunsPerNamespace)",
                    own.len(),
                    run.namespace
                );
                Err(Blocked::by_number(&own, why))
            }
            _ => Ok(()),
        }
    }

    fn of_cluster(self, active: &[&Contender<'_>]) -> Result<(), Blocked> {
        if active.len() < self.max_active {
            return Ok(());
        }
        let why = format!(
            "{} runs are active, the maximum that the operator allows (--max-concurrent-runs)",
            active.len()
        );
        Err(Blocked::by_number(active, why))
    }

    /// Whether the run waits for runs of its own namespace, so that it keeps no other namespace waiting.
    fn waits_for_its_namespace(self, run: &Contender<'_>, active: &[&Contender<'_>]) -> bool {
        let is_alone_in_its_namespace = self.policy.exclusive_per == ExclusivePer::Namespace;
        self.of_namespace(run, active).is_err()
            || is_alone_in_its_namespace && self.of_exclusive_runs(run, active).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(created: i64, exclusive: bool, standing: Standing) -> Contender<'static> {
        let uid = created.to_string().leak();
        Contender {
            created,
            namespace: "ns",
            name: format!("run-{created}").leak(),
            uid,
            exclusive,
            standing,
            last_turn: 0,
        }
    }

    fn waiting(created: i64, exclusive: bool) -> Contender<'static> {
        run(created, exclusive, Standing::Waiting)
    }

    fn active(created: i64, exclusive: bool) -> Contender<'static> {
        run(created, exclusive, Standing::Active)
    }

    /// The same run in another namespace, of which a run began in this turn.
    fn of(namespace: &'static str, last_turn: u64, run: Contender<'static>) -> Contender<'static> {
        Contender {
            namespace,
            last_turn,
            ..run
        }
    }

    fn may_begin(run: &Contender<'_>, others: &[Contender<'_>], max_active: usize) -> Result<(), Blocked> {
        let policy = &Policy::default();
        super::may_begin(run, others, Limits { max_active, policy })
    }

    fn by_policy(run: &Contender<'_>, others: &[Contender<'_>], policy: &Policy) -> Result<(), String> {
        let max_active = 10;
        super::may_begin(run, others, Limits { max_active, policy }).map_err(|blocked| blocked.why)
    }

    #[test]
    fn an_exclusive_run_is_alone() {
        for (late, early) in [
            (waiting(2, false), active(1, true)),
            (waiting(1, true), active(2, false)),
            (waiting(3, true), active(1, true)),
        ] {
            let blocked = may_begin(&late, std::slice::from_ref(&early), 10).unwrap_err();
            assert!(
                blocked.why.starts_with(&format!("ns/{} is active", early.name)),
                "{blocked:?}"
            );
            assert!(!blocked.recheck, "its end wakes the others");
        }
    }

    #[test]
    fn others_share_as_far_as_the_operator_allows() {
        let others = [active(1, false), active(2, false)];
        assert_eq!(may_begin(&waiting(3, false), &others, 3), Ok(()));
        assert_eq!(
            may_begin(&waiting(3, false), &others, 2).unwrap_err().why,
            "2 runs are active, the maximum that the operator allows (--max-concurrent-runs)"
        );
    }

    #[test]
    fn a_run_that_is_active_already_does_not_wait_for_itself() {
        let this = active(1, true);
        assert_eq!(may_begin(&this, std::slice::from_ref(&this), 1), Ok(()));
    }

    #[test]
    fn earlier_runs_of_a_namespace_go_first() {
        let all = [waiting(1, true), waiting(2, false)];
        assert_eq!(may_begin(&all[0], &all, 10), Ok(()));
        let blocked = may_begin(&all[1], &all, 10).unwrap_err();
        assert!(blocked.why.starts_with("other runs go first"), "{}", blocked.why);
        assert!(
            blocked.recheck,
            "it may be refused, and then nothing wakes this one"
        );
    }

    #[test]
    fn the_reason_of_a_run_that_is_not_first_does_not_change_with_every_end() {
        let why = |exclusive, earlier: &[_]| {
            let blocked = may_begin(&waiting(9, exclusive), earlier, 1).unwrap_err();
            blocked.why
        };
        for exclusive in [true, false] {
            let reasons = [
                why(exclusive, &[active(1, true), waiting(2, true), waiting(3, false)]),
                why(exclusive, &[waiting(2, true), waiting(3, false)]),
                why(exclusive, &[active(2, true), waiting(3, false)]),
                why(exclusive, &[waiting(3, false)]),
                why(exclusive, &[of("other", 0, waiting(3, false))]),
            ];
            assert!(reasons.windows(2).all(|pair| pair[0] == pair[1]), "{reasons:?}");
        }
    }

    #[test]
    fn namespaces_take_turns_however_many_runs_one_of_them_has() {
        let mut all: Vec<_> = (1..=100)
            .map(|created| of("many", 7, waiting(created, true)))
            .collect();
        all.push(of("few", 0, waiting(200, true)));
        all.push(of("before", 6, waiting(300, true)));
        let free = |all: &[Contender<'_>]| {
            let free = all.iter().filter(|run| may_begin(run, all, 10).is_ok());
            free.map(|run| format!("{}/{}", run.namespace, run.name))
                .collect::<Vec<_>>()
        };
        assert_eq!(free(&all), ["few/run-200"]);
        all.retain(|run| run.namespace != "few");
        assert_eq!(free(&all), ["before/run-300"]);
        all.retain(|run| run.namespace != "before");
        assert_eq!(free(&all), ["many/run-1"]);
    }

    #[test]
    fn no_message_names_a_run_of_another_namespace() {
        let secret = |standing, exclusive| of("secret", 0, run(1, exclusive, standing));
        for (other, exclusive, why) in [
            (
                secret(Standing::Active, true),
                false,
                "a run of another namespace is active, and is exclusive (spec.topology.exclusive)",
            ),
            (
                secret(Standing::Active, false),
                true,
                "a run of another namespace is active, and this run is exclusive (spec.topology.exclusive)",
            ),
        ] {
            let blocked = may_begin(&waiting(2, exclusive), &[other], 10).unwrap_err();
            assert_eq!(blocked.why, why);
        }
    }

    #[test]
    fn a_namespace_has_no_more_active_runs_than_the_policy_allows_and_keeps_no_other_waiting() {
        let policy = Policy {
            active_runs_per_namespace: 1,
            ..Policy::default()
        };
        let all = [
            of("full", 1, active(1, false)),
            of("full", 1, waiting(2, false)),
            of("other", 2, waiting(3, false)),
        ];
        assert_eq!(
            by_policy(&all[1], &all, &policy).unwrap_err(),
            "1 runs of namespace full are active, the maximum that the operator allows \
             (policy.activeRunsPerNamespace)"
        );
        assert_eq!(by_policy(&all[2], &all, &policy), Ok(()));
        assert!(
            by_policy(&all[2], &all, &Policy::default()).is_err(),
            "it is not first"
        );
    }

    #[test]
    fn a_run_may_be_exclusive_in_its_namespace_only() {
        let policy = Policy {
            exclusive_per: ExclusivePer::Namespace,
            ..Policy::default()
        };
        let all = [
            of("a", 1, active(1, true)),
            of("a", 1, waiting(2, true)),
            of("b", 2, waiting(3, true)),
        ];
        assert!(
            by_policy(&all[1], &all, &policy)
                .unwrap_err()
                .starts_with("a/run-1 is active")
        );
        assert_eq!(by_policy(&all[2], &all, &policy), Ok(()));
        assert!(by_policy(&all[2], &all, &Policy::default()).is_err());
    }

    #[test]
    fn a_run_that_may_fail_to_start_is_checked_again() {
        let starting = run(1, true, Standing::Starting);
        let blocked = may_begin(&waiting(2, true), &[starting], 10).unwrap_err();
        assert!(blocked.recheck);
    }
}
