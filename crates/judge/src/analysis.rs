//! When a run is checked, and what is known then.
//!
//! Each interim check has a share of the error that is in proportion to its iterations. So all checks
//! together are wrong in at most [`ALPHA`] of runs, whatever ends a run at one of them (union bound; Jennison
//! and Turnbull, *Interim Analyses: The Repeated Confidence Interval Approach*, J. R. Statist. Soc. B 51,
//! 1989).
//!
//! [`ALPHA`]: perfrun_contract::compare::ALPHA

use perfrun_contract::{
    compare::{Bound, NoFinding, NotNeeded, Outcome, Verdict},
    plan::{Plan, Trial},
    record::TrialRecord,
};

use crate::{
    comparison::{self, count},
    controls,
    family::{self, Member},
    gates::{self, Allowance, Answer, Ask},
    holm::holm,
    outcomes::{Found, Sample, outcomes},
    pairs::{Pair, Trials, differences, failed},
};

/// One interim check; the last is at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InterimCheck {
    /// The number of iterations that it examines.
    pub(crate) iterations: u32,
    /// Its share of the error.
    pub(crate) share: f64,
}

/// What is known of a run.
pub(crate) struct Known<'a> {
    pub(crate) trials: Trials<'a>,
    /// What is compared, and what the last check found.
    pub(crate) family: Vec<Member>,
    pub(crate) found: Vec<Option<Found>>,
    /// What is expected, and what the last check found.
    pub(crate) asks: Vec<Ask>,
    pub(crate) answers: Vec<Answer>,
    /// The pairs of cells that each of these is about.
    about: Vec<Vec<usize>>,
    /// Of each pair of cells.
    pub(crate) cell_pairs: Vec<CellPairState<'a>>,
    /// The iterations of the check at which everything was decided.
    decided_after: Option<u32>,
}

/// What is known of a pair of cells.
pub(crate) struct CellPairState<'a> {
    /// Its last check.
    pub(crate) check: InterimCheck,
    pub(crate) pairs: Vec<Pair<'a>>,
    /// Whether everything about it was decided, at a check whose iterations are complete.
    pub(crate) is_decided: bool,
}

impl InterimCheck {
    /// The interim checks of a plan.
    fn of(plan: &Plan) -> Vec<Self> {
        let interim_checks = &plan.judging.interim_checks;
        if interim_checks.is_empty() {
            return vec![Self {
                iterations: u32::MAX,
                share: 1.0,
            }];
        }
        let sum: f64 = interim_checks.iter().copied().map(f64::from).sum();
        let check = |iterations: &u32| Self {
            iterations: *iterations,
            share: f64::from(*iterations) / sum,
        };
        interim_checks.iter().map(check).collect()
    }
}

impl<'a> Known<'a> {
    /// Checks a run as often as its records allow. If the run has not ended, or ended between two interim
    /// checks, the last check is of the iterations that there are.
    pub(crate) fn of(plan: &'a Plan, records: &'a [TrialRecord]) -> Self {
        let interim_checks = InterimCheck::of(plan);
        let asks = Ask::of(plan);
        let family = family::of(plan);
        let unseen = |_| CellPairState {
            check: interim_checks[0],
            pairs: vec![],
            is_decided: false,
        };
        let mut known = Self {
            trials: Trials::of(plan, records),
            found: family.iter().map(|_| None).collect(),
            family,
            answers: vec![gates::inconclusive("no pair of trials"); asks.len()],
            about: asks.iter().map(|ask| ask.cell_pairs(plan).collect()).collect(),
            asks,
            cell_pairs: plan.judging.cell_pairs.iter().map(unseen).collect(),
            decided_after: None,
        };
        for check in interim_checks {
            known.check(plan, check);
            if !known.is_complete(plan, check) {
                break;
            }
            for cell_pair in 0..known.cell_pairs.len() {
                known.cell_pairs[cell_pair].is_decided |= known.is_decided(plan, cell_pair);
            }
            if known.are_all_decided() {
                known.decided_after = Some(check.iterations);
                break;
            }
        }
        known
    }

