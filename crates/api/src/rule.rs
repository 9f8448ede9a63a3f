//! CEL rules that several fields share. The message of a rule states what is right, so that the reader of a
//! refused document knows what to write.

use kube::core::{Message, Rule};
use schemars::Schema;
use serde_json::Value;

/// How a duration is written. It is part of the rule on the bounds, so that nonsense gets that rule's message
/// and not the evaluation error of `duration()`.
const DURATION: &str = r"^([0-9]{1,9}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$";
/// How a byte size is written, see [`perfrun_contract::quantity::ByteSize`].
const SIZE: &str = "^[0-9]{1,18}(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$";
/// How a stack or a network is named. Names become parts of cell ids, which become labels of metrics.
const NAME: &str = "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$";

/// An integer within bounds.
pub(crate) fn integer(least: u32, most: u32) -> Rule {
    Rule::new(format!("self >= {least} && self <= {most}"))
        .message(format!("must be a number from {least} to {most}").as_str())
}

/// Adds a rule to the schema of a field that has no attribute of its own.
pub(crate) fn add(schema: &mut Value, rule: &Rule) {
    let mut checked = Schema::try_from(schema.take()).expect("a field has a schema");
    kube::core::validate(&mut checked, rule.clone()).expect("a rule is JSON");
    *schema = checked.to_value();
}

/// Adds a rule to the entries of a list. A rule of the list itself could not say which entry is wrong.
pub(crate) fn each(rule: Rule) -> impl FnMut(&mut Schema) {
    move |list| add(list.get_mut("items").expect("a list has entries"), &rule)
}

/// A message that says what is right, and then the name that is wrong. `name` is in CEL.
pub(crate) fn naming(right: &str, before: &str, name: &str) -> Message {
    Message::Expression(format!("{right:?} + {before:?} + {name}"))
}

/// What is right, as a rule in a schema says it.
pub(crate) fn right(rule: &Value) -> Option<&str> {
    let of_expression = || rule["messageExpression"].as_str()?.split('"').nth(1);
    rule["message"].as_str().or_else(of_expression)
}

/// A list with at least one entry.
pub(crate) fn not_empty(entry: &str) -> Rule {
    Rule::new("size(self) >= 1").message(format!("must name at least one {entry}").as_str())
}

/// The name of a stack or a network that the document describes. `reserved` is a CEL list of names that have
/// a meaning already; `reserved_words` describes them.
pub(crate) fn own_name(reserved: &str, reserved_words: &str) -> Rule {
    Rule::new(format!("self.matches('{NAME}') && !(self in {reserved})")).message(
        format!(
            "must be 1 to 40 lower-case letters, digits or '-', begin and end with a letter or digit, and \
             not be {reserved_words}"
        )
        .as_str(),
    )
}

/// A list whose entries have different names, since the matrix refers to them by name.
pub(crate) fn unique_names() -> Rule {
    // Names come first, or API servers take them for unboundedly long texts, and refuse the definition.
    let first = "self.map(a, a.name).filter(n, !self.exists_one(b, b.name == n))[0]";
    Rule::new("self.all(a, self.exists_one(b, b.name == a.name))").message(naming(
        "must have unique names",
        "; more than one is named ",
        first,
    ))
}

/// Names in `field` that are all known. In CEL, `named` lists them, and `is_known` judges one of them, `n`.
/// The message names the first that is not known.
pub(crate) fn known(field: &str, named: &str, is_known: &str, right: &str) -> Rule {
    let first = format!("{named}.filter(n, !({is_known}))[0]");
    Rule::new(format!("{named}.all(n, {is_known})"))
        .message(naming(right, "; it names ", &first))
        .field_path(field)
}

/// A duration within bounds.
pub(crate) fn duration(least: &str, most: &str) -> Rule {
    // The API server reads `µs`, which Rust writes; the library that evaluates rules here reads only `us`.
    let value = "duration(self.replace('µs', 'us'))";
    Rule::new(format!(
        "self.matches('{DURATION}') && {value} >= duration('{least}') && {value} <= duration('{most}')"
    ))
    .message(format!("must be a duration from {least} to {most}, written as 500ms, 20s or 5m").as_str())
}

