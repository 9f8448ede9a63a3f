//! Bounds of plans: one document at each bound, and one above it.

use perfrun_api::{
    document,
    planning::{self, CELLS_MAX, Error, MEASUREMENTS_MAX, NODES_MAX, TRIALS_MAX},
};

use crate::fixtures::spec;

/// Sixteen variants of a stack, and their names.
fn variants() -> (String, String) {
    let names: Vec<String> = (0..16).map(|index| format!("v{index}")).collect();
    let stacks: Vec<String> = names
        .iter()
        .map(|name| format!("{{name: {name}, stack: libp2p}}"))
        .collect();
    (stacks.join(", "), names.join(", "))
}

/// The error with which a document is refused; `None` if it has a plan.
fn refusal(document: &str) -> Option<Error> {
    planning::plan(&spec(document)).err()
}

#[test]
fn a_plan_has_at_most_4096_cells() {
    let (stacks, names) = variants();
    // Sixteen clients by sixteen servers, on sixteen networks.
    let networks: Vec<String> = (1..16)
        .map(|delay| format!("{{name: n{delay}, delay: {delay}ms}}"))
        .collect();
    let document = |include: &str| {
        format!(
            "workload: {{ping: {{count: 1}}}}\niterations: 1\nwarmup: 0\nstacks: [{stacks}]\nnetworks: [{}]\n\
             matrix: {{clients: [{names}], servers: [{names}], networks: [none, {}], include: [{include}], rawReference: false}}",
            networks.join(", "),
            (1..16)
                .map(|delay| format!("n{delay}"))
                .collect::<Vec<_>>()
                .join(", "),
        )
    };
    assert_eq!(
        planning::cells(&spec(&document(""))).unwrap().len() as u64,
        CELLS_MAX
    );
    // A cell that the cross product already has is not counted twice.
    let known = "{client: v0, server: v1, transport: tcp, network: n1}";
    assert_eq!(refusal(&document(known)), None);
    let another = "{client: v0, server: v1, transport: quic-v1, network: n1}";
    let refused = refusal(&document(another)).unwrap();
    assert_eq!(refused, Error::TooManyCells(CELLS_MAX + 1));
    assert_eq!(
        refused.to_string(),
        "too many cells: 4097, with the raw reference and skipped cells, but at most 4096 are allowed; \
         shorten the lists of matrix or workload"
    );
}

#[test]
fn cells_of_the_raw_reference_count() {
    // On each network: one raw reference over TCP, one over QUIC, and two pairs over three transports.
    let document = |sizes: usize, clients: &str| {
        let sizes: Vec<String> = (1..=sizes).map(|size| size.to_string()).collect();
        let streams: Vec<String> = (1..=16).map(|streams| streams.to_string()).collect();
        format!(
            "workload: {{bandwidth: {{sizes: [{}], streams: [{}], directions: [upload]}}}}\niterations: 1\nwarmup: 0\n\
             matrix: {{clients: [{clients}], servers: [litep2p, raw], transports: [tcp, ws, quic-v1]}}",
            sizes.join(", "),
            streams.join(", "),
        )
    };
    let loads = |sizes: u64| sizes * 16;
    assert_eq!(refusal(&document(32, "libp2p")), None);
    assert_eq!(
        refusal(&document(33, "libp2p")),
        Some(Error::TooManyCells(loads(33) * (6 + 2)))
    );
    // The matrix names raw, too, which is not counted twice.
    assert_eq!(
        refusal(&document(64, "raw")),
        Some(Error::TooManyCells(loads(64) * 6))
    );
}

#[test]
fn a_plan_has_at_most_512_nodes() {
    let (stacks, names) = variants();
    let document = |servers: u32| {
        format!(
            "workload: {{ping: {{}}}}\niterations: 1\nwarmup: 0\nstacks: [{stacks}]\ntopology: {{clients: 16, servers: {servers}}}\n\
             matrix: {{clients: [{names}], servers: [{names}], rawReference: false}}"
        )
    };
    let plan = planning::plan(&spec(&document(16))).unwrap();
    assert_eq!(plan.nodes.len() as u64, NODES_MAX);
    let refused = refusal(&document(17)).unwrap();
    assert_eq!(refused, Error::TooManyNodes(NODES_MAX + 16));
    assert_eq!(
        refused.to_string(),
        "too many nodes: 528, but at most 512 are allowed; lower topology.clients or topology.servers, or \
         name fewer variants in matrix"
    );
}

#[test]
fn a_control_has_nodes_of_its_own_in_the_count() {
    let document = |control: bool| {
        format!(
            "workload: {{ping: {{}}}}\niterations: 1\nwarmup: 0\nstacks: [{{name: main, stack: libp2p}}, {{name: pr, stack: libp2p}}]\n\
             compare: [{{baseline: main, candidate: pr, control: {control}}}]\ntopology: {{clients: 100, servers: 100}}\n\
             matrix: {{clients: [main], servers: [main], rawReference: false}}"
        )
    };
    assert_eq!(refusal(&document(false)), None);
    assert_eq!(refusal(&document(true)), Some(Error::TooManyNodes(600)));
}

