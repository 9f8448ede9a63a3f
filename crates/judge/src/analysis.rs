//! The state of a run at its checks.

use perfrun_contract::{
    compare::{Bound, CellPair, Finding, NoFinding, NotNeeded, Verdict},
    plan::{Plan, Trial},
    record::TrialRecord,
};

use crate::{
    check::Check,
    comparison::{self, count},
    expectations::{self, AllowedRegression, CellExpectation, Evaluation},
    family::{self, Hypothesis},
    holm,
    hypothesis_tests::{ComparisonInput, TestResult, test_comparisons},
    pairs::{Pair, Trials, differences, failed},
};

/// The comparisons and expectations of a run, and what its checks found.
pub(crate) struct Analysis<'a> {
    plan: &'a Plan,
    pub(crate) trials: Trials<'a>,
    pub(crate) comparisons: Vec<ComparisonState>,
    pub(crate) expectations: Vec<ExpectationState>,
    /// In the order of the plan.
    pub(crate) cell_pairs: Vec<CellPairState<'a>>,
    /// The iterations of the check at which everything was settled.
    settled_after: Option<u32>,
}

/// A comparison, and what the last check found.
pub(crate) struct ComparisonState {
    pub(crate) hypothesis: Hypothesis,
    pub(crate) found: Option<TestResult>,
}

/// An expectation, and what the last check found.
pub(crate) struct ExpectationState {
    pub(crate) expectation: CellExpectation,
    pub(crate) evaluation: Evaluation,
    /// The pairs of cells that the expectation is about.
    cell_pairs: Vec<usize>,
}

/// A pair of cells, its pairs of trials, and whether it is settled.
pub(crate) struct CellPairState<'a> {
    cells: CellPair,
    /// The last check of the pair of cells.
    pub(crate) check: Check,
    pub(crate) pairs: Vec<Pair<'a>>,
    /// Whether everything about the pair of cells was settled, at a check whose iterations are complete.
    pub(crate) is_settled: bool,
}

impl ExpectationState {
    /// Whether it is about pairs of cells, and all of them are settled.
    fn is_about_settled(&self, states: &[CellPairState<'_>]) -> bool {
        let mut own = self.cell_pairs.iter();
        !self.cell_pairs.is_empty() && own.all(|cell_pair| states[*cell_pair].is_settled)
    }

    fn is_conclusive(&self) -> bool {
        matches!(self.evaluation.verdict, Verdict::Pass | Verdict::Fail)
    }
}

impl<'a> Analysis<'a> {
    /// Checks a run as often as its records allow. If the run has not ended, or ended between two checks, the
    /// last check is of the iterations that there are.
    pub(crate) fn of(plan: &'a Plan, records: &'a [TrialRecord]) -> Self {
        let checks = Check::of(plan);
        let unchecked = |cells: &CellPair| CellPairState {
            cells: *cells,
            check: checks[0],
            pairs: vec![],
            is_settled: false,
        };
        let untested = |hypothesis| ComparisonState {
            hypothesis,
            found: None,
        };
        let unevaluated = |expectation: CellExpectation| ExpectationState {
            expectation,
            evaluation: expectations::inconclusive("no pair of trials"),
            cell_pairs: expectation.cell_pairs(plan).collect(),
        };
        let mut analysis = Self {
            plan,
            trials: Trials::of(plan, records),
            comparisons: family::of(plan).into_iter().map(untested).collect(),
            expectations: CellExpectation::of(plan).into_iter().map(unevaluated).collect(),
            cell_pairs: plan.judging.cell_pairs.iter().map(unchecked).collect(),
            settled_after: None,
        };
        for check in checks {
            analysis.check(check);
            if !analysis.is_complete(check) {
                break;
            }
            for cell_pair in 0..analysis.cell_pairs.len() {
                analysis.cell_pairs[cell_pair].is_settled |= analysis.is_settled(cell_pair);
            }
            if analysis.are_all_settled() {
                analysis.settled_after = Some(check.iterations);
                break;
            }
        }
        analysis
    }

