//! Ranges and ticks of axes.

use perfrun_contract::units::Unit;

use crate::units::Scale;

/// An axis: which values it spans, and where it has ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    /// Values and what is written at them.
    pub(super) ticks: Vec<(f64, String)>,
    /// The unit of the ticks, where they do not say it themselves.
    pub(super) unit: &'static str,
}

/// Round numbers within a decade.
const COARSE: &[f64] = &[1.0, 2.0, 5.0];
/// Round numbers for values that differ by less than a factor of two.
const FINE: &[f64] = &[
    1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 2.8, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 8.0,
    9.0,
];

impl Axis {
    /// From zero to a round number, in the unit that suits, at or above the largest value.
    pub(super) fn linear(unit: Unit, largest: f64) -> Self {
        let largest = if largest.is_finite() && largest > 0.0 {
            largest
        } else {
            1.0
        };
        let scale = Scale::of(unit, largest);
        let step = round_up(largest / 4.0 / scale.factor, COARSE) * scale.factor;
        let high = (largest / step).ceil() * step;
        let ticks = (0..=5)
            .map(|i| f64::from(i) * step)
            .filter(|tick| *tick <= high * 1.001);
        let ticks = ticks
            .map(|tick| (tick, short(&scale.number(tick)).to_owned()))
            .collect();
        Self {
            low: 0.0,
            high,
            is_log: false,
            ticks,
            unit: scale.name,
        }
    }

    /// Over all values, with ticks at 1, 2 and 5 of each decade; only at 1 if there are many decades, and at
    /// more numbers if the values are near each other.
    pub(super) fn logarithmic(unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(values);
        let factors = if high / low < 2.0 { FINE } else { COARSE };
        let (low, high) = (round_down(low, factors), round_up(high, factors));
        let all = (low.log10().floor() as i32..=high.log10().ceil() as i32).flat_map(|decade| {
            factors
                .iter()
                .map(move |factor| (*factor, factor * 10f64.powi(decade)))
        });
        let few = (high / low).log10() > 2.5;
        let inside = |tick: f64| tick >= low * 0.999 && tick <= high * 1.001;
        let ticks = all.filter(|(factor, tick)| inside(*tick) && (!few || *factor == 1.0));
        let ticks = ticks.map(|(_, tick)| (tick, label(unit, tick))).collect();
        Self {
            low,
            high: if high > low { high } else { low * 10.0 },
            is_log: true,
            ticks,
            unit: "",
        }
    }

    /// Over given values, each a tick, with some room at both ends.
    pub(super) fn categories(values: Vec<(f64, String)>) -> Self {
        let (low, high) = extremes(values.iter().map(|(value, _)| *value));
        let room = (high / low).powf(0.04).max(1.05);
        Self {
            low: low / room,
            high: high * room,
            is_log: true,
            ticks: values,
            unit: "",
        }
    }

    /// A title with the unit, where ticks do not say it themselves.
    pub(super) fn with_unit(&self, title: &str) -> String {
        match self.unit {
            "" => title.to_owned(),
            unit => format!("{title} ({unit})"),
        }
    }

    /// Where a value is, from 0 to 1; values outside are at the nearest end.
    pub(super) fn position(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.ln() } else { value };
        let position = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low));
        // A value that is not a number, such as the logarithm of a negative one, needs a place, too.
        if position.is_finite() {
            position.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// Smallest and largest of the values that a logarithmic axis can show.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let shown = values.filter(|value| (1e-15..=1e18).contains(value));
    let (low, high) = shown.fold((f64::MAX, 0f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

fn round_up(value: f64, factors: &[f64]) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let mut above = factors.iter().filter(|factor| **factor * decade >= value * 0.999);
    above.next().unwrap_or(&10.0) * decade
}

fn round_down(value: f64, factors: &[f64]) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let mut below = factors
        .iter()
        .rev()
        .filter(|factor| **factor * decade <= value * 1.001);
    below.next().unwrap_or(&1.0) * decade
}

fn label(unit: Unit, value: f64) -> String {
    let scale = Scale::of(unit, value);
    format!("{} {}", short(&scale.number(value)), scale.name)
}

/// Ticks are round numbers: no digits after those that say something.
fn short(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_ticks() {
        let axis = Axis::linear(Unit::BitsPerSecond, 38.4e9);
        assert_eq!(labels(&axis), ["0", "10", "20", "30", "40"]);
        assert_eq!(axis.unit, "Gbit/s");
        assert!((axis.position(20e9) - 0.5).abs() < 1e-9);
        assert_eq!(labels(&Axis::linear(Unit::Seconds, 1.0)), ["0", "0.5", "1"]);
        let memory = Axis::linear(Unit::Bytes, 54.0 * 1_048_576.0);
        assert_eq!(
            (labels(&memory), memory.unit),
            (vec!["0", "20", "40", "60"], "MiB")
        );
    }

    #[test]
    fn logarithmic_axes_have_1_2_5() {
        let axis = Axis::logarithmic(Unit::BitsPerSecond, [0.9e9, 7e9].into_iter());
        assert_eq!(
            labels(&axis),
            ["500 Mbit/s", "1 Gbit/s", "2 Gbit/s", "5 Gbit/s", "10 Gbit/s"]
        );
        assert_eq!((axis.position(0.5e9), axis.position(10e9)), (0.0, 1.0));
    }

    #[test]
    fn values_near_each_other_have_a_fine_axis() {
        let axis = Axis::logarithmic(Unit::BitsPerSecond, [4.9e9, 5.6e9].into_iter());
        assert_eq!(
            labels(&axis),
            ["4.5 Gbit/s", "5 Gbit/s", "5.5 Gbit/s", "6 Gbit/s"]
        );
        let axis = Axis::logarithmic(Unit::Seconds, [0.000_99, 0.001].into_iter());
        assert_eq!(labels(&axis), ["900 µs", "1 ms"]);
    }

    #[test]
    fn an_axis_without_values_can_be_drawn() {
        for value in [
            f64::NAN,
            f64::INFINITY,
            -1.0,
            0.0,
            f64::MAX,
            f64::MIN_POSITIVE,
            5.0,
        ] {
            for axis in [
                Axis::linear(Unit::Seconds, value),
                Axis::logarithmic(Unit::Seconds, [value].into_iter()),
                Axis::categories(vec![(value, String::new())]),
            ] {
                assert!((0.0..=1.0).contains(&axis.position(value)), "{value} {axis:?}");
                assert!(
                    axis.ticks.len() < 20 && (0.0..=1.0).contains(&axis.position(3.0)),
                    "{value} {axis:?}"
                );
            }
        }
    }
}
