//! Which runs may be active together: noise is the enemy.

/// A run that is active, or would like to be.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Contender {
    /// When it was created, in seconds; who came first goes first.
    pub created: i64,
    /// `namespace/name`.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it must be alone.
    pub exclusive: bool,
}

/// Whether `run` may begin beside the `active` ones, with others `waiting`. The error says what it waits for.
///
/// Who came first goes first, even if a later one would fit in: an exclusive run would else wait for ever.
pub fn may_begin(
    run: &Contender,
    active: &[Contender],
    waiting: &[Contender],
    max_active: usize,
) -> Result<(), String> {
    let active: Vec<_> = active.iter().filter(|other| other.uid != run.uid).collect();
    if let Some(other) = active.iter().find(|other| other.exclusive) {
        return Err(format!(
            "{} is active, and is exclusive (spec.topology.exclusive)",
            other.name
        ));
    }
    if let (true, Some(other)) = (run.exclusive, active.first()) {
        return Err(format!(
            "{} is active, and this run is exclusive (spec.topology.exclusive)",
            other.name
        ));
    }
    if active.len() >= max_active {
        return Err(format!(
            "{} runs are active, as many as the operator allows (--max-concurrent-runs)",
            active.len()
        ));
    }
    match waiting.iter().filter(|other| other.uid != run.uid).min() {
        Some(first) if first < run => Err(format!("{} was created earlier and goes first", first.name)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(created: i64, exclusive: bool) -> Contender {
        Contender {
            created,
            name: format!("ns/run-{created}"),
            uid: created.to_string(),
            exclusive,
        }
    }

    #[test]
    fn an_exclusive_run_is_alone() {
        let [exclusive, shared] = [run(1, true), run(2, false)];
        for (late, early) in [
            (&shared, &exclusive),
            (&exclusive, &shared),
            (&run(3, true), &exclusive),
        ] {
            let refused = may_begin(late, std::slice::from_ref(early), &[], 10).unwrap_err();
            assert!(
                refused.starts_with(&format!("{} is active", early.name)),
                "{refused}"
            );
        }
    }

    #[test]
    fn others_share_as_far_as_the_operator_allows() {
        let active = [run(1, false), run(2, false)];
        assert_eq!(may_begin(&run(3, false), &active, &[], 3), Ok(()));
        assert_eq!(
            may_begin(&run(3, false), &active, &[], 2).unwrap_err(),
            "2 runs are active, as many as the operator allows (--max-concurrent-runs)"
        );
    }

    #[test]
    fn a_run_that_is_active_already_does_not_wait_for_itself() {
        let this = run(1, true);
        let list = [this.clone()];
        assert_eq!(may_begin(&this, &list, &list, 1), Ok(()));
    }

    #[test]
    fn who_came_first_goes_first() {
        let waiting = [run(1, true), run(2, false)];
        assert_eq!(may_begin(&waiting[0], &[], &waiting, 10), Ok(()));
        assert_eq!(
            may_begin(&waiting[1], &[], &waiting, 10).unwrap_err(),
            "ns/run-1 was created earlier and goes first"
        );
    }
}