    /// Of each cell, the number of iterations that it is measured for.
    pub(crate) fn iterations(&self, plan: &Plan) -> Vec<u32> {
        let iterations = |cell| {
            let states = self.cell_pairs.iter().zip(&plan.judging.cell_pairs);
            let own = states.filter(|(_, cell_pair)| cell_pair.cells().any(|own| own == cell));
            let of_cell_pair = |(state, _): (&CellPairState<'_>, _)| match state.is_decided {
                true => state.check.iterations,
                false => u32::MAX,
            };
            own.map(of_cell_pair)
                .max()
                .or(self.decided_after)
                .unwrap_or(u32::MAX)
        };
        (0..plan.cells.len()).map(iterations).collect()
    }

    /// Takes back what was found of some pairs of cells, and what follows from it. `but` says why, in a
    /// sentence.
    pub(crate) fn withdraw(&mut self, is_void: &[bool], reason: NoFinding, but: &str) {
        for (member, found) in self.family.iter().zip(&mut self.found) {
            if let Some(found) = found.as_mut().filter(|_| is_void[member.cell_pair]) {
                (found.finding, found.reason) = (Outcome::NotComparable, Some(reason));
            }
        }
        for (ask, answer) in self.asks.iter().zip(&mut self.answers) {
            if ask.cell_pair.is_some_and(|cell_pair| is_void[cell_pair]) {
                answer.verdict = Verdict::Inconclusive;
                answer.evidence += &format!("; but {but}");
            }
        }
    }

    /// The trials without a record that are not needed. None if there are none.
    pub(crate) fn not_needed(&self, plan: &Plan) -> Option<NotNeeded> {
        let iterations = self.iterations(plan);
        let after = |trial: &Trial| {
            let after = iterations.get(trial.cell).copied()?;
            let is_open = trial.warmup || trial.iteration < after;
            (!is_open && self.trials.at(trial.cell, trial.iteration).is_none()).then_some(after)
        };
        let not_needed: Vec<u32> = plan.trials.iter().filter_map(after).collect();
        Some(NotNeeded {
            trials: count(not_needed.len()),
            of_trials: count(plan.trials.len()),
            iterations: [*not_needed.iter().min()?, *not_needed.iter().max()?],
            of_iterations: plan.judging.interim_checks.last().copied()?,
        })
    }

    /// Checks all pairs of cells that were not decided.
    fn check(&mut self, plan: &Plan, check: InterimCheck) {
        for (cell_pair, cells) in self.cell_pairs.iter_mut().zip(&plan.judging.cell_pairs) {
            if !cell_pair.is_decided {
                cell_pair.check = check;
                cell_pair.pairs = self.trials.pairs(*cells, check.iterations);
            }
        }
        self.compare(check);
        self.answer(plan, check);
    }

    fn compare(&mut self, check: InterimCheck) {
        let sample = |(member, found): (&Member, &Option<Found>)| {
            let cell_pair = &self.cell_pairs[member.cell_pair];
            if cell_pair.is_decided {
                return Sample::Settled {
                    differ: found.as_ref().is_some_and(|found| found.finding.differs()),
                };
            }
            Sample::Open {
                differences: differences(&cell_pair.pairs, member.metric),
                tolerance: member.tolerance,
                obstacle: comparison::obstacle(&cell_pair.pairs, member.metric),
            }
        };
        let samples = self.family.iter().zip(&self.found).map(sample).collect();
        for (found, new) in self.found.iter_mut().zip(outcomes(samples, check.share)) {
            *found = new.or(found.take());
        }
    }

    fn answer(&mut self, plan: &Plan, check: InterimCheck) {
        let p_failing: Vec<f64> = self
            .cell_pairs
            .iter()
            .map(|cell_pair| gates::failing(failed(&cell_pair.pairs)))
            .collect();
        let p_failing = holm(&p_failing);
        let allowance = |ask: &Ask| {
            let expectation = &plan.judging.expect[ask.expectation];
            let (Bound::MaxRegression(share), Some(cell_pair)) = (expectation.bound, ask.cell_pair) else {
                return None;
            };
            let mut found = self.family.iter().zip(&self.found);
            let is_asked = |(member, _): &(&Member, _)| {
                member.cell_pair == cell_pair && member.metric == expectation.metric
            };
            let found = found.find(is_asked)?.1.as_ref()?;
            (!self.cell_pairs[cell_pair].is_decided).then(|| Allowance {
                found,
                metric: expectation.metric,
                share,
                failed: failed(&self.cell_pairs[cell_pair].pairs),
                p_failing: p_failing[cell_pair],
            })
        };
        let allowances: Vec<Option<Allowance<'_>>> = self.asks.iter().map(allowance).collect();
        for (place, regression) in gates::regressions(&allowances, check.share)
            .into_iter()
            .enumerate()
        {
            let ask = self.asks[place];
            if let Some(answer) = regression {
                self.answers[place] = answer;
            } else if ask.cell_pair.is_none() && !self.is_settled(place) {
                self.answers[place] = gates::bound(plan, &self.trials, ask, check);
            }
        }
    }

