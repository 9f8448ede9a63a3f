//! What documents compare and expect.

use std::collections::BTreeMap;

use perfrun_api::{
    document,
    planning::{self, Error},
    spec::{Combination, PerfRunSpec},
};
use perfrun_contract::{
    compare::{Bound, CellPair},
    matrix::{NodeProgramKind, Stack, StackName, Transport},
    metric::Metric,
    plan::{Cell, Iteration, Plan, Renew},
};

use crate::fixtures::{self, cell_ids, plan, spec};

const STACKS: &str = "stacks: [{name: main, stack: litep2p}, {name: pr, stack: litep2p}]\n\
                      compare: [{baseline: main, candidate: pr}]\n";

fn compared(rest: &str) -> Plan {
    plan(&text(rest))
}

fn text(rest: &str) -> String {
    format!(
        "workload: {{ping: {{}}}}\n{STACKS}matrix: {{clients: [main], servers: [main], transports: [tcp, quic-v1]}}\n{rest}"
    )
}

#[test]
fn a_candidate_has_a_cell_for_each_of_its_baseline() {
    let plan = compared("");
    assert_eq!(
        cell_ids(&plan),
        [
            "raw.raw.tcp.ping-1000",
            "raw.raw.quic-v1.ping-1000",
            "main.main.tcp.ping-1000",
            "pr.pr.tcp.ping-1000",
            "main.main.quic-v1.ping-1000",
            "pr.pr.quic-v1.ping-1000"
        ]
    );
    let cell_pair = |baseline, candidate| CellPair {
        baseline,
        candidate,
        control: None,
    };
    assert_eq!(plan.judging.cell_pairs, [cell_pair(2, 3), cell_pair(4, 5)]);
    let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "server-0",
            "client-0",
            "server-0-main",
            "client-0-main",
            "server-0-pr",
            "client-0-pr"
        ],
        "each side has processes of its own"
    );
    assert_eq!(plan.renew, Renew::Iteration);
}

#[test]
fn a_candidate_may_replace_one_side() {
    let ids = |replaces: &str| {
        let document = text("").replace(
            "candidate: pr}",
            &format!("candidate: pr, replaces: {replaces}}}"),
        );
        let plan = plan(&document);
        let cell_pair = plan.judging.cell_pairs[0];
        plan.cells[cell_pair.candidate].id.clone()
    };
    assert_eq!(ids("client"), "pr.main.tcp.ping-1000");
    assert_eq!(ids("server"), "main.pr.tcp.ping-1000");
}

/// A document that compares two stacks, with the rest of `compare` and of `matrix`.
fn of_stacks([baseline, candidate]: [&str; 2], compare: &str, matrix: &str) -> String {
    format!(
        "workload: {{ping: {{}}}}\nstacks: [{{name: old, stack: {baseline}}}, {{name: new, stack: {candidate}}}]\n\
         compare: [{{baseline: old, candidate: new{compare}}}]\n\
         matrix: {{clients: [old], servers: [old], rawReference: false, {matrix}}}"
    )
}

#[test]
fn two_stacks_are_compared_where_both_can_be_measured() {
    let matrix = "transports: [tcp, tcp-tls]";
    let [two, reversed] = [["libp2p", "litep2p"], ["litep2p", "libp2p"]].map(|stacks| {
        let expect = "\nexpect: [{metric: roundTripP50, maxRegression: 10%}]";
        plan(&(of_stacks(stacks, ", control: true", matrix) + expect))
    });
    assert_eq!(
        cell_ids(&two),
        [
            "old.old.tcp.ping-1000",
            "new.new.tcp.ping-1000",
            "old_control.old_control.tcp.ping-1000",
            "old.old.tcp-tls.ping-1000"
        ]
    );
    let stacks = two
        .cells
        .iter()
        .map(|cell| [cell.client_stack, cell.server_stack]);
    let expected = [Stack::Libp2p, Stack::Litep2p, Stack::Libp2p, Stack::Libp2p];
    assert_eq!(stacks.collect::<Vec<_>>(), expected.map(|stack| [stack; 2]));
    assert_eq!(cell_ids(&reversed)[3], "new.new.tcp-tls.ping-1000");
    for (plan, skipped) in [
        (two, "new.new.tcp-tls.ping-1000"),
        (reversed, "old.old.tcp-tls.ping-1000"),
    ] {
        let cell_pair = CellPair {
            baseline: 0,
            candidate: 1,
            control: Some(2),
        };
        assert_eq!(plan.judging.cell_pairs, [cell_pair]);
        assert_eq!(plan.judging.expect[0].cells, [1]);
        let [cell] = plan.skipped.as_slice() else {
            panic!("{:?}", plan.skipped)
        };
        assert_eq!(cell.id, skipped);
        assert_eq!(cell.reason, "litep2p secures TCP by Noise only, it has no TLS");
    }
}

