//! When a run is looked at, and what is known then.
//!
//! Each look has a share of the error that is in proportion to its rounds. So all looks together are wrong in
//! at most [`ALPHA`] of runs, whatever ends a run at one of them (union bound; Jennison and Turnbull,
//! *Interim Analyses: The Repeated Confidence Interval Approach*, J. R. Statist. Soc. B 51, 1989).
//!
//! [`ALPHA`]: perfrun_contract::compare::ALPHA

use perfrun_contract::{
    compare::{Bound, Spared, Verdict, Why, Word},
    plan::{Plan, Trial},
    record::TrialRecord,
};

use crate::{
    comparison::{self, count},
    controls,
    family::{self, Member},
    gates::{self, Allowance, Answer, Ask},
    holm::holm,
    pairs::{Pair, Trials, differences, failed},
    words::{Found, Sample, words},
};

/// One look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    /// The number of rounds that it looks at.
    pub(crate) rounds: u32,
    /// Its share of the error.
    pub(crate) share: f64,
}

/// What is known of a run.
pub(crate) struct Known<'a> {
    pub(crate) trials: Trials<'a>,
    /// What is compared, and what the last look at it found.
    pub(crate) family: Vec<Member>,
    pub(crate) found: Vec<Option<Found>>,
    /// What is expected, and what the last look at it found.
    pub(crate) asks: Vec<Ask>,
    pub(crate) answers: Vec<Answer>,
    /// The twins that each of these is about.
    about: Vec<Vec<usize>>,
    /// Of each twin.
    pub(crate) twins: Vec<TwinState<'a>>,
    /// The rounds of the look at which everything was decided.
    decided_after: Option<u32>,
}

/// What is known of a twin.
pub(crate) struct TwinState<'a> {
    /// The last look at it.
    pub(crate) look: Look,
    pub(crate) pairs: Vec<Pair<'a>>,
    /// Whether everything about it was decided, at a look whose rounds are complete.
    pub(crate) is_decided: bool,
}

impl Look {
    /// The looks of a plan.
    fn of(plan: &Plan) -> Vec<Self> {
        let looks = &plan.judging.looks;
        if looks.is_empty() {
            return vec![Self {
                rounds: u32::MAX,
                share: 1.0,
            }];
        }
        let sum: f64 = looks.iter().copied().map(f64::from).sum();
        let look = |rounds: &u32| Self {
            rounds: *rounds,
            share: f64::from(*rounds) / sum,
        };
        looks.iter().map(look).collect()
    }
}

impl<'a> Known<'a> {
    /// Looks at a run as often as its records allow. If the run has not ended, or ended between two looks,
    /// the last look is at the rounds that there are.
    pub(crate) fn of(plan: &'a Plan, records: &'a [TrialRecord]) -> Self {
        let looks = Look::of(plan);
        let asks = Ask::of(plan);
        let family = family::of(plan);
        let unseen = |_| TwinState {
            look: looks[0],
            pairs: vec![],
            is_decided: false,
        };
        let mut known = Self {
            trials: Trials::of(plan, records),
            found: family.iter().map(|_| None).collect(),
            family,
            answers: vec![Answer::default(); asks.len()],
            about: asks.iter().map(|ask| ask.twins(plan).collect()).collect(),
            asks,
            twins: plan.judging.twins.iter().map(unseen).collect(),
            decided_after: None,
        };
        for look in looks {
            known.look(plan, look);
            if !known.is_complete(plan, look) {
                break;
            }
            for twin in 0..known.twins.len() {
                known.twins[twin].is_decided |= known.is_decided(plan, twin);
            }
            if known.are_all_decided() {
                known.decided_after = Some(look.rounds);
                break;
            }
        }
        known
    }

    /// Of each cell, the number of rounds that it is measured for.
    pub(crate) fn rounds(&self, plan: &Plan) -> Vec<u32> {
        let rounds = |cell| {
            let states = self.twins.iter().zip(&plan.judging.twins);
            let own = states.filter(|(_, twin)| twin.cells().any(|own| own == cell));
            let of_twin = |(state, _): (&TwinState<'_>, _)| match state.is_decided {
                true => state.look.rounds,
                false => u32::MAX,
            };
            own.map(of_twin).max().or(self.decided_after).unwrap_or(u32::MAX)
        };
        (0..plan.cells.len()).map(rounds).collect()
    }

    /// Takes back what was found of some twins, and what follows from it. `but` says why, in a sentence.
    pub(crate) fn withdraw(&mut self, is_void: &[bool], why: Why, but: &str) {
        for (member, found) in self.family.iter().zip(&mut self.found) {
            if let Some(found) = found.as_mut().filter(|_| is_void[member.twin]) {
                (found.word, found.why) = (Word::NotComparable, Some(why));
            }
        }
        for (ask, answer) in self.asks.iter().zip(&mut self.answers) {
            if ask.twin.is_some_and(|twin| is_void[twin]) {
                answer.verdict = Verdict::Inconclusive;
                answer.evidence += &format!("; but {but}");
            }
        }
    }

    /// The trials without a record that are not needed. None if there are none.
    pub(crate) fn spared(&self, plan: &Plan) -> Option<Spared> {
        let rounds = self.rounds(plan);
        let after = |trial: &Trial| {
            let after = rounds.get(trial.cell).copied()?;
            let is_open = trial.warmup || trial.iteration < after;
            (!is_open && self.trials.at(trial.cell, trial.iteration).is_none()).then_some(after)
        };
        let spared: Vec<u32> = plan.trials.iter().filter_map(after).collect();
        Some(Spared {
            trials: count(spared.len()),
            of_trials: count(plan.trials.len()),
            rounds: [*spared.iter().min()?, *spared.iter().max()?],
            of_rounds: plan.judging.looks.last().copied()?,
        })
    }