/// A share, see [`perfrun_contract::quantity::Percent`].
pub(crate) fn percent() -> Rule {
    Rule::new("self.matches('^[0-9]{1,3}([.][0-9]{1,9})?%$') && double(self.replace('%', '')) <= 100.0")
        .message("must be a percentage from 0% to 100%, written as 1% or 0.25%")
}

/// A bit rate, see [`perfrun_contract::quantity::BitRate`].
pub(crate) fn bit_rate() -> Rule {
    let number =
        "double(self.replace('Gbit', '').replace('Mbit', '').replace('kbit', '').replace('bit', ''))";
    let factor = "(self.endsWith('Gbit') ? 1000000000.0 : self.endsWith('Mbit') ? 1000000.0 : \
                  self.endsWith('kbit') ? 1000.0 : 1.0)";
    Rule::new(format!(
        "self.matches('^[0-9]{{1,12}}([.][0-9]{{1,9}})?(k|M|G)?bit$') && {number} * {factor} >= 8000.0 \
         && {number} * {factor} <= 1000000000000.0"
    ))
    .message("must be a bit rate from 8kbit to 1000Gbit, written as 512kbit, 100Mbit or 1Gbit")
}

/// A byte size within bounds.
pub(crate) fn size(least: &str, most: &str) -> Rule {
    Rule::new(size_in_bounds("self", least, most)).message(
        format!("must be a number of bytes from {least} to {most}, written as 1500, 64Ki, 10M or 1Gi")
            .as_str(),
    )
}

pub(crate) fn size_in_bounds(value: &str, least: &str, most: &str) -> String {
    format!(
        "string({value}).matches('{SIZE}') && quantity(string({value})).compareTo(quantity('{least}')) >= 0 \
         && quantity(string({value})).compareTo(quantity('{most}')) <= 0"
    )
}

/// Words as a CEL list of strings.
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Rules judge values here as in an API server: by the evaluator of kube's feature `cel`.
#[cfg(test)]
pub(crate) mod evaluation {
    use kube::core::{Rule, cel::Validator};
    use serde_json::{Value, json};

    /// The message with which `rule` refuses `new`; `None` if it accepts it. `old` is the value before a
    /// change.
    pub(crate) fn refusal(rule: &Rule, old: Option<&Value>, new: &Value) -> Option<String> {
        refusal_of(&json!({}), rule, old, new)
    }

    /// The message with which `rule` refuses a value of a type that `schema` describes.
    fn refusal_of(schema: &Value, rule: &Rule, old: Option<&Value>, new: &Value) -> Option<String> {
        let mut schema = schema.clone();
        schema["x-kubernetes-validations"] = json!([rule]);
        let refused = Validator::new().validate(&schema, new, old).err()?;
        let messages: Vec<_> = refused
            .into_vec()
            .into_iter()
            .map(|error| error.message)
            .collect();
        Some(messages.join("\n"))
    }

    /// Asserts that `rule` accepts one value, and refuses the other with this message.
    #[track_caller]
    pub(crate) fn judges(rule: &Rule, accepted: &Value, refused: &Value, message: &str) {
        judges_of(&json!({}), rule, accepted, refused, message);
    }

    /// [`judges`] for values of a type that `schema` describes.
    #[track_caller]
    pub(crate) fn judges_of(schema: &Value, rule: &Rule, accepted: &Value, refused: &Value, message: &str) {
        assert_eq!(
            refusal_of(schema, rule, None, accepted),
            None,
            "{accepted} is right"
        );
        assert_eq!(
            refusal_of(schema, rule, None, refused).as_deref(),
            Some(message),
            "{refused} is wrong"
        );
    }
}

#[cfg(test)]
mod tests {
    use kube::core::cel::Validator;
    use serde_json::json;

    use super::{evaluation::judges, *};

