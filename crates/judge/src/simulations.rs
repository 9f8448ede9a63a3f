//! Tests the methods over thousands of simulated runs, with fixed seeds: they err as seldom as they claim,
//! and find what they should. Methods that they avoid do fail.

use std::array;

use perfrun_contract::{
    compare::{ALPHA, Finding, TOLERANCE, Verdict},
    metric::Metric,
};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use crate::{
    expectations::{AllowedRegression, evaluate_regressions},
    hypothesis_tests::{ComparisonInput, TestResult, test_comparisons},
    median::{median, median_interval},
    signed_rank::{Location, SignedRank},
};

const CELLS: usize = 8;

/// What moves the logarithm of a value from trial to trial.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// Standard deviation of what is each trial's own.
    own: f64,
    /// Whether the machine drifts: a slow wave with a standard deviation of 0.12 and a memory of 60 trials, a
    /// loss of 15 % over the run, spells of 28 % less, and one of 25 trials hit by 10 to 50 %.
    drifts: bool,
    /// Share of trials that something else hits by 10 to 50 %.
    hits: f64,
    /// Standard deviation between processes of one program.
    process: f64,
    /// Iterations for which a process lives.
    process_iterations: usize,
    /// What the second trial of a pair loses.
    after_effect: f64,
}

const QUIET: Noise = Noise {
    own: 0.05,
    drifts: false,
    hits: 0.0,
    process: 0.0,
    process_iterations: 1,
    after_effect: 0.0,
};
const EVEN: Noise = Noise { own: 0.09, ..QUIET };
const DRIFT: Noise = Noise {
    drifts: true,
    ..QUIET
};
const LOUD_DRIFT: Noise = Noise { own: 0.09, ..DRIFT };
const BAD: Noise = Noise { own: 0.14, ..DRIFT };
const MODELS: [Noise; 5] = [QUIET, EVEN, DRIFT, LOUD_DRIFT, BAD];

/// A machine whose trials follow each other.
struct Machine {
    random: Xoshiro256PlusPlus,
    noise: Noise,
    wave: f64,
    spell: bool,
    trend: f64,
}

/// A trial: the logarithm of its value, and whether something else hit it.
#[derive(Clone, Copy)]
struct Trial {
    value: f64,
    is_hit: bool,
}

impl Machine {
    fn new(seed: u64, noise: Noise) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let wave = 0.12 * normal(&mut random);
        Self {
            random,
            noise,
            wave,
            spell: false,
            trend: 0.0,
        }
    }

    /// One more trial of a run of this number of trials.
    fn trial(&mut self, of: usize) -> Trial {
        let mut value = self.noise.own * normal(&mut self.random);
        if self.noise.drifts {
            let memory = (-1.0 / 60.0_f64).exp();
            self.wave = memory * self.wave + 0.12 * (1.0 - memory * memory).sqrt() * normal(&mut self.random);
            self.trend += 0.85_f64.ln() / of as f64;
            self.spell = self.random.random_bool(if self.spell { 0.9 } else { 0.01 });
            value += self.wave + self.trend + if self.spell { 0.72_f64.ln() } else { 0.0 };
            value += self.hit(0.04).unwrap_or_default();
        }
        let hit = self.hit(self.noise.hits);
        Trial {
            value: value + hit.unwrap_or_default(),
            is_hit: hit.is_some(),
        }
    }

    fn hit(&mut self, share: f64) -> Option<f64> {
        let is_hit = self.random.random_bool(share);
        is_hit.then(|| (-self.random.random_range(0.1..0.5_f64)).ln_1p())
    }

    /// The pairs of a run, as (baseline, candidate), of each cell by iterations. In each iteration the pairs
    /// of all cells follow each other; `is_first` says whether the candidate is the first of its pair.
    fn pairs(&mut self, iterations: usize, is_first: fn(&mut Self) -> bool) -> [Vec<[Trial; 2]>; CELLS] {
        let mut cells = array::from_fn(|_| Vec::with_capacity(iterations));
        let mut processes = [0.0; 2];
        for iteration in 0..iterations {
            if iteration % self.noise.process_iterations == 0 {
                processes = array::from_fn(|_| self.noise.process * normal(&mut self.random));
            }
            for cell in &mut cells {
                let mut pair: [Trial; 2] = array::from_fn(|_| self.trial(2 * CELLS * iterations));
                pair[1].value -= self.noise.after_effect;
                if is_first(self) {
                    pair.swap(0, 1);
                }
                for (trial, process) in pair.iter_mut().zip(processes) {
                    trial.value += process;
                }
                cell.push(pair);
            }
        }
        cells
    }

    /// The differences of a run, whose candidate differs by these logarithms.
    fn differences(&mut self, iterations: usize, effects: [f64; CELLS]) -> [Vec<f64>; CELLS] {
        differences(self.pairs(iterations, Self::random_order), effects)
    }

    fn random_order(&mut self) -> bool {
        self.random.random()
    }
}