    /// Looks at all twins that were not decided.
    fn look(&mut self, plan: &Plan, look: Look) {
        for (twin, cells) in self.twins.iter_mut().zip(&plan.judging.twins) {
            if !twin.is_decided {
                twin.look = look;
                twin.pairs = self.trials.pairs(*cells, look.rounds);
            }
        }
        self.compare(look);
        self.answer(plan, look);
    }

    fn compare(&mut self, look: Look) {
        let sample = |(member, found): (&Member, &Option<Found>)| {
            let twin = &self.twins[member.twin];
            if twin.is_decided {
                return Sample::Settled {
                    differ: found.as_ref().is_some_and(|found| found.word.differs()),
                };
            }
            Sample::Open {
                differences: differences(&twin.pairs, member.metric),
                tolerance: member.tolerance,
                obstacle: comparison::obstacle(&twin.pairs, member.metric),
            }
        };
        let samples = self.family.iter().zip(&self.found).map(sample).collect();
        for (found, new) in self.found.iter_mut().zip(words(samples, look.share)) {
            *found = new.or(found.take());
        }
    }

    fn answer(&mut self, plan: &Plan, look: Look) {
        let p_failing: Vec<f64> = self
            .twins
            .iter()
            .map(|twin| gates::failing(failed(&twin.pairs)))
            .collect();
        let p_failing = holm(&p_failing);
        let allowance = |ask: &Ask| {
            let expectation = &plan.judging.expect[ask.expectation];
            let (Bound::MaxRegression(share), Some(twin)) = (expectation.bound, ask.twin) else {
                return None;
            };
            let mut found = self.family.iter().zip(&self.found);
            let is_asked =
                |(member, _): &(&Member, _)| member.twin == twin && member.metric == expectation.metric;
            let found = found.find(is_asked)?.1.as_ref()?;
            (!self.twins[twin].is_decided).then(|| Allowance {
                found,
                metric: expectation.metric,
                share,
                failed: failed(&self.twins[twin].pairs),
                p_failing: p_failing[twin],
            })
        };
        let allowances: Vec<Option<Allowance<'_>>> = self.asks.iter().map(allowance).collect();
        for (place, regression) in gates::regressions(&allowances, look.share)
            .into_iter()
            .enumerate()
        {
            let ask = self.asks[place];
            if let Some(answer) = regression {
                self.answers[place] = answer;
            } else if ask.twin.is_none() && !self.is_settled(place) {
                self.answers[place] = gates::bound(plan, &self.trials, ask, look);
            }
        }
    }

    /// Whether the expectation in this place is about twins only that were decided.
    fn is_settled(&self, place: usize) -> bool {
        let about = &self.about[place];
        !about.is_empty() && about.iter().all(|twin| self.twins[*twin].is_decided)
    }

    /// Whether all trials that this look wants have a record.
    fn is_complete(&self, plan: &Plan, look: Look) -> bool {
        let rounds = self.rounds(plan);
        let is_wanted = |trial: &&Trial| {
            let is_open = rounds.get(trial.cell).is_none_or(|rounds| *rounds >= look.rounds);
            !trial.warmup && trial.iteration < look.rounds && is_open
        };
        let mut wanted = plan.trials.iter().filter(is_wanted);
        wanted.all(|trial| self.trials.at(trial.cell, trial.iteration).is_some())
    }

    /// Whether everything about all twins is decided, and what is expected of other cells.
    fn are_all_decided(&self) -> bool {
        let is_answered = |(about, answer): (&Vec<usize>, &Answer)| {
            !about.is_empty() || matches!(answer.verdict, Verdict::Pass | Verdict::Fail)
        };
        self.twins.iter().all(|twin| twin.is_decided) && self.about.iter().zip(&self.answers).all(is_answered)
    }

    /// Whether everything about a twin is decided: what is expected, or else its words. The plan may also
    /// ask for no more than a precision. A twin is not decided while its control cannot differ: the control
    /// would end with it, and could not say that something else made the difference.
    fn is_decided(&self, plan: &Plan, twin: usize) -> bool {
        let has_control = plan.judging.twins[twin].control.is_some();
        if has_control && !controls::can_differ(plan, &self.family, twin, self.twins[twin].look) {
            return false;
        }
        plan.judging
            .target_interval
            .is_some_and(|target| self.is_precise(twin, target))
            || self.is_answered(twin)
    }

    /// Whether half of the interval of each ratio of a twin is at most this share wide.
    fn is_precise(&self, twin: usize, target: f64) -> bool {
        self.found_of(twin).all(|found| {
            let comparable = found.filter(|found| found.word != Word::NotComparable);
            let interval = comparable.and_then(|found| found.location?.interval);
            interval.is_some_and(|(low, high)| ((high - low) / 2.0).exp_m1() <= target)
        })
    }

    fn found_of(&self, twin: usize) -> impl Iterator<Item = Option<&Found>> {
        let members = self.family.iter().zip(&self.found);
        members
            .filter(move |(member, _)| member.twin == twin)
            .map(|(_, found)| found.as_ref())
    }

    fn is_answered(&self, twin: usize) -> bool {
        let asks = self.about.iter().zip(&self.answers);
        let mut answers = asks
            .filter(|(about, _)| about.contains(&twin))
            .map(|(_, answer)| answer.verdict)
            .peekable();
        if answers.peek().is_some() {
            return answers.all(|answer| matches!(answer, Verdict::Pass | Verdict::Fail));
        }
        self.found_of(twin).all(|found| {
            let word = found.map(|found| found.word);
            matches!(word, Some(Word::Faster | Word::Slower | Word::Same))
        })
    }
}
