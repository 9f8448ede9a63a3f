//! Calls of conductors, and the answers of nodes and link agents.

use std::{sync::LazyLock, time::Duration};

use perfrun_api::{document, planning};
use perfrun_conductor::{client::status_of, fuzzing::record_of};
use perfrun_contract::{
    histogram::{Histogram, recorder},
    node::{Clock, Info, LinkRequest, LinkStatus, Outcome, ProbeRequest, Problem, Start, TrialRequest},
    plan::{Cell, Trial},
    role::Role,
};
use perfrun_link::{
    Impairment, Ratio,
    impairment::Loss,
    probe::{Measurement, ProbePlan, judge, judge_rate_back},
};
use perfrun_node::fuzzing;

use crate::{json::json, memory::peak};

pub(crate) fn request(bytes: &[u8]) {
    if let Some(request) = json::<TrialRequest>(bytes)
        && fuzzing::accepts(&request)
    {
        // A timer takes it.
        let _ = Duration::from_secs_f64(request.timeout_seconds);
    }
    let _ = json::<Start>(bytes);
}

pub(crate) fn address(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        fuzzing::address(text);
    }
}

pub(crate) fn info(bytes: &[u8]) {
    if let Some(info) = json::<Info>(bytes) {
        let _ = info.stack_of_variant("libp2p");
        assert!(info.shares_machine_with(&info));
    }
    let _ = (json::<Clock>(bytes), json::<Problem>(bytes));
}

pub(crate) fn agent(bytes: &[u8]) {
    if let Some(LinkStatus {
        state: Some(state), ..
    }) = json(bytes)
    {
        for concern in state.concerns() {
            let _ = concern.to_string();
        }
    }
    let _ = json::<LinkRequest>(bytes);
    if let Some(ProbeRequest { plan, .. }) = json(bytes)
        && plan.check().is_ok()
    {
        let _ = plan.longest_duration();
    }
    if let Some(measured) = json::<Measurement>(bytes) {
        let (link, plan) = &*LOSSY;
        if measured.is_of(plan) {
            let _ = judge(link, link, Duration::ZERO, plan, &measured);
            let _ = judge_rate_back(link, plan, &measured);
        }
    }
}

pub(crate) fn histogram(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let text: Histogram = serde_json::from_value(text.into()).expect("a histogram is any text");
    let Ok(read) = text.decode() else { return };
    let again = Histogram::from(&read).decode().expect("its own text");
    assert_eq!(again, read);
    let mut merged = recorder();
    merged
        .add(&read)
        .expect("a recorder of nanoseconds takes each other one");
    assert!(merged.mean().is_finite());
}

/// A link that loses in bursts, and how it is measured.
static LOSSY: LazyLock<(Impairment, ProbePlan)> = LazyLock::new(|| {
    let ratio = |percent| Ratio::from_percent(percent).expect("a share");
    let link = Impairment {
        loss: Some(Loss::GilbertElliott {
            enter_bad: ratio(1.0),
            leave_bad: ratio(25.0),
            loss_in_bad: ratio(50.0),
            loss_in_good: ratio(0.1),
        }),
        ..Impairment::default()
    };
    let plan = ProbePlan {
        echoes: 100,
        ..ProbePlan::with_echo_time(&link, &link, Duration::from_millis(100))
    };
    (link, plan)
});

/// Lines of pages, which two nodes served.
pub(crate) fn metrics(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (first, second) = text.split_once('\0').unwrap_or((&text, ""));
    let merged = perfrun_metrics::merge([first, second]);
    assert!(merged.ends_with("# EOF\n"), "{merged}");
    assert_eq!(
        merged.lines().filter(|line| *line == "# EOF").count(),
        1,
        "{merged}"
    );
    let _ = perfrun_metrics::undescribed(&text);
}

/// Documents with one cell of each workload.
pub(crate) const DOCUMENTS: &[&str] = &[
    include_str!("../../../examples/broadcast.yaml"),
    include_str!("../../../examples/libp2p-perf.yaml"),
    include_str!("../../../examples/litep2p-perf-bandwidth.yaml"),
    include_str!("../../../examples/litep2p-perf-substreams.yaml"),
    include_str!("../../../examples/messages.yaml"),
    include_str!("../../../examples/ping.yaml"),
    include_str!("../../../examples/relay-stress.yaml"),
    include_str!("../../../examples/relay-transfer.yaml"),
    include_str!("../../../examples/webrtc-scenario-1.yaml"),
];

static CELLS: LazyLock<Vec<Cell>> = LazyLock::new(|| {
    let runs = DOCUMENTS
        .iter()
        .flat_map(|text| document::parse(text).expect("examples are valid"));
    runs.filter_map(|run| {
        planning::cells(&run.spec)
            .expect("examples have plans")
            .into_iter()
            .next()
    })
    .collect()
});

static INFO: LazyLock<Info> = LazyLock::new(|| {
    let info = serde_json::json!({
        "version": "0", "stacks": {}, "profile": "release", "listenIp": "127.0.0.1", "host": "here",
        "kernel": "6.1", "cpu": "abacus", "cpus": 2,
    });
    serde_json::from_value(info).expect("nodes need not say more")
});

/// Most bytes that reading one status may hold at a time. The target may hold records of all nodes as well.
const STATUS_MEMORY_MAX: u64 = 32 << 20;

/// Longest status that goes into records, in bytes: up to nine nodes of a cell report it.
const RECORDED_BYTES: usize = 64 << 10;

/// The status of a trial, as the operator keeps it: all nodes of a trial report it.
pub(crate) fn status(bytes: &[u8]) {
    LazyLock::force(&CELLS);
    let mut read = None;
    let held = peak(|| read = status_of(bytes).ok());
    assert!(held <= STATUS_MEMORY_MAX, "reading a status took {held} bytes");
    let outcome = read.and_then(|status| status.outcome);
    let Some(outcome) = outcome.filter(|_| bytes.len() <= RECORDED_BYTES) else {
        return;
    };
    if let Some(failure) = &outcome.failure {
        assert!(!failure.message.contains(|c: char| c.is_control() && c != '\n'));
    }
    let trial = Trial {
        id: "c0.i0".to_owned(),
        cell: 0,
        iteration: 0,
        warmup: false,
    };
    for cell in CELLS.iter() {
        let outcomes = cell.nodes_by_role().map(|(role, names)| {
            let of_node = |name: &String| (name.clone(), role, outcome.clone());
            names
                .iter()
                .map(of_node)
                .collect::<Vec<(String, Role, Outcome)>>()
        });
        let record = record_of(&trial, cell, outcomes.concat(), &INFO);
        for (metric, value) in &record.metrics {
            assert!(value.is_finite(), "{metric}: {value}");
        }
        let kept = serde_json::to_vec(&record).expect("a record is JSON");
        json::<perfrun_contract::record::TrialRecord>(&kept).expect("a record reads back");
    }
}