fn differences(cells: [Vec<[Trial; 2]>; CELLS], effects: [f64; CELLS]) -> [Vec<f64>; CELLS] {
    let mut effects = effects.into_iter();
    cells.map(|pairs| {
        let effect = effects.next().expect("as many effects as cells");
        let difference = |[baseline, candidate]: [Trial; 2]| candidate.value - baseline.value + effect;
        pairs.into_iter().map(difference).collect()
    })
}

/// Box and Muller's.
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The share of runs of which something is true.
fn share(runs: u64, mut is_true: impl FnMut(u64) -> bool) -> f64 {
    (0..runs).filter(|seed| is_true(*seed)).count() as f64 / runs as f64
}

fn found(cells: &[Vec<f64>], share: f64) -> Vec<TestResult> {
    let input = |differences: &Vec<f64>| {
        let open = ComparisonInput::Open {
            differences: differences.clone(),
            tolerance: TOLERANCE,
            obstacle: None,
        };
        ((), open)
    };
    let tested = test_comparisons(cells.iter().map(input).collect(), share);
    tested.into_iter().filter_map(|((), found)| found).collect()
}

fn any_differs(cells: &[Vec<f64>]) -> bool {
    found(cells, 1.0).iter().any(|found| found.finding.differs())
}

/// Whether a run with these differences passes, for regressions of at most 10 %.
fn verdict(cells: &[Vec<f64>]) -> Verdict {
    let found = found(cells, 1.0);
    let regression = |found| {
        let regression = AllowedRegression {
            found,
            metric: Metric::UploadGoodput,
            share: 0.1,
            failed: [0, 0],
            p_failing: 1.0,
        };
        ((), Some(regression))
    };
    let evaluations = evaluate_regressions(found.iter().map(regression).collect(), 1.0).into_iter();
    evaluations
        .filter_map(|((), evaluation)| Some(evaluation?.verdict))
        .max()
        .expect("there are cells")
}

fn test_differs(differences: &[f64]) -> bool {
    SignedRank::of(differences.iter().copied()).two_sided() <= ALPHA
}

#[test]
fn runs_without_a_difference_seldom_show_one() {
    for (model, noise) in MODELS.into_iter().enumerate() {
        let wrong = share(2000, |seed| {
            let mut machine = Machine::new(seed, noise);
            any_differs(&machine.differences(20, [0.0; CELLS]))
        });
        // 5 %, and three standard errors of 2000 runs.
        assert!(wrong <= 0.065, "model {model}: {wrong}");
    }
}

#[test]
fn regressions_at_the_tolerance_seldom_fail_and_seldom_pass() {
    let limit = 0.9_f64.ln();
    for (model, noise) in MODELS.into_iter().enumerate() {
        let fail = share(2000, |seed| {
            let mut machine = Machine::new(seed, noise);
            verdict(&machine.differences(20, [limit; CELLS])) == Verdict::Fail
        });
        assert!(fail <= 0.036, "model {model}: {fail}");
        let pass = share(2000, |seed| {
            let mut machine = Machine::new(seed, noise);
            let effects = array::from_fn(|cell| if cell == 3 { limit } else { 0.0 });
            verdict(&machine.differences(20, effects)) == Verdict::Pass
        });
        assert!(pass <= 0.036, "model {model}: {pass}");
    }
}

#[test]
fn intervals_cover_the_true_difference_as_often_as_their_confidence() {
    let truth = 0.95_f64.ln();
    for (model, noise) in MODELS.into_iter().enumerate() {
        for iterations in [10, 20, 40] {
            // All cells of 500 runs: those of one run are as independent as runs.
            let mut covered = 0;
            for seed in 0..500 {
                for cell in Machine::new(seed, noise).differences(iterations, [truth; CELLS]) {
                    let (low, high) = Location::of(&cell, ALPHA).unwrap().interval.unwrap();
                    covered += usize::from(low <= truth && truth <= high);
                }
            }
            let covered = covered as f64 / (500 * CELLS) as f64;
            assert!(
                (0.94..=0.965).contains(&covered),
                "model {model}, {iterations} iterations: {covered}"
            );
        }
    }
}

