//! Which runs may be active together. Runs that share a cluster disturb each other's numbers.
//!
//! Namespaces take turns: of the waiting runs, one of the namespace comes first whose last turn is the
//! longest ago. A namespace with many runs does not keep another from its first. Messages name runs of the
//! same namespace only, because authors may have no right to see others.

use crate::policy::{ExclusivePer, Policy};

/// A run that is active, or would like to be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QueuedRun<'a> {
    /// When the run was created, in seconds of Unix time. Earlier runs of a namespace come first.
    pub(crate) created: i64,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    /// Whether no other run may be active.
    pub(crate) exclusive: bool,
    pub(crate) turn_state: TurnState,
    /// The number of the turn in which a run of the namespace began last. 0 if none has.
    pub(crate) last_turn: u64,
}

impl QueuedRun<'_> {
    /// Whether the run keeps others waiting now.
    fn is_active(&self) -> bool {
        matches!(self.turn_state, TurnState::Active | TurnState::Starting)
    }

    /// The place of a waiting run: the least one comes first.
    fn order(&self) -> (u64, i64, &str, &str) {
        (self.last_turn, self.created, self.namespace, self.name)
    }
}

/// The state of a run's turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TurnState {
    /// The run may not start yet.
    Waiting,
    /// A reconciliation creates the run's first objects now. It may fail.
    Starting,
    /// The run has objects.
    Active,
    /// The run has ended: it does not keep others waiting.
    Ended,
    /// The run has ended and nobody can write its end: it neither keeps others waiting nor starts again.
    StoodBack,
}

/// How many runs may be active together, and which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnLimits<'a> {
    /// The largest number of active runs.
    pub(crate) max_active: usize,
    pub(crate) policy: &'a Policy,
}

/// Checks whether `run` may start beside the others. The error says why not.
///
/// The first in the order begins first, even if a later run would fit in. Otherwise an exclusive run might
/// wait forever. A run that waits only for its own namespace does not keep others waiting.
///
/// Only the first in the order learns which run it waits for: with each end of a run, the reason of all
/// others would change, and the status of a thousand waiting runs would be written.
pub(crate) fn may_begin(
    run: &QueuedRun<'_>,
    others: &[QueuedRun<'_>],
    limits: TurnLimits<'_>,
) -> Result<(), String> {
    let others: Vec<_> = others.iter().filter(|other| other.uid != run.uid).collect();
    let active: Vec<_> = others.iter().copied().filter(|other| other.is_active()).collect();
    let comes_first = |other: &&QueuedRun<'_>| {
        let same = other.namespace == run.namespace;
        other.turn_state == TurnState::Waiting
            && other.order() < run.order()
            && (same || !limits.waits_for_its_namespace(other, &active) && !is_behind_its_own(other, &others))
    };
    if others.iter().any(comes_first) {
        let why = "other runs come first: namespaces take turns, and within a namespace the earliest run comes first";
        return Err(why.to_owned());
    }
    limits.check(run, &active)
}

/// Checks whether a run that another operator has begun may continue beside the others. It waits for no run
/// that comes first.
pub(crate) fn may_continue(
    run: &QueuedRun<'_>,
    others: &[QueuedRun<'_>],
    limits: TurnLimits<'_>,
) -> Result<(), String> {
    let others = others.iter().filter(|other| other.uid != run.uid);
    let active: Vec<_> = others.filter(|other| other.is_active()).collect();
    limits.check(run, &active)
}

/// The waiting run that comes first: [`may_begin`] refuses all others. `None` if none waits, or if each that
/// waits does so for its own namespace.
pub(crate) fn first_waiting<'a>(
    runs: &'a [QueuedRun<'a>],
    limits: TurnLimits<'_>,
) -> Option<&'a QueuedRun<'a>> {
    let all: Vec<_> = runs.iter().collect();
    let active: Vec<_> = runs.iter().filter(|run| run.is_active()).collect();
    runs.iter()
        .filter(|run| run.turn_state == TurnState::Waiting)
        .filter(|run| !limits.waits_for_its_namespace(run, &active) && !is_behind_its_own(run, &all))
        .min_by(|one, other| one.order().cmp(&other.order()))
}

/// Whether an earlier run of the same namespace waits, too. Only the earliest can keep other namespaces
/// waiting.
fn is_behind_its_own(run: &QueuedRun<'_>, all: &[&QueuedRun<'_>]) -> bool {
    all.iter().any(|other| {
        other.turn_state == TurnState::Waiting
            && other.namespace == run.namespace
            && other.order() < run.order()
    })
}