#[test]
fn a_candidate_of_another_stack_runs_its_program_on_the_side_it_replaces() {
    let stacks = ["libp2p", "go-libp2p"];
    let plan = plan(&of_stacks(stacks, ", replaces: server", "transports: [tcp]"));
    assert_eq!(
        cell_ids(&plan),
        ["old.old.tcp.ping-1000", "old.new.tcp.ping-1000"]
    );
    let programs = plan.nodes.iter().map(|node| (&*node.name, node.program));
    assert_eq!(
        programs.collect::<Vec<_>>(),
        [
            ("server-0-old", NodeProgramKind::Rust),
            ("client-0-old", NodeProgramKind::Rust),
            ("server-0-new", NodeProgramKind::Go)
        ]
    );
}

#[test]
fn stacks_without_a_cell_that_both_can_do_are_refused_with_the_reasons() {
    let refused = |stacks, compare: &str, matrix: &str| {
        let document = spec(&of_stacks(stacks, compare, matrix));
        planning::plan(&document).unwrap_err().to_string()
    };
    let tls = "nothing to compare: no cell can be measured both with old and with new in its place: litep2p secures \
               TCP by Noise only, it has no TLS; name transports and workloads that both can do";
    for stacks in [["libp2p", "litep2p"], ["litep2p", "libp2p"]] {
        assert_eq!(refused(stacks, "", "transports: [tcp-tls]"), tls, "{stacks:?}");
    }
    let mixed = refused(
        ["libp2p", "commonware"],
        ", replaces: client",
        "transports: [tcp]",
    );
    assert!(
        mixed.contains("place: commonware speaks only to commonware: its handshake is its own; name"),
        "{mixed}"
    );
}

#[test]
fn trials_of_a_pair_are_neighbours_and_chance_decides_which_is_first() {
    let (mut first, mut all) = (0, 0);
    for seed in 0..100 {
        let plan = compared(&format!("iterations: 10\nseed: {seed}"));
        assert_eq!(plan.seed, Some(seed));
        for cell_pair in &plan.judging.cell_pairs {
            let places = |cell| {
                let numbered = plan.trials.iter().enumerate();
                numbered
                    .filter(move |(_, trial)| trial.cell == cell)
                    .map(|(place, _)| place)
            };
            for (baseline, candidate) in places(cell_pair.baseline).zip(places(cell_pair.candidate)) {
                assert_eq!(baseline.abs_diff(candidate), 1, "{seed}");
                first += usize::from(baseline < candidate);
                all += 1;
            }
        }
    }
    // 2200 tosses: five standard deviations are 5 %.
    let share = f64::from(u32::try_from(first).unwrap()) / f64::from(u32::try_from(all).unwrap());
    assert!((0.45..=0.55).contains(&share), "{share}");
}