#[test]
fn intervals_of_few_iterations_cover_the_true_difference_as_often_as_their_confidence() {
    let truth = 0.3_f64.ln();
    for (model, noise) in MODELS.into_iter().enumerate() {
        // That of six misses with a probability of 2 ÷ 2⁶ only.
        for iterations in 6..10 {
            let mut covered = 0;
            for seed in 0..500 {
                for cell in Machine::new(seed, noise).differences(iterations, [truth; CELLS]) {
                    let (low, high) = Location::of(&cell, ALPHA).unwrap().interval.unwrap();
                    covered += usize::from(low <= truth && truth <= high);
                }
            }
            let covered = covered as f64 / (500 * CELLS) as f64;
            assert!(
                (0.94..=0.98).contains(&covered),
                "model {model}, {iterations} iterations: {covered}"
            );
        }
    }
}

#[test]
fn intervals_of_all_interim_checks_cover_the_true_difference_together() {
    let truth = 0.95_f64.ln();
    for (model, noise) in MODELS.into_iter().enumerate() {
        let mut missed = 0;
        for seed in 0..500 {
            for cell in Machine::new(seed, noise).differences(40, [truth; CELLS]) {
                let misses = |check: usize| {
                    let alpha = ALPHA * check as f64 / 70.0;
                    let (low, high) = Location::of(&cell[..check], alpha).unwrap().interval.unwrap();
                    !(low <= truth && truth <= high)
                };
                missed += usize::from([10, 20, 40].into_iter().any(misses));
            }
        }
        let missed = missed as f64 / (500 * CELLS) as f64;
        assert!(missed <= 0.058, "model {model}: {missed}");
    }
}

#[test]
fn intervals_of_medians_cover_them_as_often_as_their_confidence() {
    for count in 6..=20 {
        let covered = share(4000, |seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut values: Vec<f64> = (0..count).map(|_| normal(&mut random)).collect();
            values.sort_unstable_by(f64::total_cmp);
            let (low, high) = median_interval(&values, 0.95).unwrap();
            low <= 0.0 && 0.0 <= high
        });
        assert!((0.935..=0.965).contains(&covered), "{count}: {covered}");
    }
}

#[test]
fn a_difference_of_one_cell_in_eight_is_found() {
    for (noise, iterations, ratio, least) in [
        (DRIFT, 20, 0.90_f64, 0.75),
        (DRIFT, 40, 0.95, 0.62),
        (EVEN, 20, 0.90, 0.60),
        (EVEN, 40, 0.90, 0.95),
    ] {
        let power = share(500, |seed| {
            let effects = array::from_fn(|cell| if cell == 3 { ratio.ln() } else { 0.0 });
            let cells = Machine::new(seed, noise).differences(iterations, effects);
            // The p decides, not the finding: that of a difference near the tolerance may be `Same`.
            found(&cells, 1.0)[3].p_adjusted <= ALPHA
        });
        assert!(
            power >= least,
            "{noise:?}, {iterations} iterations, {ratio}: {power}"
        );
    }
}

#[test]
fn four_of_five_runs_find_a_difference_of_the_detectable_size() {
    for noise in MODELS {
        let mut could_be_seen = vec![];
        for seed in 0..100 {
            // Differences at the tolerance are inconclusive, or nearly all of them.
            let effects = [(1.0 - TOLERANCE).ln(); CELLS];
            let found = found(&Machine::new(seed, noise).differences(20, effects), 1.0);
            let inconclusive = found
                .iter()
                .filter(|found| found.finding == Finding::Inconclusive);
            could_be_seen.extend(inconclusive.filter_map(|found| found.detectable_difference));
        }
        let effect = -median(&could_be_seen).ln_1p();
        let power = share(500, |seed| {
            let effects = array::from_fn(|cell| if cell == 3 { effect } else { 0.0 });
            let cells = Machine::new(1000 + seed, noise).differences(20, effects);
            found(&cells, 1.0)[3].p_adjusted <= ALPHA
        });
        assert!((0.7..=0.9).contains(&power), "{noise:?}: {effect} {power}");
    }
}

