//! CEL rules that several fields share. Each says in one sentence what is right, so a refused document tells its
//! reader what to write.

use kube::core::Rule;

/// Prefix of labels and annotations that belong to perfrun; pod templates cannot set them.
const RESERVED_PREFIX: &str = "perfrun.io/";

/// How a duration is written. Checked in the same rule as the bounds, so that nonsense gets the sentence too and not
/// the evaluation error of `duration()`.
const DURATION: &str = r"^([0-9]{1,9}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$";
/// How a byte size is written, see [`crate::quantity::ByteSize`].
const SIZE: &str = "^[0-9]{1,18}(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$";

/// An integer in bounds.
pub fn integer(least: u32, most: u32) -> Rule {
    rule(
        format!("self >= {least} && self <= {most}"),
        format!("must be a number from {least} to {most}"),
    )
}

/// A list of at least one integer, each in bounds.
pub fn integers(least: u32, most: u32) -> Rule {
    rule(
        format!("size(self) >= 1 && self.all(n, n >= {least} && n <= {most})"),
        format!("must be a list of one or more numbers from {least} to {most}"),
    )
}

/// A list with something in it.
pub fn not_empty(of: &str) -> Rule {
    rule(
        "size(self) >= 1".to_owned(),
        format!("must name at least one {of}"),
    )
}

/// Labels or annotations, but not those that the operator sets.
pub fn not_reserved() -> Rule {
    rule(
        format!("self.all(key, !key.startsWith('{RESERVED_PREFIX}'))"),
        format!("must not have a key that begins with {RESERVED_PREFIX}: those are the operator's"),
    )
}

/// A duration in bounds.
pub fn duration(least: &str, most: &str) -> Rule {
    // The API server knows `µs`, which Rust writes; the library that checks the rules here knows only `us`.
    let value = "duration(self.replace('µs', 'us'))";
    rule(
        format!(
            "self.matches('{DURATION}') && {value} >= duration('{least}') && {value} <= duration('{most}')"
        ),
        format!("must be a duration from {least} to {most}, written as 500ms, 20s or 5m"),
    )
}

/// A share, see [`crate::quantity::Percent`].
pub fn percent() -> Rule {
    rule(
        "self.matches('^[0-9]{1,3}([.][0-9]{1,9})?%$') && double(self.replace('%', '')) <= 100.0".to_owned(),
        "must be a percentage from 0% to 100%, written as 1% or 0.25%".to_owned(),
    )
}

/// A bit rate, see [`crate::quantity::BitRate`].
pub fn bit_rate() -> Rule {
    let number =
        "double(self.replace('Gbit', '').replace('Mbit', '').replace('kbit', '').replace('bit', ''))";
    let factor = "(self.endsWith('Gbit') ? 1000000000.0 : self.endsWith('Mbit') ? 1000000.0 : \
                  self.endsWith('kbit') ? 1000.0 : 1.0)";
    rule(
        format!(
            "self.matches('^[0-9]{{1,12}}([.][0-9]{{1,9}})?(k|M|G)?bit$') && {number} * {factor} >= 8000.0 \
             && {number} * {factor} <= 1000000000000.0"
        ),
        "must be a bit rate from 8kbit to 1000Gbit, written as 512kbit, 100Mbit or 1Gbit".to_owned(),
    )
}

/// A byte size in bounds.
pub fn size(least: &str, most: &str) -> Rule {
    rule(
        size_in_bounds("self", least, most),
        format!("must be a number of bytes from {least} to {most}, written as 1500, 64Ki, 10M or 1Gi"),
    )
}

/// A list of byte sizes, each in bounds. It may be empty.
pub fn sizes(least: &str, most: &str) -> Rule {
    rule(
        format!("self.all(s, {})", size_in_bounds("s", least, most)),
        format!("must be numbers of bytes from {least} to {most}, written as 1500, 64Ki, 10M or 1Gi"),
    )
}

fn size_in_bounds(value: &str, least: &str, most: &str) -> String {
    format!(
        "string({value}).matches('{SIZE}') && quantity(string({value})).compareTo(quantity('{least}')) >= 0 \
         && quantity(string({value})).compareTo(quantity('{most}')) <= 0"
    )
}

fn rule(expression: String, message: String) -> Rule {
    Rule::new(expression).message(message.as_str())
}