#[test]
fn a_seed_makes_the_same_order_again_and_another_one_another() {
    let order = |seed: u32, iterations: u32| {
        let plan = compared(&format!("iterations: {iterations}\nseed: {seed}"));
        let ids = plan.trials.into_iter().map(|trial| trial.id);
        ids.collect::<Vec<_>>()
    };
    assert_eq!(order(7, 10), order(7, 10));
    assert_ne!(order(7, 10), order(8, 10));
    assert!(
        order(7, 20).starts_with(&order(7, 10)),
        "more iterations do not change the first ones"
    );
}

fn with_control(rest: &str) -> String {
    text(rest).replace("candidate: pr}", "candidate: pr, control: true}")
}

#[test]
fn a_control_repeats_the_baseline_in_processes_of_its_own() {
    let settings = "stack: litep2p, settings: {yamuxWindow: 1Mi}";
    let plan = plan(&with_control("").replacen("stack: litep2p", settings, 1));
    assert_eq!(
        cell_ids(&plan)[2..],
        [
            "main.main.tcp.ping-1000",
            "pr.pr.tcp.ping-1000",
            "main_control.main_control.tcp.ping-1000",
            "main.main.quic-v1.ping-1000",
            "pr.pr.quic-v1.ping-1000",
            "main_control.main_control.quic-v1.ping-1000"
        ]
    );
    let cell_pair = |baseline| CellPair {
        baseline,
        candidate: baseline + 1,
        control: Some(baseline + 2),
    };
    assert_eq!(plan.judging.cell_pairs, [cell_pair(2), cell_pair(5)]);
    let [baseline, control] = [2, 4].map(|cell| &plan.cells[cell]);
    let renamed = Cell {
        id: baseline.id.clone(),
        client: baseline.client.clone(),
        server: baseline.server.clone(),
        clients: baseline.clients.clone(),
        servers: baseline.servers.clone(),
        ..control.clone()
    };
    assert_eq!(renamed, *baseline, "all else is that of the baseline");
    let nodes = plan
        .nodes
        .iter()
        .map(|node| (&*node.name, node.variant.as_deref()));
    assert_eq!(
        nodes.collect::<Vec<_>>()[2..],
        [
            ("server-0-main", Some("main")),
            ("client-0-main", Some("main")),
            ("server-0-pr", Some("pr")),
            ("client-0-pr", Some("pr")),
            ("server-0c-main", Some("main")),
            ("client-0c-main", Some("main"))
        ],
        "they have the program, the image and the environment of the baseline"
    );
}

#[test]
fn a_control_replaces_the_side_that_its_candidate_replaces() {
    let ids = |replaces: &str| {
        let document =
            with_control("").replace("control: true", &format!("control: true, replaces: {replaces}"));
        let plan = plan(&document);
        let cell_pair = plan.judging.cell_pairs[0];
        plan.cells[cell_pair.control.unwrap()].id.clone()
    };
    assert_eq!(ids("client"), "main_control.main.tcp.ping-1000");
    assert_eq!(ids("server"), "main.main_control.tcp.ping-1000");
}

#[test]
fn a_comparison_with_a_control_has_each_order_equally_often() {
    let mut orders: BTreeMap<Vec<usize>, u32> = BTreeMap::new();
    for seed in 0..100 {
        let plan = plan(&with_control(&format!("iterations: 10\nseed: {seed}")));
        for CellPair { baseline, .. } in &plan.judging.cell_pairs {
            let members = *baseline..baseline + 3;
            let is_member = |cell: usize| members.contains(&cell);
            let blocks = plan.trials.chunk_by(|a, b| {
                let are_members = is_member(a.cell) && is_member(b.cell);
                are_members && Iteration::of(a) == Iteration::of(b)
            });
            for block in blocks.filter(|block| is_member(block[0].cell)) {
                let order = block.iter().map(|trial| trial.cell - baseline);
                *orders.entry(order.collect()).or_default() += 1;
            }
        }
    }
    assert_eq!(orders.len(), 6, "the three are neighbours: {orders:?}");
    // 2200 throws: 367 each, and five standard deviations are 87.
    assert!(
        orders.values().all(|count| (280..=454).contains(count)),
        "{orders:?}"
    );
}

