//! An impairment as text, in the words of `perfrun link set`, which are those of tc-netem(8).

use std::fmt;

use super::{Impairment, Loss};
use crate::ratio::Ratio;

impl fmt::Display for Impairment {
    /// Formats the impairment in the words of `perfrun link set`, which are those of tc-netem(8).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            delay,
            jitter,
            loss,
            duplicate,
            corrupt,
            reorder,
            rate_bits_per_second,
            limit_packets,
        } = self;
        let mut words = Vec::new();
        if !delay.is_zero() {
            words.push(format!("delay {delay:?}"));
        }
        if let Some(jitter) = jitter {
            words.push(format!(
                "jitter {:?} {}{}",
                jitter.amount,
                jitter.distribution,
                correlated(jitter.correlation)
            ));
        }
        words.extend(loss.as_ref().map(lost));
        for (name, chance) in [("duplicate", duplicate), ("corrupt", corrupt)] {
            if let Some(chance) = chance {
                words.push(format!(
                    "{name} {}{}",
                    percent(chance.ratio),
                    correlated(chance.correlation)
                ));
            }
        }
        if let Some(reorder) = reorder {
            let gap = match reorder.gap.get() {
                1 => String::new(),
                gap => format!(", one of {gap} at most"),
            };
            words.push(format!(
                "reorder {}{gap}{}",
                percent(reorder.ratio),
                correlated(reorder.correlation)
            ));
        }
        if let Some(rate) = rate_bits_per_second {
            words.push(format!("rate {}", bit_rate(rate.get())));
        }
        if words.is_empty() {
            return f.write_str("none");
        }
        if let Some(limit) = limit_packets {
            words.push(format!("queue {limit}"));
        }
        f.write_str(&words.join(", "))
    }
}

fn lost(loss: &Loss) -> String {
    match loss {
        Loss::Random { ratio, correlation } => {
            format!("loss {}{}", percent(*ratio), correlated(*correlation))
        }
        Loss::GilbertElliott {
            enter_bad,
            leave_bad,
            loss_in_bad,
            loss_in_good,
        } => {
            let shares = [enter_bad, leave_bad, loss_in_bad, loss_in_good].map(|ratio| percent(*ratio));
            format!("burst {}", shares.join(","))
        }
    }
}

fn correlated(correlation: Ratio) -> String {
    if correlation.is_zero() {
        String::new()
    } else {
        format!(" (correlation {})", percent(correlation))
    }
}

/// A percentage without the digits that a 64-bit float adds.
fn percent(ratio: Ratio) -> String {
    format!("{}%", (ratio.get() * 1e11).round() / 1e9)
}

/// The rate in the largest unit that needs no fraction.
fn bit_rate(bits_per_second: u64) -> String {
    let units = [("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("kbit", 1_000)];
    let whole = units
        .into_iter()
        .find(|(_, factor)| bits_per_second.is_multiple_of(*factor));
    whole.map_or_else(
        || format!("{bits_per_second}bit"),
        |(unit, factor)| format!("{}{unit}", bits_per_second / factor),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impairment_is_shown_as_the_options_that_set_it() {
        for (json, expected) in [
            ("{}", "none"),
            (r#"{"limitPackets": 7}"#, "none"),
            (
                r#"{"delayMs": 25, "loss": {"model": "random", "ratio": 0.0007}}"#,
                "delay 25ms, loss 0.07%",
            ),
            (
                r#"{"delayMs": 1500, "jitter": {"amountMs": 2, "distribution": "normal", "correlation": 0.25}}"#,
                "delay 1.5s, jitter 2ms normal (correlation 25%)",
            ),
            (
                r#"{"loss": {"model": "gilbertElliott", "enterBad": 0.01, "leaveBad": 0.25, "lossInBad": 0.9}}"#,
                "burst 1%,25%,90%,0%",
            ),
            (
                r#"{"delayMs": 1, "reorder": {"ratio": 0.01, "gap": 5}, "rateBitsPerSecond": 1500000, "limitPackets": 1000}"#,
                "delay 1ms, reorder 1%, one of 5 at most, rate 1500kbit, queue 1000",
            ),
            (
                r#"{"duplicate": {"ratio": 0.01}, "corrupt": {"ratio": 0.02}, "rateBitsPerSecond": 10000000000}"#,
                "duplicate 1%, corrupt 2%, rate 10Gbit",
            ),
        ] {
            let impairment: Impairment = serde_json::from_str(json).unwrap();
            assert_eq!(impairment.to_string(), expected);
        }
    }
}