    /// The number of iterations that each cell is measured for.
    pub(crate) fn iterations(&self) -> Vec<u32> {
        let iterations = |cell| {
            let of_cell = |state: &&CellPairState<'_>| state.cells.cells().any(|own| own == cell);
            let states = self.cell_pairs.iter().filter(of_cell);
            let of_state = |state: &CellPairState<'_>| match state.is_settled {
                true => state.check.iterations,
                false => u32::MAX,
            };
            let longest = states.map(of_state).max();
            longest.or(self.settled_after).unwrap_or(u32::MAX)
        };
        (0..self.plan.cells.len()).map(iterations).collect()
    }

    /// Takes back what was found of some pairs of cells, and what follows from it. `why` is a clause.
    pub(crate) fn withdraw(&mut self, is_void: impl Fn(CellPair) -> bool, reason: NoFinding, why: &str) {
        let plan = self.plan;
        let is_void = |cell_pair: usize| is_void(plan.judging.cell_pairs[cell_pair]);
        for state in &mut self.comparisons {
            let void = is_void(state.hypothesis.cell_pair);
            if let Some(found) = state.found.as_mut().filter(|_| void) {
                (found.finding, found.reason) = (Finding::NotComparable, Some(reason));
            }
        }
        for ExpectationState {
            expectation,
            evaluation,
            ..
        } in &mut self.expectations
        {
            if expectation.cell_pair.is_some_and(is_void) {
                evaluation.verdict = Verdict::Inconclusive;
                evaluation.evidence += &format!("; but {why}");
            }
        }
    }

    /// The trials without a record that are not needed. `None` if there are none.
    pub(crate) fn not_needed(&self) -> Option<NotNeeded> {
        let iterations = self.iterations();
        let after = |trial: &Trial| {
            let after = iterations.get(trial.cell).copied()?;
            let is_open = trial.warmup || trial.iteration < after;
            (!is_open && self.trials.at(trial.cell, trial.iteration).is_none()).then_some(after)
        };
        let not_needed: Vec<u32> = self.plan.trials.iter().filter_map(after).collect();
        Some(NotNeeded {
            trials: count(not_needed.len()),
            of_trials: count(self.plan.trials.len()),
            iterations: [*not_needed.iter().min()?, *not_needed.iter().max()?],
            of_iterations: self.plan.judging.interim_checks.last().copied()?,
        })
    }

    /// Checks all pairs of cells that were not settled.
    fn check(&mut self, check: Check) {
        for state in self.cell_pairs.iter_mut().filter(|state| !state.is_settled) {
            state.check = check;
            state.pairs = self.trials.pairs(state.cells, check.iterations);
        }
        self.compare(check);
        self.evaluate_expectations(check);
    }

    fn compare(&mut self, check: Check) {
        let input = |ComparisonState { hypothesis, found }: &ComparisonState| {
            let cell_pair = &self.cell_pairs[hypothesis.cell_pair];
            if cell_pair.is_settled {
                return ComparisonInput::Settled {
                    differ: found.as_ref().is_some_and(|found| found.finding.differs()),
                };
            }
            ComparisonInput::Open {
                differences: differences(&cell_pair.pairs, hypothesis.metric),
                tolerance: hypothesis.tolerance,
                obstacle: comparison::obstacle(&cell_pair.pairs, hypothesis.metric),
            }
        };
        let inputs = self.comparisons.iter_mut().map(|state| {
            let input = input(state);
            (state, input)
        });
        for (state, new) in test_comparisons(inputs.collect(), check.share) {
            state.found = new.or(state.found.take());
        }
    }