impl TurnLimits<'_> {
    fn check(self, run: &QueuedRun<'_>, active: &[&QueuedRun<'_>]) -> Result<(), String> {
        self.check_exclusive_runs(run, active)
            .and_then(|()| self.check_namespace(run, active))
            .and_then(|()| self.check_cluster(active))
    }

    fn check_exclusive_runs(self, run: &QueuedRun<'_>, active: &[&QueuedRun<'_>]) -> Result<(), String> {
        let disturbs = |other: &&&QueuedRun<'_>| {
            self.policy.exclusive_per == ExclusivePer::Cluster || other.namespace == run.namespace
        };
        let mut active = active.iter().filter(disturbs);
        let why = if run.exclusive {
            "is active, and this run is exclusive (spec.topology.exclusive)"
        } else {
            "is active, and is exclusive (spec.topology.exclusive)"
        };
        match active.find(|other| run.exclusive || other.exclusive) {
            Some(other) if other.namespace == run.namespace => {
                Err(format!("{}/{} {why}", other.namespace, other.name))
            }
            Some(_) => Err(format!("a run of another namespace {why}")),
            None => Ok(()),
        }
    }

    fn check_namespace(self, run: &QueuedRun<'_>, active: &[&QueuedRun<'_>]) -> Result<(), String> {
        let own = active.iter().filter(|other| other.namespace == run.namespace);
        match (own.count(), self.policy.active_runs_per_namespace) {
            (own, limit) if limit > 0 && own >= limit => Err(format!(
                "{own} runs of namespace {} are active, the maximum that the operator allows \
                 (policy.activeRunsPerNamespace)",
                run.namespace
            )),
            _ => Ok(()),
        }
    }

    fn check_cluster(self, active: &[&QueuedRun<'_>]) -> Result<(), String> {
        if active.len() < self.max_active {
            return Ok(());
        }
        Err(format!(
            "{} runs are active, the maximum that the operator allows (--max-concurrent-runs)",
            active.len()
        ))
    }

    /// Whether the run waits for runs of its own namespace, so that it keeps no other namespace waiting.
    fn waits_for_its_namespace(self, run: &QueuedRun<'_>, active: &[&QueuedRun<'_>]) -> bool {
        let is_alone_in_its_namespace = self.policy.exclusive_per == ExclusivePer::Namespace;
        self.check_namespace(run, active).is_err()
            || is_alone_in_its_namespace && self.check_exclusive_runs(run, active).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(created: i64, exclusive: bool, turn_state: TurnState) -> QueuedRun<'static> {
        let uid = created.to_string().leak();
        QueuedRun {
            created,
            namespace: "ns",
            name: format!("run-{created}").leak(),
            uid,
            exclusive,
            turn_state,
            last_turn: 0,
        }
    }

    fn waiting(created: i64, exclusive: bool) -> QueuedRun<'static> {
        run(created, exclusive, TurnState::Waiting)
    }

    fn active(created: i64, exclusive: bool) -> QueuedRun<'static> {
        run(created, exclusive, TurnState::Active)
    }

    /// The same run in another namespace, of which a run began in this turn.
    fn of(namespace: &'static str, last_turn: u64, run: QueuedRun<'static>) -> QueuedRun<'static> {
        QueuedRun {
            namespace,
            last_turn,
            ..run
        }
    }

    fn may_begin(run: &QueuedRun<'_>, others: &[QueuedRun<'_>], max_active: usize) -> Result<(), String> {
        let policy = &Policy::default();
        super::may_begin(run, others, TurnLimits { max_active, policy })
    }

    fn by_policy(run: &QueuedRun<'_>, others: &[QueuedRun<'_>], policy: &Policy) -> Result<(), String> {
        let max_active = 10;
        super::may_begin(run, others, TurnLimits { max_active, policy })
    }

    #[test]
    fn an_exclusive_run_is_alone() {
        for (late, early) in [
            (waiting(2, false), active(1, true)),
            (waiting(1, true), active(2, false)),
            (waiting(3, true), active(1, true)),
        ] {
            let why = may_begin(&late, std::slice::from_ref(&early), 10).unwrap_err();
            assert!(why.starts_with(&format!("ns/{} is active", early.name)), "{why}");
        }
    }

    #[test]
    fn runs_that_are_not_exclusive_share_as_far_as_the_operator_allows() {
        let others = [active(1, false), active(2, false)];
        assert_eq!(may_begin(&waiting(3, false), &others, 3), Ok(()));
        assert_eq!(
            may_begin(&waiting(3, false), &others, 2).unwrap_err(),
            "2 runs are active, the maximum that the operator allows (--max-concurrent-runs)"
        );
    }

    #[test]
    fn a_run_that_is_active_already_does_not_wait_for_itself() {
        let this = active(1, true);
        assert_eq!(may_begin(&this, std::slice::from_ref(&this), 1), Ok(()));
    }

    #[test]
    fn earlier_runs_of_a_namespace_come_first() {
        let all = [waiting(1, true), waiting(2, false)];
        assert_eq!(may_begin(&all[0], &all, 10), Ok(()));
        let why = may_begin(&all[1], &all, 10).unwrap_err();
        assert!(why.starts_with("other runs come first"), "{why}");
    }

    #[test]
    fn the_reason_of_a_run_that_is_not_first_does_not_change_with_every_end() {
        let why = |exclusive, earlier: &[_]| may_begin(&waiting(9, exclusive), earlier, 1).unwrap_err();
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
        let free = |all: &[QueuedRun<'_>]| {
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
        let secret = |turn_state, exclusive| of("secret", 0, run(1, exclusive, turn_state));
        for (other, exclusive, why) in [
            (
                secret(TurnState::Active, true),
                false,
                "a run of another namespace is active, and is exclusive (spec.topology.exclusive)",
            ),
            (
                secret(TurnState::Active, false),
                true,
                "a run of another namespace is active, and this run is exclusive (spec.topology.exclusive)",
            ),
        ] {
            assert_eq!(may_begin(&waiting(2, exclusive), &[other], 10).unwrap_err(), why);
        }
    }

    #[test]
    fn a_namespace_at_its_limit_of_active_runs_keeps_no_other_namespace_waiting() {
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
    fn a_run_behind_one_that_waits_for_its_namespace_keeps_no_other_namespace_waiting() {
        let policy = &Policy {
            exclusive_per: ExclusivePer::Namespace,
            ..Policy::default()
        };
        let all = [
            of("a", 1, active(1, false)),
            of("a", 1, waiting(2, true)),
            of("a", 1, waiting(3, false)),
            of("b", 2, waiting(4, false)),
        ];
        let max_active = 10;
        let first = first_waiting(&all, TurnLimits { max_active, policy });
        assert_eq!(first.map(|run| run.name), Some("run-4"));
        let begins: Vec<_> = all[1..]
            .iter()
            .map(|run| by_policy(run, &all, policy).is_ok())
            .collect();
        assert_eq!(begins, [false, false, true]);
    }

    #[test]
    fn a_run_that_starts_blocks_others_like_one_that_is_active() {
        let starting = run(1, true, TurnState::Starting);
        assert!(may_begin(&waiting(2, true), &[starting], 10).is_err());
    }

    #[test]
    fn no_waiting_run_but_the_first_may_begin() {
        let capped = Policy {
            active_runs_per_namespace: 1,
            ..Policy::default()
        };
        let all = |turn_state| {
            [
                of("full", 1, run(1, false, turn_state)),
                of("full", 1, waiting(2, false)),
                of("later", 3, waiting(3, false)),
                of("next", 2, waiting(4, false)),
                of("next", 2, waiting(5, false)),
            ]
        };
        for (policy, turn_state, expected) in [
            (&capped, TurnState::Active, Some("run-4")),
            (&capped, TurnState::Ended, Some("run-2")),
            (&Policy::default(), TurnState::Active, Some("run-2")),
            (&Policy::default(), TurnState::Waiting, Some("run-1")),
        ] {
            let all = all(turn_state);
            let limits = TurnLimits {
                max_active: 10,
                policy,
            };
            let begins = |run: &&QueuedRun<'_>| super::may_begin(run, &all, limits).is_ok();
            let waiting = all.iter().filter(|run| run.turn_state == TurnState::Waiting);
            let free: Vec<_> = waiting.filter(begins).map(|run| run.name).collect();
            assert_eq!(first_waiting(&all, limits).map(|run| run.name), expected);
            assert_eq!(free, Vec::from_iter(expected));
        }
        let limits = TurnLimits {
            max_active: 10,
            policy: &capped,
        };
        assert_eq!(first_waiting(&all(TurnState::Active)[..2], limits), None);
    }
}