#[test]
fn a_document_cannot_name_a_control_as_a_stack() {
    let [main, control] = ["main", "main_control"].map(|name| StackName(name.to_owned()));
    let added = |client: &StackName, server: &StackName| Combination {
        client: client.clone(),
        server: server.clone(),
        transport: Transport::Tcp,
        network: None,
        ip_family: None,
    };
    let mut specs = vec![spec(&with_control("")); 7];
    specs[0].matrix.clients.push(control.clone());
    specs[1].matrix.servers.push(control.clone());
    specs[2].matrix.include.push(added(&control, &main));
    specs[3].matrix.include.push(added(&main, &control));
    specs[4].topology.relay = Some(control.clone());
    specs[5].compare[0].baseline = control.clone();
    specs[6].compare[0].candidate = control.clone();
    for spec in specs {
        assert_eq!(
            planning::plan(&spec),
            Err(Error::UnknownStack(control.clone())),
            "validation would refuse it, too: {:?}",
            spec.matrix
        );
    }
}

#[test]
fn expectations_do_not_select_controls() {
    let plan = plan(&with_control(
        "expect: [{metric: roundTripP50, maxRegression: 10%}, {metric: roundTripP50, max: 5ms}]",
    ));
    let meant = plan.judging.expect.iter().map(|expected| &expected.cells[..]);
    assert_eq!(meant.collect::<Vec<_>>(), [&[3, 6][..], &[2, 3, 5, 6]]);
}

#[test]
fn a_control_is_written_as_it_is_read_and_absent_unless_requested() {
    assert!(!spec(&text("")).compare[0].control);
    let read = spec(&with_control(""));
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written["compare"][0]["control"], true);
    assert_eq!(serde_json::from_value::<PerfRunSpec>(written).unwrap(), read);
}

#[test]
fn networks_keep_their_order_in_an_iteration() {
    let plan = plan(&format!(
        "workload: {{ping: {{}}}}\n{STACKS}matrix: {{clients: [main], servers: [main], networks: [lan, wan]}}\nseed: 1\niterations: 2"
    ));
    let networks: Vec<&str> = plan
        .trials
        .iter()
        .map(|trial| plan.cells[trial.cell].network.as_str())
        .collect();
    let iteration = [["lan"; 3], ["wan"; 3]].concat();
    assert_eq!(networks, iteration.repeat(3));
}

#[test]
fn expectations_are_of_the_cells_that_they_name() {
    let plan = compared(
        "expect:\n\
         - {metric: roundTripP50, maxRegression: 10%}\n\
         - {metric: roundTripP50, max: 5ms, where: {transport: tcp}}\n\
         - {metric: cpuSecondsPerOperation, maxRegression: 5%, where: {transport: quic-v1}}",
    );
    let expected: Vec<_> = plan
        .judging
        .expect
        .iter()
        .map(|expected| (expected.metric, expected.cells.clone(), expected.bound))
        .collect();
    assert_eq!(
        expected,
        [
            (Metric::RoundTripP50, vec![3, 5], Bound::MaxRegression(0.1)),
            (Metric::RoundTripP50, vec![2, 3], Bound::Max(0.005)),
            (
                Metric::CpuSecondsPerOperation,
                vec![5],
                Bound::MaxRegression(0.05)
            ),
        ]
    );
}

#[test]
fn a_goodput_is_expected_of_transfers_in_its_direction() {
    let document = text("expect: [{metric: uploadGoodput, min: 1Gbit}]")
        .replace("ping: {}", "bandwidth: {sizes: [1Mi]}");
    let plan = plan(&document);
    let meant = plan.judging.expect[0]
        .cells
        .iter()
        .map(|cell| plan.cells[*cell].id.as_str());
    assert_eq!(
        meant.collect::<Vec<_>>(),
        [
            "main.main.tcp.upload-1Mi",
            "pr.pr.tcp.upload-1Mi",
            "main.main.quic-v1.upload-1Mi",
            "pr.pr.quic-v1.upload-1Mi"
        ]
    );
}

