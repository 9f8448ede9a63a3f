//! Which runs may be active together. Runs that share a cluster disturb each other's numbers.

/// A run that is active, or would like to be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Contender {
    /// When the run was created, in seconds. Earlier runs go first.
    pub(crate) created: i64,
    /// `namespace/name`.
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Whether no other run may be active.
    pub(crate) exclusive: bool,
    pub(crate) standing: Standing,
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

/// Whether `run` may start beside the others.
///
/// Earlier runs go first, even if a later one would fit in. Otherwise an exclusive run might wait forever.
pub(crate) fn may_begin(run: &Contender, others: &[Contender], max_active: usize) -> Result<(), Blocked> {
    let others = || others.iter().filter(|other| other.uid != run.uid);
    let active: Vec<_> = others()
        .filter(|other| matches!(other.standing, Standing::Active | Standing::Starting))
        .collect();
    let blocked_by = |other: &Contender, why: &str| Blocked {
        why: format!("{} {why}", other.name),
        recheck: other.standing != Standing::Active,
    };
    if let Some(other) = active.iter().find(|other| other.exclusive) {
        return Err(blocked_by(
            other,
            "is active, and is exclusive (spec.topology.exclusive)",
        ));
    }
    if let (true, Some(other)) = (run.exclusive, active.first()) {
        return Err(blocked_by(
            other,
            "is active, and this run is exclusive (spec.topology.exclusive)",
        ));
    }
    if active.len() >= max_active {
        return Err(Blocked {
            why: format!(
                "{} runs are active, the maximum that the operator allows (--max-concurrent-runs)",
                active.len()
            ),
            recheck: active.iter().any(|other| other.standing != Standing::Active),
        });
    }
    let order = |contender: &Contender| (contender.created, contender.name.clone());
    let first = others()
        .filter(|other| other.standing == Standing::Waiting)
        .min_by_key(|other| order(other));
    match first {
        Some(first) if order(first) < order(run) => {
            Err(blocked_by(first, "was created earlier and goes first"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(created: i64, exclusive: bool, standing: Standing) -> Contender {
        Contender {
            created,
            name: format!("ns/run-{created}"),
            uid: created.to_string(),
            exclusive,
            standing,
        }
    }

    fn waiting(created: i64, exclusive: bool) -> Contender {
        run(created, exclusive, Standing::Waiting)
    }

    fn active(created: i64, exclusive: bool) -> Contender {
        run(created, exclusive, Standing::Active)
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
                blocked.why.starts_with(&format!("{} is active", early.name)),
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
    fn earlier_runs_go_first() {
        let all = [waiting(1, true), waiting(2, false)];
        assert_eq!(may_begin(&all[0], &all, 10), Ok(()));
        let blocked = may_begin(&all[1], &all, 10).unwrap_err();
        assert_eq!(blocked.why, "ns/run-1 was created earlier and goes first");
        assert!(
            blocked.recheck,
            "it may be refused, and then nothing wakes this one"
        );
    }

    #[test]
    fn a_run_that_may_fail_to_start_is_checked_again() {
        let starting = run(1, true, Standing::Starting);
        let blocked = may_begin(&waiting(2, true), &[starting], 10).unwrap_err();
        assert!(blocked.recheck);
    }
}