    #[test]
    fn an_integer_has_bounds() {
        judges(
            &integer(2, 5),
            &json!(5),
            &json!(6),
            "must be a number from 2 to 5",
        );
        judges(
            &integer(2, 5),
            &json!(2),
            &json!(1),
            "must be a number from 2 to 5",
        );
    }

    #[test]
    fn a_list_is_not_empty() {
        judges(
            &not_empty("path"),
            &json!(["direct"]),
            &json!([]),
            "must name at least one path",
        );
    }

    #[test]
    fn own_names_are_short_and_not_reserved() {
        let rule = own_name("['raw']", "raw");
        let message = "must be 1 to 40 lower-case letters, digits or '-', begin and end with a letter or \
                       digit, and not be raw";
        judges(&rule, &json!("raw-2"), &json!("raw"), message);
        judges(&rule, &json!("n".repeat(40)), &json!("n".repeat(41)), message);
        judges(&rule, &json!("0"), &json!("a-"), message);
    }

    #[test]
    fn names_in_a_list_are_unique() {
        judges(
            &unique_names(),
            &json!([{"name": "a"}, {"name": "b"}]),
            &json!([{"name": "b"}, {"name": "a"}, {"name": "a"}]),
            "must have unique names; more than one is named a",
        );
    }

    #[test]
    fn a_duration_has_a_unit_and_bounds() {
        let rule = duration("10ms", "1h");
        let message = "must be a duration from 10ms to 1h, written as 500ms, 20s or 5m";
        judges(&rule, &json!("1m30s"), &json!("90"), message);
        judges(&rule, &json!("10000µs"), &json!("9999µs"), message);
        judges(&rule, &json!("1h"), &json!("1h1ns"), message);
    }

    #[test]
    fn a_share_is_at_most_everything() {
        let message = "must be a percentage from 0% to 100%, written as 1% or 0.25%";
        judges(&percent(), &json!("100%"), &json!("100.1%"), message);
        judges(&percent(), &json!("0.25%"), &json!("0.25"), message);
    }

    #[test]
    fn a_bit_rate_has_a_unit_and_bounds() {
        let message = "must be a bit rate from 8kbit to 1000Gbit, written as 512kbit, 100Mbit or 1Gbit";
        judges(&bit_rate(), &json!("8kbit"), &json!("7999bit"), message);
        judges(&bit_rate(), &json!("1.5Gbit"), &json!("1001Gbit"), message);
        judges(&bit_rate(), &json!("100Mbit"), &json!("100MB"), message);
    }

    #[test]
    fn a_size_is_a_quantity_within_bounds() {
        let rule = size("1", "16Mi");
        let message = "must be a number of bytes from 1 to 16Mi, written as 1500, 64Ki, 10M or 1Gi";
        judges(&rule, &json!(1500), &json!(0), message);
        judges(&rule, &json!("16Mi"), &json!("17Mi"), message);
        judges(&rule, &json!("64Ki"), &json!("64KiB"), message);
    }

    #[test]
    fn every_message_of_a_rule_names_valid_values() {
        let said = |rule: Rule| right(&serde_json::to_value(rule).unwrap()).unwrap().to_owned();
        assert_eq!(said(integer(2, 5)), "must be a number from 2 to 5");
        assert_eq!(said(unique_names()), "must have unique names");
    }

    #[test]
    fn a_rule_of_entries_names_the_entry() {
        let mut schema = Schema::try_from(json!({"type": "array", "items": {"type": "integer"}})).unwrap();
        each(integer(1, 9))(&mut schema);
        let refused = Validator::new().validate(&schema.to_value(), &json!([1, 10, 9, 0]), None);
        let refused: Vec<_> = refused
            .unwrap_err()
            .into_iter()
            .map(|error| (error.field_path, error.message))
            .collect();
        let wrong = |place: &str| (place.to_owned(), "must be a number from 1 to 9".to_owned());
        assert_eq!(refused, [wrong("[1]"), wrong("[3]")]);
    }
}