    fn evaluate_expectations(&mut self, check: Check) {
        let states = holm::adjust(self.cell_pairs.iter().collect(), |state| {
            expectations::p_of_failures(failed(&state.pairs))
        });
        let allowed = |expectation: CellExpectation| {
            let planned = &self.plan.judging.expect[expectation.index];
            let (Bound::MaxRegression(share), Some(cell_pair)) = (planned.bound, expectation.cell_pair)
            else {
                return None;
            };
            let found = self
                .comparisons
                .iter()
                .find(|ComparisonState { hypothesis, .. }| {
                    hypothesis.cell_pair == cell_pair && hypothesis.metric == planned.metric
                });
            let found = found?.found.as_ref()?;
            let (state, p_failing) = states[cell_pair];
            (!state.is_settled).then(|| AllowedRegression {
                found,
                metric: planned.metric,
                share,
                failed: failed(&state.pairs),
                p_failing,
            })
        };
        let regressions = self.expectations.iter_mut().map(|state| {
            let regression = allowed(state.expectation);
            (state, regression)
        });
        for (state, new) in expectations::evaluate_regressions(regressions.collect(), check.share) {
            let expectation = state.expectation;
            let is_open = expectation.cell_pair.is_none() && !state.is_about_settled(&self.cell_pairs);
            if let Some(evaluation) = new {
                state.evaluation = evaluation;
            } else if is_open {
                state.evaluation = expectations::evaluate_bound(self.plan, &self.trials, expectation, check);
            }
        }
    }

    /// Whether all trials that this check wants have a record.
    fn is_complete(&self, check: Check) -> bool {
        let iterations = self.iterations();
        let is_wanted = |trial: &&Trial| {
            let is_open = iterations
                .get(trial.cell)
                .is_none_or(|iterations| *iterations >= check.iterations);
            !trial.warmup && trial.iteration < check.iterations && is_open
        };
        let mut wanted = self.plan.trials.iter().filter(is_wanted);
        wanted.all(|trial| self.trials.at(trial.cell, trial.iteration).is_some())
    }

    /// Whether everything about all pairs of cells is settled, and what is expected of other cells.
    fn are_all_settled(&self) -> bool {
        let mut expectations = self.expectations.iter();
        self.cell_pairs.iter().all(|cell_pair| cell_pair.is_settled)
            && expectations.all(|state| !state.cell_pairs.is_empty() || state.is_conclusive())
    }

    /// Whether everything about a pair of cells is settled: what is expected, or else its findings. A
    /// precision is enough if the plan requests one. A pair of cells is not settled while its control cannot
    /// differ: the control would end with the pair, and could not show that something else made the
    /// difference.
    fn is_settled(&self, cell_pair: usize) -> bool {
        let CellPairState { cells, check, .. } = self.cell_pairs[cell_pair];
        let metrics = self.results_of(cell_pair).count();
        if cells.control.is_some() && !check.is_enough_for_control(self.plan, metrics) {
            return false;
        }
        let target = self.plan.judging.target_interval;
        target.is_some_and(|target| self.is_precise(cell_pair, target)) || self.is_conclusive(cell_pair)
    }

    /// Whether half of the interval of each ratio of a pair of cells is at most this share wide.
    fn is_precise(&self, cell_pair: usize, target: f64) -> bool {
        self.results_of(cell_pair).all(|found| {
            let comparable = found.filter(|found| found.finding != Finding::NotComparable);
            let interval = comparable.and_then(|found| found.location?.interval);
            interval.is_some_and(|(low, high)| ((high - low) / 2.0).exp_m1() <= target)
        })
    }

    /// What was found about each metric of a pair of cells.
    fn results_of(&self, cell_pair: usize) -> impl Iterator<Item = Option<&TestResult>> {
        let own = self.comparisons.iter();
        own.filter(move |state| state.hypothesis.cell_pair == cell_pair)
            .map(|state| state.found.as_ref())
    }

    fn is_conclusive(&self, cell_pair: usize) -> bool {
        let expectations = self.expectations.iter();
        let mut own = expectations
            .filter(|state| state.cell_pairs.contains(&cell_pair))
            .peekable();
        if own.peek().is_some() {
            return own.all(ExpectationState::is_conclusive);
        }
        self.results_of(cell_pair).all(|found| {
            let finding = found.map(|found| found.finding);
            matches!(finding, Some(Finding::Better | Finding::Worse | Finding::Same))
        })
    }
}
