//! When a run is checked.
//!
//! Each check has a share of the error that is in proportion to its iterations. So all checks together are
//! wrong in at most [`ALPHA`] of runs, whatever ends a run at one of them (union bound; Jennison and
//! Turnbull, *Interim Analyses: The Repeated Confidence Interval Approach*, J. R. Statist. Soc. B 51, 1989).
//!
//! [`ALPHA`]: perfrun_contract::compare::ALPHA

use perfrun_contract::{compare::CONTROL_ALPHA, plan::Plan};

/// A check of the comparisons: an interim check, or the final one at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Check {
    /// The number of iterations that the check examines.
    pub(crate) iterations: u32,
    /// The share of the error that the check may use.
    pub(crate) share: f64,
}

impl Check {
    /// The checks of a plan, the final one last.
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let judging = &plan.judging;
        if judging.interim_checks.is_empty() {
            return vec![Self {
                iterations: u32::MAX,
                share: 1.0,
            }];
        }
        let check = |iterations: &u32| Self {
            iterations: *iterations,
            share: judging.share_of_check(*iterations),
        };
        judging.interim_checks.iter().map(check).collect()
    }

    /// Whether its iterations are enough for the control of a pair of cells with this number of metrics to
    /// differ. The smallest p of n pairs is 2 ÷ 2ⁿ, that of differences with one sign. That p must be at most
    /// the part of the error that each metric has. The answer depends on the plan alone, so that it adds
    /// nothing to the error.
    pub(crate) fn is_enough_for_control(self, plan: &Plan, metrics: usize) -> bool {
        let chance = self.error_of_control(plan) / metrics as f64;
        f64::from(self.iterations) >= 1.0 - chance.log2()
    }

    /// The error that each control of a run may have at this check.
    pub(crate) fn error_of_control(self, plan: &Plan) -> f64 {
        let cell_pairs = plan.judging.cell_pairs.iter();
        let count = cell_pairs.filter(|cell_pair| cell_pair.control.is_some()).count();
        self.share * CONTROL_ALPHA / count as f64
    }
}