#[test]
fn an_expectation_that_cannot_be_judged_is_refused() {
    let refused = |expect: &str| {
        let document = spec(&text(&format!("expect: [{expect}]")));
        planning::plan(&document).unwrap_err().to_string()
    };
    assert_eq!(
        refused("{metric: roundTripP50, max: 5Gbit}"),
        "expect[0] cannot be judged: 5Gbit is not a value of roundTripP50: write a duration, such as 500us, 5ms or 2s"
    );
    assert_eq!(
        refused("{metric: roundTripP50, max: 5ms, where: {transport: ws}}"),
        "expect[0] cannot be judged: no cell that is measured matches it and has roundTripP50"
    );
    assert_eq!(
        refused("{metric: uploadGoodput, min: 1Gbit}"),
        "expect[0] cannot be judged: ping does not measure uploadGoodput; it measures roundTripMean, roundTripP50, \
         roundTripP90, roundTripP99, roundTripMax, failures, and costs such as cpuSecondsPerOperation"
    );
    let begun = spec(&text("expect: [{metric: uploadGoodput, min: 1Gbit}]"));
    assert_eq!(planning::draft(&begun).unwrap().judging.expect[0].cells.len(), 4);
}

#[test]
fn a_share_of_raw_of_cells_without_a_raw_reference_is_refused() {
    const UPLOAD: &str = "bandwidth: {sizes: [1Mi], directions: [upload]}";
    const OTHERS: &str = "use min, max or maxRegression";
    let document = |workload: &str, metric: &str, cells: &str, matrix: &str| {
        spec(&format!(
            "workload: {{{workload}}}\nexpect: [{{metric: {metric}, minShareOfRaw: 30%{cells}}}]\n\
             matrix: {{clients: [libp2p], servers: [libp2p], {matrix}"
        ))
    };
    let refused = |document: PerfRunSpec| {
        assert!(planning::draft(&document).is_ok(), "the run may have begun");
        let refused = planning::plan(&document).unwrap_err().to_string();
        let reason = refused
            .strip_prefix("expect[0] cannot be judged: no cell that it is about has a raw reference: ");
        reason.map(str::to_owned).ok_or(refused).unwrap()
    };
    let of_uploads = |cells: &str, matrix: &str| document(UPLOAD, "uploadGoodput", cells, matrix);
    assert_eq!(
        refused(of_uploads("", "transports: [tcp], rawReference: false}")),
        format!("matrix.rawReference is false; set it to true, or {OTHERS}")
    );
    assert_eq!(
        refused(of_uploads("", "transports: [memory]}")),
        format!("raw has no transport in memory: without a link there is nothing to compare with; {OTHERS}")
    );
    assert_eq!(
        refused(document(
            "substreams: {counts: [1]}",
            "opensPerSecond",
            "",
            "transports: [tcp]}"
        )),
        format!("raw opens streams without a round trip, so its opens cannot be compared; {OTHERS}")
    );
    assert_eq!(
        refused(of_uploads(", where: {client: raw}", "transports: [tcp]}")),
        "raw is not compared with itself; name cells of other stacks by where, or use min or max"
    );
    let tuned = "transports: [tcp], include: [{client: tuned, server: tuned, transport: tcp}]}\n\
                 stacks: [{name: tuned, stack: libp2p, settings: {tcpCongestion: reno}}]";
    assert_eq!(
        refused(of_uploads(", where: {client: tuned}", tuned)),
        format!(
            "raw has the default congestion control, and settings choose another; name cells without such settings by \
             where, or {OTHERS}"
        )
    );
    let one_of_two = of_uploads("", "transports: [tcp, memory]}");
    assert!(planning::plan(&one_of_two).is_ok());
}