#[test]
fn a_control_is_a_cell_with_trials_and_measurements() {
    let document = |control: bool, iterations: u32| {
        let counts: Vec<String> = (1..=50).map(|count| count.to_string()).collect();
        format!(
            "workload: {{substreams: {{counts: [{}]}}}}\niterations: {iterations}\nwarmup: 0\n\
             stacks: [{{name: main, stack: libp2p}}, {{name: pr, stack: libp2p}}]\n\
             compare: [{{baseline: main, candidate: pr, control: {control}}}]\n\
             matrix: {{clients: [main], servers: [main], rawReference: false}}",
            counts.join(", ")
        )
    };
    assert_eq!(refusal(&document(false, 1000)), None);
    assert_eq!(
        refusal(&document(true, 1000)),
        Some(Error::TooManyTrials(150 * 1000))
    );
    let plan = planning::plan(&spec(&document(true, 2))).unwrap();
    assert_eq!((plan.cells.len(), plan.trials.len()), (150, 300));
}

#[test]
fn a_server_in_memory_does_not_count_as_a_node() {
    let (stacks, names) = variants();
    let document = format!(
        "workload: {{ping: {{}}}}\nstacks: [{stacks}]\nmatrix: {{clients: [{names}], servers: [{names}], transports: [memory]}}\n\
         topology: {{clients: 32, servers: 100}}"
    );
    assert_eq!(
        planning::plan(&spec(&document)).unwrap().nodes.len() as u64,
        NODES_MAX
    );
}

#[test]
fn a_plan_has_at_most_100000_trials() {
    let document = |warmup: u32| {
        let counts: Vec<String> = (1..=50).map(|count| count.to_string()).collect();
        format!(
            "workload: {{substreams: {{counts: [{}]}}}}\niterations: 1000\nwarmup: {warmup}\n\
             matrix: {{clients: [libp2p, litep2p], servers: [libp2p], rawReference: false}}",
            counts.join(", ")
        )
    };
    let plan = planning::plan(&spec(&document(0))).unwrap();
    assert_eq!(plan.trials.len() as u64, TRIALS_MAX);
    let refused = refusal(&document(1)).unwrap();
    assert_eq!(refused, Error::TooManyTrials(TRIALS_MAX + 100));
    let looked_at = document(0)
        .replace("iterations: 1000", "iterations: 10\nmaxIterations: 1000")
        .replace("[libp2p, litep2p]", "[a]")
        .replace("[libp2p]", "[a], transports: [tcp, quic-v1]");
    let looked_at = format!(
        "{looked_at}\nstacks: [{{name: a, stack: libp2p}}, {{name: b, stack: libp2p}}]\n\
         compare: [{{baseline: a, candidate: b}}]"
    );
    let refused_too = refusal(&looked_at).unwrap();
    assert_eq!(refused_too, Error::TooManyTrials(2 * TRIALS_MAX));
    assert_eq!(
        refused.to_string(),
        "too many trials: 100100, but at most 100000 are allowed; lower iterations, or shorten the lists of \
         matrix or workload"
    );
}

#[test]
fn a_plan_has_at_most_500000_measurements() {
    let document = |clients: u32| {
        format!(
            "workload: {{substreams: {{counts: [1, 2, 3, 4, 5]}}}}\niterations: 1000\nwarmup: 0\n\
             topology: {{clients: {clients}, servers: 50}}\nmatrix: {{clients: [libp2p], servers: [libp2p], rawReference: false}}"
        )
    };
    assert_eq!(refusal(&document(50)), None);
    let refused = refusal(&document(51)).unwrap();
    assert_eq!(refused, Error::TooManyMeasurements(MEASUREMENTS_MAX + 5000));
    assert_eq!(
        refused.to_string(),
        "too many measurements, one by each node in each trial: 505000, but at most 500000 are allowed; \
         lower iterations, topology.clients or topology.servers, or shorten the lists of matrix or workload"
    );
}

#[test]
fn a_short_document_that_requests_too_many_cells_is_refused() {
    let run = document::parse(include_str!("too-large.yaml")).unwrap().remove(0);
    assert_eq!(planning::plan(&run.spec), Err(Error::TooManyCells(96_768)));
}

#[test]
fn excluded_cells_are_not_counted() {
    let (stacks, names) = variants();
    let document = |exclude: &str| {
        format!(
            "workload: {{substreams: {{counts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]}}}}\niterations: 1\n\
             stacks: [{stacks}]\nmatrix: {{clients: [{names}], servers: [{names}], exclude: [{exclude}], rawReference: false}}"
        )
    };
    assert_eq!(
        refusal(&document("{transport: ws}")),
        Some(Error::TooManyCells(17 * 256))
    );
    let kept = planning::cells(&spec(&document("{client: v3}"))).unwrap();
    assert_eq!(kept.len(), 17 * 240);
}