#[test]
fn checking_until_something_shows_is_wrong_too_often() {
    let wrong = share(1000, |seed| {
        let [cell, ..] = Machine::new(seed, QUIET).differences(40, [0.0; CELLS]);
        (10..=40).any(|pairs| test_differs(&cell[..pairs]))
    });
    assert!(wrong > 0.15, "{wrong}");
}

#[test]
fn a_random_order_within_pairs_cancels_a_loss_of_the_second_trial() {
    let noise = Noise {
        after_effect: 0.02,
        ..QUIET
    };
    let wrong = |is_first: fn(&mut Machine) -> bool| {
        share(2000, |seed| {
            let pairs = Machine::new(seed, noise).pairs(40, is_first);
            let [cell, ..] = differences(pairs, [0.0; CELLS]);
            test_differs(&cell)
        })
    };
    let (always_second, random) = (wrong(|_| false), wrong(Machine::random_order));
    assert!(
        always_second > 0.25 && random <= 0.065,
        "{always_second} {random}"
    );
}

#[test]
fn new_processes_for_each_iteration_cancel_how_processes_differ() {
    let wrong = |process_iterations| {
        let noise = Noise {
            process: 0.02,
            process_iterations,
            ..QUIET
        };
        share(2000, |seed| {
            let mut machine = Machine::new(seed, noise);
            any_differs(&machine.differences(20, [0.0; CELLS]))
        })
    };
    let (kept, renewed) = (wrong(20), wrong(1));
    assert!(kept > 0.2 && renewed <= 0.065, "{kept} {renewed}");
}

#[test]
fn one_side_after_the_other_is_wrong_under_drift() {
    let wrong = share(300, |seed| {
        let mut machine = Machine::new(seed, DRIFT);
        let mut side = || -> Vec<f64> { (0..10).map(|_| machine.trial(160).value).collect() };
        let cells: Vec<Vec<f64>> = (0..CELLS)
            .map(|_| {
                let (baseline, candidate) = (side(), side());
                baseline.iter().zip(candidate).map(|(a, b)| b - a).collect()
            })
            .collect();
        any_differs(&cells)
    });
    assert!(wrong > 0.5, "{wrong}");
}

#[test]
fn leaving_out_outliers_is_wrong_too_often() {
    let noise = Noise { hits: 0.25, ..QUIET };
    let wrong = share(2000, |seed| {
        let cells = Machine::new(seed, noise).pairs(20, Machine::random_order);
        let kept = cells.map(|pairs| {
            // Tukey's fences, of each side.
            let fences: [(f64, f64); 2] = array::from_fn(|side| {
                let mut values: Vec<f64> = pairs.iter().map(|pair| pair[side].value).collect();
                values.sort_unstable_by(f64::total_cmp);
                let (low, high) = (values[5], values[14]);
                (low - 1.5 * (high - low), high + 1.5 * (high - low))
            });
            let is_inside = |pair: &[Trial; 2]| {
                pair.iter()
                    .zip(fences)
                    .all(|(trial, (low, high))| low <= trial.value && trial.value <= high)
            };
            pairs.into_iter().filter(is_inside).collect()
        });
        any_differs(&differences(kept, [0.0; CELLS]))
    });
    assert!(wrong > 0.1, "{wrong}");
}

#[test]
fn repeating_disturbed_pairs_does_not_bias_and_shows_more() {
    let noise = Noise { hits: 0.15, ..QUIET };
    // 20 pairs, and at most a quarter more in the place of disturbed ones.
    let repeated = |seed, effects| {
        let cells = Machine::new(seed, noise).pairs(25, Machine::random_order);
        let clean = cells.map(|pairs| {
            let undisturbed = pairs
                .into_iter()
                .filter(|pair| pair.iter().all(|trial| !trial.is_hit));
            undisturbed.take(20).collect()
        });
        differences(clean, effects)
    };
    let wrong = share(2000, |seed| any_differs(&repeated(seed, [0.0; CELLS])));
    assert!(wrong <= 0.065, "{wrong}");

    let effects = array::from_fn(|cell| if cell == 3 { 0.95_f64.ln() } else { 0.0 });
    let shows = |cells: &[Vec<f64>]| found(cells, 1.0)[3].p_adjusted <= ALPHA;
    let (mut clean, mut all) = (0, 0);
    for seed in 0..1000 {
        clean += usize::from(shows(&repeated(seed, effects)));
        all += usize::from(shows(&Machine::new(seed, noise).differences(20, effects)));
    }
    assert!(2 * clean >= 3 * all, "{clean} {all}");
}