    /// Whether the expectation in this place is about pairs of cells only that were decided.
    fn is_settled(&self, place: usize) -> bool {
        let about = &self.about[place];
        !about.is_empty()
            && about
                .iter()
                .all(|cell_pair| self.cell_pairs[*cell_pair].is_decided)
    }

    /// Whether all trials that this interim check wants have a record.
    fn is_complete(&self, plan: &Plan, check: InterimCheck) -> bool {
        let iterations = self.iterations(plan);
        let is_wanted = |trial: &&Trial| {
            let is_open = iterations
                .get(trial.cell)
                .is_none_or(|iterations| *iterations >= check.iterations);
            !trial.warmup && trial.iteration < check.iterations && is_open
        };
        let mut wanted = plan.trials.iter().filter(is_wanted);
        wanted.all(|trial| self.trials.at(trial.cell, trial.iteration).is_some())
    }

    /// Whether everything about all pairs of cells is decided, and what is expected of other cells.
    fn are_all_decided(&self) -> bool {
        let is_answered = |(about, answer): (&Vec<usize>, &Answer)| {
            !about.is_empty() || matches!(answer.verdict, Verdict::Pass | Verdict::Fail)
        };
        self.cell_pairs.iter().all(|cell_pair| cell_pair.is_decided)
            && self.about.iter().zip(&self.answers).all(is_answered)
    }

    /// Whether everything about a pair of cells is decided: what is expected, or else its findings. The plan
    /// may also ask for no more than a precision. A pair of cells is not decided while its control cannot
    /// differ: the control would end with it, and could not say that something else made the difference.
    fn is_decided(&self, plan: &Plan, cell_pair: usize) -> bool {
        let has_control = plan.judging.cell_pairs[cell_pair].control.is_some();
        if has_control
            && !controls::can_differ(plan, &self.family, cell_pair, self.cell_pairs[cell_pair].check)
        {
            return false;
        }
        plan.judging
            .target_interval
            .is_some_and(|target| self.is_precise(cell_pair, target))
            || self.is_answered(cell_pair)
    }

    /// Whether half of the interval of each ratio of a pair of cells is at most this share wide.
    fn is_precise(&self, cell_pair: usize, target: f64) -> bool {
        self.found_of(cell_pair).all(|found| {
            let comparable = found.filter(|found| found.finding != Outcome::NotComparable);
            let interval = comparable.and_then(|found| found.location?.interval);
            interval.is_some_and(|(low, high)| ((high - low) / 2.0).exp_m1() <= target)
        })
    }

    fn found_of(&self, cell_pair: usize) -> impl Iterator<Item = Option<&Found>> {
        let members = self.family.iter().zip(&self.found);
        members
            .filter(move |(member, _)| member.cell_pair == cell_pair)
            .map(|(_, found)| found.as_ref())
    }

    fn is_answered(&self, cell_pair: usize) -> bool {
        let asks = self.about.iter().zip(&self.answers);
        let mut answers = asks
            .filter(|(about, _)| about.contains(&cell_pair))
            .map(|(_, answer)| answer.verdict)
            .peekable();
        if answers.peek().is_some() {
            return answers.all(|answer| matches!(answer, Verdict::Pass | Verdict::Fail));
        }
        self.found_of(cell_pair).all(|found| {
            let finding = found.map(|found| found.finding);
            matches!(finding, Some(Outcome::Better | Outcome::Worse | Outcome::Same))
        })
    }
}