#[test]
fn a_metric_of_which_no_value_is_better_is_refused() {
    let document = fixtures::text(&text("expect: [{metric: clientCpuCores, maxRegression: 10%}]"));
    let refused = document::parse(&document).unwrap_err().to_string();
    assert!(
        refused.contains("spec.expect[0].metric: must be uploadGoodput, uploadSeconds, "),
        "{refused}"
    );
    assert!(refused.contains(", not \"clientCpuCores\""), "{refused}");

    // A cluster may have runs from before its schema refused the metric.
    let mut kept = spec(&text("expect: [{metric: roundTripP50, maxRegression: 10%}]"));
    kept.expect[0].metric = Metric::ClientCpuCores;
    assert_eq!(
        planning::plan(&kept).unwrap_err().to_string(),
        "expect[0] cannot be judged: of clientCpuCores, neither a higher nor a lower value is better"
    );
}

#[test]
fn an_expectation_is_of_raw_cells_only_if_it_names_raw() {
    let of_raw = |cells: &str| {
        planning::plan(&spec(&format!(
            "workload: {{ping: {{}}}}\nmatrix: {{clients: [raw], servers: [raw]}}\nexpect: [{{metric: roundTripP50, \
             max: 5ms{cells}}}]"
        )))
    };
    assert_eq!(of_raw(", where: {client: raw}").unwrap().judging.expect.len(), 1);
    assert_eq!(
        of_raw("").unwrap_err().to_string(),
        "expect[0] cannot be judged: no cell that is measured matches it and has roundTripP50; cells of raw are \
         meant only if it names them: add where: {client: raw}"
    );
}

#[test]
fn a_baseline_that_the_matrix_has_not_is_refused() {
    let refused = |replaces: &str, sides: &str| {
        let document = text("")
            .replace(
                "candidate: pr}",
                &format!("candidate: pr, replaces: {replaces}}}"),
            )
            .replace("clients: [main], servers: [main]", sides);
        let error = planning::plan(&spec(&document)).unwrap_err();
        assert!(matches!(error, Error::NothingToCompare { .. }), "{error}");
        error.to_string()
    };
    let advice = |places: &str| {
        format!(
            "nothing to compare: the matrix has no cell with main that pr can replace; add main to {places}"
        )
    };
    assert_eq!(
        refused("both", "clients: [libp2p], servers: [libp2p]"),
        advice("matrix.clients or matrix.servers")
    );
    assert_eq!(
        refused("client", "clients: [libp2p], servers: [main]"),
        advice("matrix.clients")
    );
    // Whatever the reasons why other cells are skipped.
    assert_eq!(
        refused("server", "clients: [main], servers: [libp2p, raw]"),
        advice("matrix.servers")
    );
}

#[test]
fn a_run_that_may_be_longer_is_checked_each_time_its_length_has_doubled() {
    let interim_checks = |rest: &str| {
        let plan = compared(rest);
        let iterations = plan.trials.iter().map(|trial| trial.iteration + 1).max();
        assert_eq!(
            plan.trials.len() as u32,
            6 * (iterations.unwrap() + 1),
            "with one warm-up"
        );
        (plan.judging.interim_checks, iterations.unwrap())
    };
    assert_eq!(interim_checks("iterations: 40"), (vec![], 40));
    assert_eq!(interim_checks("maxIterations: 40"), (vec![10, 20, 40], 40));
    assert_eq!(
        interim_checks("iterations: 6\nmaxIterations: 30"),
        (vec![6, 12, 24, 30], 30)
    );
    assert_eq!(
        interim_checks("iterations: 12\nmaxIterations: 12"),
        (vec![12], 12)
    );
    let plan = compared("maxIterations: 40\ntargetInterval: 3%");
    assert_eq!(plan.judging.target_interval, Some(0.03));
}

#[test]
fn more_iterations_are_those_of_a_longer_run() {
    let order = |length: &str| {
        let ids = compared(&format!("{length}\nseed: 7")).trials.into_iter();
        ids.map(|trial| trial.id).collect::<Vec<_>>()
    };
    assert_eq!(order("maxIterations: 20"), order("iterations: 20"));
}
