//! The documents in examples/, and those in the metadata of the chart.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use jiff::Timestamp;
use perfrun_api::{
    document::{Document, parse_any},
    planning::plan,
    schedule::{PerfSchedule, Timetable},
    spec::PerfRun,
};
use perfrun_contract::plan::Plan;
use serde_json::Value;

fn examples() -> BTreeMap<String, Vec<PerfRun>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let read = |path: &Path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let documents =
            parse_any(&fs::read_to_string(path).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let run = |document| match document {
            Document::Run(run) => *run,
            Document::Schedule(schedule) => first_run(&schedule),
        };
        (name, documents.into_iter().map(run).collect())
    };
    yaml.map(|path| read(&path)).collect()
}

fn first_run(schedule: &PerfSchedule) -> PerfRun {
    let first = Timetable::new(&schedule.spec)
        .unwrap()
        .after(Timestamp::UNIX_EPOCH);
    schedule.run(first.unwrap())
}

fn plans(example: &str) -> Vec<(PerfRun, Plan)> {
    let runs = examples().remove(example).unwrap();
    let planned = |run: PerfRun| {
        let plan = plan(&run.spec).unwrap();
        (run, plan)
    };
    runs.into_iter().map(planned).collect()
}

#[test]
fn every_example_runs_all_that_it_names() {
    let all = examples();
    assert!(all.len() >= 5);
    for (name, runs) in all {
        for run in runs {
            let document = run.metadata.name.unwrap();
            assert!(document.starts_with(&name), "{document} in {name}.yaml");
            let plan = plan(&run.spec).unwrap();
            assert_eq!(plan.skipped, [], "{document}");
        }
    }
}

#[test]
fn the_chart_has_a_valid_example_of_each_kind() {
    let chart = include_str!("../../../../charts/perfrun/Chart.yaml");
    let chart: Value = serde_saphyr::from_str(chart).unwrap();
    let list = |annotation: &str| -> Vec<Value> {
        let text = chart["annotations"][annotation].as_str().unwrap();
        serde_saphyr::from_str(text).unwrap()
    };
    let kinds = |items: &[Value]| -> Vec<Value> { items.iter().map(|item| item["kind"].clone()).collect() };
    let examples = list("artifacthub.io/crdsExamples");
    assert_eq!(kinds(&examples), kinds(&list("artifacthub.io/crds")));
    for example in examples {
        parse_any(&example.to_string()).unwrap();
    }
}

#[test]
fn names_of_all_examples_differ() {
    let mut names: Vec<Option<String>> = examples()
        .into_values()
        .flatten()
        .map(|run| run.metadata.name)
        .collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn the_quickstart_has_twenty_cells_and_plans_for_no_more_than_seventy_seconds() {
    let plans = plans("quickstart");
    let [(run, plan)] = plans.as_slice() else { panic!() };
    assert_eq!(plan.cells.len(), 20);
    assert_eq!(plan.cells.iter().filter(|cell| cell.is_raw()).count(), 4);
    assert!(run.spec.iterations >= 6, "confidence intervals need six trials");
    let one_round: Duration = plan.cells.iter().map(|cell| cell.parameters.duration()).sum();
    // Besides the transfers, each trial takes 50 ms of the conductor, and nodes take time to start.
    let all = one_round * (run.spec.iterations + run.spec.warmup)
        + Duration::from_millis(50) * u32::try_from(plan.trials.len()).unwrap();
    assert!(all <= Duration::from_secs(70), "{all:?}");
}

#[test]
fn the_bandwidth_comparison_is_the_published_sweep() {
    let plans = plans("litep2p-perf-bandwidth");
    let [(run, plan)] = plans.as_slice() else { panic!() };
    let sizes: Vec<u64> = run
        .spec
        .workload
        .bandwidth
        .as_ref()
        .unwrap()
        .sizes
        .iter()
        .map(|size| size.0)
        .collect();
    assert_eq!(sizes, (10..=30).map(|power| 1 << power).collect::<Vec<u64>>());
    assert_eq!(plan.cells.len(), 21 * (4 + 1));
}

#[test]
fn the_substream_comparison_is_the_published_one() {
    let plans = plans("litep2p-perf-substreams");
    let [(run, plan)] = plans.as_slice() else { panic!() };
    assert_eq!(
        run.spec.workload.substreams.as_ref().unwrap().counts,
        [1, 32, 64, 128, 256]
    );
    assert_eq!(plan.cells.len(), 5 * 4);
}

#[test]
fn the_libp2p_benchmark_has_throughput_latency_and_handshakes() {
    let plans = plans("libp2p-perf");
    let [(throughput, _), (latency, _), (_, handshakes)] = plans.as_slice() else {
        panic!()
    };
    assert_eq!(throughput.spec.iterations, 10);
    assert_eq!(latency.spec.iterations, 100);
    let ids: Vec<&str> = handshakes.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "raw.raw.tcp.handshakes-100",
            "raw.raw.tcp.handshakes-100-x10",
            "raw.raw.quic-v1.handshakes-100",
            "raw.raw.quic-v1.handshakes-100-x10",
            "libp2p.libp2p.tcp-tls.handshakes-100",
            "libp2p.libp2p.tcp-tls.handshakes-100-x10",
            "libp2p.libp2p.quic-v1.handshakes-100",
            "libp2p.libp2p.quic-v1.handshakes-100-x10",
        ]
    );
}

#[test]
fn timed_trials_of_examples_end_before_the_run_times_out() {
    for (document, plan) in examples().keys().flat_map(|name| plans(name)) {
        let measuring: Duration = plan
            .trials
            .iter()
            .map(|trial| plan.cells[trial.cell].parameters.duration())
            .sum();
        let limit: Duration = document.spec.timeouts.run.into();
        assert!(
            measuring < limit * 3 / 4,
            "{:?}: {measuring:?} of {limit:?}",
            document.metadata.name
        );
    }
}
