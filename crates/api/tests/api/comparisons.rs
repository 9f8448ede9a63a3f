//! What documents compare and expect.

use perfrun_api::planning::{self, Error};
use perfrun_contract::{
    compare::{Bound, Twin},
    plan::{Plan, Renew},
    record::Metric,
};

use crate::fixtures::{cell_ids, plan, spec};

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
    let twin = |baseline, candidate| Twin { baseline, candidate };
    assert_eq!(plan.judging.twins, [twin(2, 3), twin(4, 5)]);
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
    assert_eq!(plan.renew, Renew::Round);
}

#[test]
fn a_candidate_may_replace_one_side() {
    let ids = |replaces: &str| {
        let document = text("").replace(
            "candidate: pr}",
            &format!("candidate: pr, replaces: {replaces}}}"),
        );
        let plan = plan(&document);
        let twin = plan.judging.twins[0];
        plan.cells[twin.candidate].id.clone()
    };
    assert_eq!(ids("client"), "pr.main.tcp.ping-1000");
    assert_eq!(ids("server"), "main.pr.tcp.ping-1000");
}

#[test]
fn twins_are_neighbours_and_a_coin_decides_which_is_first() {
    let (mut first, mut all) = (0, 0);
    for seed in 0..100 {
        let plan = compared(&format!("iterations: 10\nseed: {seed}"));
        assert_eq!(plan.seed, Some(seed));
        for twin in &plan.judging.twins {
            let places = |cell| {
                let numbered = plan.trials.iter().enumerate();
                numbered
                    .filter(move |(_, trial)| trial.cell == cell)
                    .map(|(place, _)| place)
            };
            for (baseline, candidate) in places(twin.baseline).zip(places(twin.candidate)) {
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
        "more rounds do not change the first ones"
    );
}

#[test]
fn networks_keep_their_order_in_a_round() {
    let plan = plan(&format!(
        "workload: {{ping: {{}}}}\n{STACKS}matrix: {{clients: [main], servers: [main], networks: [lan, wan]}}\nseed: 1\niterations: 2"
    ));
    let networks: Vec<&str> = plan
        .trials
        .iter()
        .map(|trial| plan.cells[trial.cell].network.as_str())
        .collect();
    let round = [["lan"; 3], ["wan"; 3]].concat();
    assert_eq!(networks, round.repeat(3));
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
fn what_cannot_be_judged_is_refused() {
    let refused = |expect: &str| {
        let document = spec(&text(&format!("expect: [{expect}]")));
        planning::plan(&document).unwrap_err().to_string()
    };
    assert_eq!(
        refused("{metric: clientCpuCores, max: '1'}"),
        "expect[0] cannot be judged: of clientCpuCores, neither a higher nor a lower value is better"
    );
    assert_eq!(
        refused("{metric: roundTripP50, max: 5Gbit}"),
        "expect[0] cannot be judged: 5Gbit is not a value of roundTripP50: write a duration, such as 500us, 5ms or 2s"
    );
    assert_eq!(
        refused("{metric: roundTripP50, max: 5ms, where: {transport: ws}}"),
        "expect[0] cannot be judged: no cell that is measured matches it and has roundTripP50"
    );
}

#[test]
fn a_baseline_that_the_matrix_has_not_is_refused() {
    let document = spec(&text("").replace(
        "clients: [main], servers: [main]",
        "clients: [libp2p], servers: [libp2p]",
    ));
    assert!(matches!(
        planning::plan(&document),
        Err(Error::NothingToCompare { .. })
    ));
}

#[test]
fn a_run_that_may_be_longer_is_looked_at_each_time_its_length_has_doubled() {
    let looks = |rest: &str| {
        let plan = compared(rest);
        let rounds = plan.trials.iter().map(|trial| trial.iteration + 1).max();
        assert_eq!(
            plan.trials.len() as u32,
            6 * (rounds.unwrap() + 1),
            "with one warm-up"
        );
        (plan.judging.looks, rounds.unwrap())
    };
    assert_eq!(looks("iterations: 40"), (vec![], 40));
    assert_eq!(looks("maxIterations: 40"), (vec![10, 20, 40], 40));
    assert_eq!(
        looks("iterations: 6\nmaxIterations: 30"),
        (vec![6, 12, 24, 30], 30)
    );
    assert_eq!(looks("iterations: 12\nmaxIterations: 12"), (vec![12], 12));
    let plan = compared("maxIterations: 40\ntargetInterval: 3%");
    assert_eq!(plan.judging.target_interval, Some(0.03));
}

#[test]
fn more_rounds_are_those_of_a_longer_run() {
    let order = |length: &str| {
        let ids = compared(&format!("{length}\nseed: 7")).trials.into_iter();
        ids.map(|trial| trial.id).collect::<Vec<_>>()
    };
    assert_eq!(order("maxIterations: 20"), order("iterations: 20"));
}
