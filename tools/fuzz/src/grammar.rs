//! Documents, schedules and statuses by structure. Bytes choose what a schema permits, and that lies over an
//! example: mutations of text seldom are JSON any more, and hardly ever reach a bound.

use std::sync::LazyLock;

use jiff::Timestamp;
use perfrun_api::{
    document,
    schedule::{PerfSchedule, Timetable, due},
};
use perfrun_test_kit::grammar::{NODE, RUN, SCHEDULE, SPEC_INPUT_MAX, overlay, value, value_at};
use serde_json::Value;

use crate::{calls, documents};

/// Most bytes of what lies over an example, except for a few inputs: large ones take long.
const BYTES: usize = 4 << 10;

/// Most bytes of a large status: room for more samples than it may have.
const STATUS_INPUT_MAX: usize = 1 << 20;

/// How many times of a schedule are checked.
const TIMES: usize = 4;

static RUNS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let runs = calls::DOCUMENTS
        .iter()
        .flat_map(|text| document::parse(text).expect("examples are valid"));
    runs.map(|run| serde_json::to_value(run).expect("a document is JSON"))
        .collect()
});

pub(crate) fn document(bytes: &[u8]) {
    let Some((mut run, bytes, most)) = based(&RUNS, bytes, SPEC_INPUT_MAX) else {
        return;
    };
    overlay(&mut run["spec"], value(&RUN, bytes, most));
    documents::document(run.to_string().as_bytes());
}

/// Parts of the five fields of a schedule.
const FIELDS: &[&str] = &[
    "*", "0", "1", "*/5", "59", "60", "1-5", "5-1", "1,31", "29", "30", "*/0", "L", "15W", "?", "MON#5",
    "FEB", "0-59/7", "7", "@daily", "",
];

static SCHEDULES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let schedules = document::parse_schedules(include_str!("../../../examples/nightly.yaml"));
    let schedules = schedules.expect("examples are valid").into_iter();
    schedules
        .map(|schedule| serde_json::to_value(schedule).expect("a document is JSON"))
        .collect()
});

pub(crate) fn schedule(bytes: &[u8]) {
    let Some((mut schedule, bytes, most)) = based(&SCHEDULES, bytes, SPEC_INPUT_MAX) else {
        return;
    };
    let Some((fields, bytes)) = bytes.split_first_chunk::<5>() else {
        return;
    };
    let fields = fields.map(|byte| FIELDS[usize::from(byte) % FIELDS.len()]);
    schedule["spec"]["schedule"] = fields.join(" ").into();
    overlay(&mut schedule["spec"], value(&SCHEDULE, bytes, most));
    let schedules = document::parse_schedules(&schedule.to_string());
    schedules.iter().flatten().for_each(check_times);
}

/// Checks some times of a schedule, and the names of their runs.
fn check_times(schedule: &PerfSchedule) {
    let Ok(timetable) = Timetable::new(&schedule.spec) else {
        return;
    };
    let mut time = Timestamp::from_second(1_790_000_000).expect("a time of 2026");
    for _ in 0..TIMES {
        let Some(next) = timetable.after(time) else { return };
        assert!(next > time, "{next} comes after {time}");
        assert!(timetable.until(next).is_some_and(|last| last <= next), "{next}");
        let _ = timetable.local(next);
        let (run, name) = (schedule.run(next), schedule.metadata.name.as_deref());
        let named = due(
            name.unwrap_or_default(),
            run.metadata.name.as_deref().unwrap_or_default(),
        );
        assert_eq!(named.map(minute), Some(minute(next)));
        time = next;
    }
}

fn minute(time: Timestamp) -> i64 {
    time.as_second().div_euclid(60)
}

static STATUSES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let texts = [
        include_str!("../corpus/status/completed"),
        include_str!("../corpus/status/failed"),
        include_str!("../corpus/status/running"),
    ];
    let statuses = texts.iter().map(|text| serde_json::from_str(text));
    statuses.collect::<Result<_, _>>().expect("they are JSON")
});

pub(crate) fn status(bytes: &[u8]) {
    let Some((mut status, bytes, most)) = based(&STATUSES, bytes, STATUS_INPUT_MAX) else {
        return;
    };
    overlay(&mut status, value_at("/$defs/TrialStatus", &NODE, bytes, most));
    calls::status(status.to_string().as_bytes());
}

/// The first byte of an input chooses one of these values. Returns it, the other bytes, and the most bytes
/// of what they become.
fn based<'b>(bases: &[Value], bytes: &'b [u8], largest: usize) -> Option<(Value, &'b [u8], usize)> {
    let (first, rest) = bytes.split_first()?;
    let most = if *first < 250 { BYTES } else { largest };
    Some((bases[usize::from(*first) % bases.len()].clone(), rest, most))
}
