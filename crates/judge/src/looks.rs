//! When a run is looked at, and what is known then.
//!
//! Each look has a share of the error that is in proportion to its rounds. So all looks together are wrong in
//! at most [`ALPHA`] of runs, whatever ends a run at one of them (union bound; Jennison and Turnbull,
//! *Interim Analyses: The Repeated Confidence Interval Approach*, J. R. Statist. Soc. B 51, 1989).
//!
//! [`ALPHA`]: perfrun_contract::compare::ALPHA

use std::collections::BTreeSet;

use perfrun_contract::{
    compare::{Bound, Verdict, Word},
    plan::Plan,
    record::TrialRecord,
};

use crate::{
    comparison,
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
        };
        for look in looks {
            known.look(plan, look);
            if !known.is_complete(plan, look) {
                break;
            }
            for twin in 0..known.twins.len() {
                known.twins[twin].is_decided |= known.is_decided(twin);
            }
        }
        known
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
                let words = [Word::Faster, Word::Slower];
                return Sample::Settled {
                    differ: found.as_ref().is_some_and(|found| words.contains(&found.word)),
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
        let twins = plan.judging.twins.iter().zip(&self.twins);
        let open = twins.filter(|(_, twin)| !twin.is_decided);
        let cells: BTreeSet<usize> = open
            .flat_map(|(cells, _)| [cells.baseline, cells.candidate])
            .collect();
        let mut wanted = plan
            .trials
            .iter()
            .filter(|trial| !trial.warmup && trial.iteration < look.rounds && cells.contains(&trial.cell));
        wanted.all(|trial| self.trials.at(trial.cell, trial.iteration).is_some())
    }

    /// Whether everything about a twin is decided: what is expected, or else its words.
    fn is_decided(&self, twin: usize) -> bool {
        let asks = self.about.iter().zip(&self.answers);
        let mut answers = asks
            .filter(|(about, _)| about.contains(&twin))
            .map(|(_, answer)| answer.verdict)
            .peekable();
        if answers.peek().is_some() {
            return answers.all(|answer| matches!(answer, Verdict::Pass | Verdict::Fail));
        }
        let mut found = self
            .family
            .iter()
            .zip(&self.found)
            .filter(|(member, _)| member.twin == twin);
        found.all(|(_, found)| {
            let word = found.as_ref().map(|found| found.word);
            matches!(word, Some(Word::Faster | Word::Slower | Word::Same))
        })
    }
}
