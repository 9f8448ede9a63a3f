//! Which runs may be compared.

use std::slice::from_ref;

use perfrun_api::results::Results;
use perfrun_contract::{
    record::{Leg, LinkCheck},
    run::{Isolation, NodeProgram},
};
use perfrun_link::probe::{Delivery, Judgement, Measurement, Quantity, QuantityFinding};
use perfrun_report::{
    differences::{Difference, Field, differences, differences_table},
    runs::ComparedRuns,
};

use perfrun_test_kit::results::run;

fn differences_of(baseline: &Results, candidate: &Results) -> Vec<Difference> {
    let (a, b) = (baseline.reported_run(), candidate.reported_run());
    let runs = ComparedRuns {
        baselines: from_ref(&a),
        candidates: from_ref(&b),
    };
    differences(&runs.shared_plan(), runs)
}

/// What differs between two runs, each as the name of the field and of what has it.
fn differ(baseline: &Results, candidate: &Results) -> Vec<String> {
    differences_of(baseline, candidate)
        .iter()
        .map(|found| format!("{} {}", found.field, found.subject))
        .collect()
}

const NOTHING: [&str; 0] = [];

/// Pings of a variant that is started with this.
fn pings(started_with: &str) -> Results {
    let spec = format!(
        "
  workload: {{ping: {{count: 100}}}}
  stacks: [{{name: main, stack: litep2p, {started_with}}}]
  matrix: {{clients: [main], servers: [main], transports: [tcp], rawReference: false}}
"
    );
    run(&spec).results()
}

#[test]
fn variants_have_the_same_environment_variables() {
    let two = pings("env: {WORKERS: '2'}");
    assert_eq!(differ(&two, &pings("env: {WORKERS: '2'}")), NOTHING);
    assert_eq!(differ(&two, &pings("env: {WORKERS: '1'}")), ["env main"]);
    assert_eq!(differ(&pings("env: {}"), &two), ["env main"]);
}

#[test]
fn a_variant_that_no_compared_cell_has_may_differ() {
    let with_another = |workers: &str| {
        let mut results = pings("env: {WORKERS: '2'}");
        let mut another = results.spec.stacks[0].clone();
        another.name = "another".to_owned();
        another.env.insert("WORKERS".to_owned(), workers.to_owned());
        results.spec.stacks.push(another);
        results
    };
    assert_eq!(differ(&with_another("3"), &with_another("4")), NOTHING);
}

#[test]
fn programs_may_differ_and_their_arguments_not() {
    let fast = pings("command: [./main, --fast]");
    assert_eq!(differ(&fast, &pings("command: [./other, --fast]")), NOTHING);
    assert_eq!(differ(&fast, &pings("command: [./main]")), ["arguments main"]);
    let [one, two] =
        ["'--fast, --deep'", "--fast, --deep"].map(|all| pings(&format!("command: [./main, {all}]")));
    assert_eq!(differ(&one, &two), ["arguments main"]);
    // A program named with --node has no arguments, whatever the document says.
    let named = |mut results: Results| {
        results.environment.programs.push(NodeProgram {
            variant: Some("main".to_owned()),
            path: "/main".to_owned(),
        });
        results
    };
    let slow = pings("command: [./main, --slow]");
    assert_eq!(differ(&named(fast.clone()), &named(slow)), NOTHING);
    assert_eq!(differ(&fast, &named(fast.clone())), ["arguments main"]);
}

#[test]
fn pods_have_the_same_settings_wherever_they_run() {
    let in_pods = |change: fn(&mut Results)| {
        let mut results = pings("command: [./main, --fast]");
        results.environment.isolation = Isolation::Pods;
        change(&mut results);
        results
    };
    let usual = in_pods(|_| {});
    let elsewhere = in_pods(|results| {
        let client = &mut results.spec.template.client;
        client.node_selector.insert("zone".to_owned(), "a".to_owned());
        client.labels.insert("team".to_owned(), "networking".to_owned());
        // Pods run the command of their image.
        results.spec.stacks[0].command.clear();
    });
    assert_eq!(differ(&usual, &elsewhere), NOTHING);
    let slower = in_pods(|results| {
        let spec = &mut results.spec;
        spec.template.client.runtime_class_name = Some("gvisor".to_owned());
        spec.template.link.real_time = true;
        spec.topology.host_network = true;
    });
    assert_eq!(
        differ(&usual, &slower),
        [
            "pods template.client",
            "pods template.link",
            "pods topology.hostNetwork"
        ]
    );
    let mut local = slower;
    local.environment.isolation = Isolation::Namespaces;
    let mut other = local.clone();
    other.spec.template.client.runtime_class_name = None;
    assert_eq!(differ(&local, &other), NOTHING, "a local run has no pods");
}

#[test]
fn of_a_topology_only_what_differs_is_shown() {
    let (one, mut two) = (pings("env: {}"), pings("env: {}"));
    two.plan.cells[0].peers_per_client += 1;
    let found = differences_of(&one, &two);
    let texts = ["peersPerClient: 1", "peersPerClient: 2"].map(|text| Some(text.to_owned()));
    assert_eq!((found.len(), &found[0].values[..]), (1, &texts[..]));
}

#[test]
fn limits_that_differ_by_a_byte_are_not_rounded_to_the_same() {
    let with = |limits_bytes| {
        let mut results = pings("env: {}");
        for node in results.environment.nodes.values_mut() {
            node.tcp_window_limits_bytes = Some(limits_bytes);
            node.socket_buffer_limits_bytes = Some(limits_bytes);
        }
        results
    };
    let [usual, more] = [[4 << 20, 4 << 20], [4 << 20, (4 << 20) + 1]].map(with);
    assert_eq!(differ(&usual, &with([4 << 20, 4 << 20])), NOTHING);
    let found = differences_of(&usual, &more);
    let texts = ["4 MiB", "receive 4 MiB, send 4194305 B"];
    let expected = [Field::TcpWindows, Field::UdpBuffers].map(|field| Difference {
        field,
        subject: String::new(),
        values: texts.map(|text| Some(text.to_owned())).into(),
    });
    assert_eq!(found, expected);
}

