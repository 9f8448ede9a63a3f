//! The fields of a value as a document has them, and the fields that differ between runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use perfrun_contract::{
    matrix::Protocol,
    parameters::{Bandwidth, Parameters},
    workload::BandwidthProtocol,
};
use serde::Serialize;
use serde_json::Value;
use strum::VariantNames;

use super::property::Property;
use crate::table::NOTHING;

/// What a document says, by the path of each field: `limits.circuits` is `16`.
pub(super) type Fields = BTreeMap<String, Property>;

/// The fields of a value.
pub(super) fn fields(value: &impl Serialize) -> Fields {
    let mut fields = Fields::new();
    // Only a map without names has no JSON, and documents have none.
    add(&mut fields, "", &serde_json::to_value(value).unwrap_or_default());
    fields
}

/// The fields of a workload.
pub(super) fn workload(parameters: &Parameters) -> Fields {
    let mut fields = fields(parameters);
    if let Parameters::Bandwidth(Bandwidth { protocol, .. }) = parameters {
        let is_its_name = |name: &&str| {
            let named = name.parse::<BandwidthProtocol>();
            named.is_ok_and(|named| Protocol::from(named) == *protocol)
        };
        let name = BandwidthProtocol::VARIANTS.iter().copied().find(is_its_name);
        fields.extend(name.map(|name| ("protocol".to_owned(), Property::Text(name.to_owned()))));
    }
    fields
}

/// Adds a value with this path. Nodes get times in seconds, and documents have them with a unit.
fn add(fields: &mut Fields, path: &str, value: &Value) {
    let (path, value) = match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = match path {
                    "" | "amount" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                add(fields, &path, value);
            }
            return;
        }
        Value::Number(number) => match (time_field(path), number.as_f64().map(Duration::try_from_secs_f64)) {
            (Some(name), Some(Ok(time))) => (name, Property::Time(time)),
            _ => (path, Property::Json(value.clone())),
        },
        Value::String(text) => (path, Property::Text(text.clone())),
        other => (path, Property::Json(other.clone())),
    };
    fields.insert(path.to_owned(), value);
}

/// The field of a document for a field with seconds.
fn time_field(path: &str) -> Option<&str> {
    match path {
        "seconds" => Some("duration"),
        _ => path.strip_suffix("Seconds"),
    }
}

/// What each run has of what differs. If a run has nothing, all that others have differs.
pub(super) fn differing_fields(runs: &[Option<Fields>]) -> Vec<Option<String>> {
    let paths: BTreeSet<&String> = runs.iter().flatten().flat_map(BTreeMap::keys).collect();
    let differs = |path: &&String| {
        let of = |run: &Option<Fields>| run.as_ref().map(|fields| fields.get(*path).cloned());
        runs.iter().any(|run| of(run) != of(&runs[0]))
    };
    let paths: Vec<&String> = paths.into_iter().filter(differs).collect();
    let text = |fields: &Fields| {
        if fields.is_empty() {
            return "{}".to_owned();
        }
        let text = |path: &&String| {
            let value = fields
                .get(*path)
                .map_or_else(|| NOTHING.to_owned(), Property::to_string);
            format!("{path}: {value}")
        };
        paths.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    runs.iter().map(|run| run.as_ref().map(text)).collect()
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        parameters::{Amount, Messages, Ping},
        quantity::ByteSize,
        workload::{Direction, MessageMode},
    };
    use serde_json::json;

    use super::*;

    fn upload(protocol: Protocol, chunk_bytes: ByteSize) -> Fields {
        workload(&Parameters::Bandwidth(Bandwidth {
            chunk_bytes,
            ..Bandwidth::new(protocol, Direction::Upload, Amount::Count(1024))
        }))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_difference_in_the_workload_is_written_as_in_a_document() {
        let runs = [
            Some(upload(Protocol::Perf, ByteSize(1 << 10))),
            Some(upload(Protocol::Litep2pPerf, ByteSize(64 << 10))),
        ];
        assert_eq!(
            differing_fields(&runs),
            [
                some("chunkBytes: 1Ki, protocol: perf"),
                some("chunkBytes: 64Ki, protocol: litep2p-perf")
            ]
        );
    }

    #[test]
    fn times_have_a_unit() {
        let messages = |amount| {
            Some(workload(&Parameters::Messages(Messages {
                mode: MessageMode::Stream,
                message_bytes: ByteSize(64),
                amount,
                window: 64,
                rate: None,
                priority: false,
                receivers: 1,
            })))
        };
        assert_eq!(
            differing_fields(&[messages(Amount::Seconds(0.5)), messages(Amount::Count(100))]),
            [
                some("count: \u{2013}, duration: 500ms"),
                some("count: 100, duration: \u{2013}")
            ]
        );
        let ping = |interval_seconds| {
            Some(workload(&Parameters::Ping(Ping {
                count: 1,
                interval_seconds,
            })))
        };
        assert_eq!(
            differing_fields(&[ping(0.0), ping(0.25)]),
            [some("interval: 0s"), some("interval: 250ms")]
        );
    }

    #[test]
    fn a_field_that_one_run_lacks_is_a_difference() {
        let env = |value| Some(fields(&value));
        assert_eq!(
            differing_fields(&[
                env(json!({"A": "1", "B": "2"})),
                env(json!({"A": "1"})),
                env(json!({})),
                None
            ]),
            [some("A: 1, B: 2"), some("A: 1, B: \u{2013}"), some("{}"), None]
        );
        assert_eq!(
            differing_fields(&[env(json!({"A": "1", "B": "2"})), env(json!({"A": "1"}))]),
            [some("B: 2"), some("B: \u{2013}")]
        );
    }
}
