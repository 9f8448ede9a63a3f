//! What a point or a bar says when it is pointed at.

use perfrun_contract::units::Unit;

use crate::units::{self, Scale};

/// A value with its interval, in the unit that suits it.
pub(super) fn exact(unit: Unit, value: f64, interval: Option<(f64, f64)>) -> String {
    let Some(ends) = interval else {
        return units::text(unit, value);
    };
    let scale = Scale::of(unit, value).resolving(value, ends);
    format!("{} {}", scale.text(value), scale.interval(ends.0, ends.1))
}