#[test]
fn a_node_that_says_unknown_is_not_one_that_says_nothing() {
    let with = |governor: Option<&str>| {
        let mut results = pings("env: {}");
        let node = results.environment.nodes.values_mut().next().unwrap();
        node.governor = governor.map(str::to_owned);
        results
    };
    let apart = with(Some("performance"));
    assert_eq!(differ(&apart, &apart), NOTHING);
    assert_eq!(differ(&with(None), &with(Some("unknown"))), ["governor "]);
}

/// A quantity that was measured, and between which values the link counts as configured.
fn found(quantity: Quantity, measured: f64, least: f64, most: f64) -> QuantityFinding {
    QuantityFinding {
        quantity,
        measured,
        least,
        most,
        judgement: if (least..=most).contains(&measured) {
            Judgement::Within
        } else {
            Judgement::Outside
        },
    }
}

/// Pings on a network. Each time that its links were set, these were the findings.
fn on_links(checks: &[&[QuantityFinding]]) -> Results {
    let mut results = run("
  workload: {ping: {count: 100}}
  networks: [{name: far, delay: 25ms, loss: 1%, rate: 100Mbit}]
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], networks: [far], rawReference: false}
")
    .results();
    let delivery = Delivery {
        sent: 4000,
        received: 3960,
    };
    for (record, findings) in results.trials.iter_mut().zip(checks) {
        record.links = Some(LinkCheck {
            network: "far".to_owned(),
            set_seconds: 0.002,
            probe_seconds: 2.5,
            legs: vec![Leg {
                client: "client-0".to_owned(),
                server: "server-0".to_owned(),
                base_round_trip_seconds: 0.00007,
                attempts: 1,
                measured: Measurement {
                    round_trip: None,
                    forward: delivery,
                    backward: delivery,
                    rate: None,
                },
                rate_to_client: None,
                findings: findings.to_vec(),
            }],
        });
    }
    results
}

fn round_trip(milliseconds: f64, usual: f64) -> QuantityFinding {
    found(Quantity::RoundTripMedian, milliseconds, usual - 0.5, usual + 0.5)
}

#[test]
fn round_trips_are_alike_to_within_the_tolerance_of_a_link() {
    let usual = on_links(&[&[round_trip(50.1, 50.0)]]);
    assert_eq!(differ(&usual, &on_links(&[&[round_trip(50.4, 50.0)]])), NOTHING);
    // Both links are as configured, between machines that are further apart.
    let further = on_links(&[&[round_trip(50.9, 50.8)]]);
    assert_eq!(differ(&usual, &further), ["links far, median round trip (ms)"]);
    assert_eq!(differ(&further, &usual), ["links far, median round trip (ms)"]);
}

#[test]
fn the_median_of_links_that_were_as_configured_counts() {
    let usual = on_links(&[&[round_trip(50.1, 50.0)]]);
    let mixed = [
        round_trip(80.0, 50.0),
        round_trip(50.0, 50.0),
        round_trip(50.9, 50.8),
        round_trip(50.2, 50.0),
    ];
    let mixed: Vec<&[QuantityFinding]> = mixed.iter().map(from_ref).collect();
    assert_eq!(differ(&usual, &on_links(&mixed)), NOTHING);
    let wrong = on_links(&[&[round_trip(80.0, 50.0)]]);
    for without in [&wrong, &on_links(&[])] {
        assert_eq!(differ(&usual, without), ["links far, median round trip (ms)"]);
    }
    assert_eq!(differ(&on_links(&[]), &on_links(&[])), NOTHING);
}

#[test]
fn losses_and_rates_are_alike_as_far_as_links_are_judged() {
    let lossy = |lost: f64, usual: f64| {
        on_links(&[&[
            round_trip(50.0, 50.0),
            found(Quantity::LossForward, lost, usual - 16.0, usual + 16.0),
        ]])
    };
    let usual = lossy(25.0, 40.0);
    assert_eq!(differ(&usual, &lossy(55.0, 40.0)), NOTHING, "chance explains it");
    assert_eq!(
        differ(&usual, &lossy(60.0, 50.0)),
        ["links far, datagrams lost on the way there"]
    );
    let fast = |rate: f64, usual: f64| {
        on_links(&[&[
            round_trip(50.0, 50.0),
            found(Quantity::RateBackward, rate, usual - 3.0, usual + 3.0),
        ]])
    };
    let usual = fast(99.0, 100.0);
    assert_eq!(differ(&usual, &fast(97.5, 100.0)), NOTHING);
    assert_eq!(
        differ(&usual, &fast(95.0, 96.0)),
        ["links far, rate on the way back (Mbit/s)"]
    );
    // A rate that was not measured, because the sender was too slow, says nothing.
    assert_eq!(differ(&usual, &on_links(&[&[round_trip(50.0, 50.0)]])), NOTHING);
}

#[test]
fn what_differs_alike_has_one_row() {
    let differs = |subject: &str| Difference {
        field: Field::Workload,
        subject: subject.to_owned(),
        values: ["timing: strict", "timing: compat"]
            .map(|value| Some(value.to_owned()))
            .to_vec(),
    };
    let table = differences_table(&["first", "second", "third"].map(differs), 1, 100);
    assert_eq!(table.matches("timing: compat").count(), 1, "{table}");
    assert!(table.contains("first and 2 more"), "{table}");
}
