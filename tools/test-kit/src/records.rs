//! Plans, nodes, records of trials and comparisons, as tests need them. Trials are named as in plans: `c0.i3`
//! is iteration 3 of cell 0, and `c0.w1` is warm-up 1.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{Comparison, Finding},
    matrix::{IpFamily, Protocol, Stack, StackName, StackSettings, Transport},
    metric::Metric,
    node::{Info, Reason},
    parameters::{Amount, Bandwidth, Parameters},
    plan::{Cell, Names, Plan, Trial},
    quantity::ByteSize,
    record::{TrialFailure, TrialRecord},
    workload::Direction,
};

/// A plan of these trials, without nodes and cells.
pub fn plan_of(trials: &[&str]) -> Plan {
    Plan {
        trials: trials.iter().map(|id| trial(id)).collect(),
        ..Plan::default()
    }
}

/// Every stack that has most workloads with itself, on all transports with sockets except for WebRTC.
pub const STACKS_WITH_THEMSELVES: [(Stack, Transport); 9] = [
    (Stack::Libp2p, Transport::Tcp),
    (Stack::Libp2p, Transport::TcpTls),
    (Stack::Libp2p, Transport::QuicV1),
    (Stack::Litep2p, Transport::Tcp),
    (Stack::Litep2p, Transport::QuicV1),
    (Stack::Libp2p, Transport::Ws),
    (Stack::Litep2p, Transport::Ws),
    (Stack::Raw, Transport::Tcp),
    (Stack::Raw, Transport::QuicV1),
];

/// A cell between a client and a server of these stacks, over TCP.
pub fn cell(client: Stack, server: Stack, parameters: Parameters) -> Cell {
    let names = |name: &str| [name.to_owned()].into_iter().collect::<Names>();
    Cell {
        id: format!("{client}.{server}.tcp"),
        client: StackName(client.to_string()),
        server: StackName(server.to_string()),
        client_stack: client,
        server_stack: server,
        client_settings: StackSettings::default(),
        server_settings: StackSettings::default(),
        relay_stack: None,
        relay_settings: StackSettings::default(),
        transport: Transport::Tcp,
        network: "none".to_owned(),
        ip_family: IpFamily::IPv4,
        parameters,
        clients: names("client-0"),
        servers: names("server-0"),
        relays: Names::default(),
        peers_per_client: 1,
    }
}

/// A cell of uploads of a second, between a client and a server of one stack.
pub fn upload_cell(stack: Stack, name: &str, transport: Transport) -> Cell {
    let upload = Parameters::Bandwidth(Bandwidth {
        chunk_bytes: ByteSize(1 << 16),
        ..Bandwidth::new(Protocol::Perf, Direction::Upload, Amount::Seconds(1.0))
    });
    Cell {
        id: format!("{name}.{name}.{transport}.upload-1s"),
        client: StackName(name.to_owned()),
        server: StackName(name.to_owned()),
        transport,
        ..cell(stack, stack, upload)
    }
}

/// What a node says about itself on a machine of this name.
pub fn info(host: &str) -> Info {
    let info = serde_json::json!({
        "version": "0.1.0",
        "stacks": {"litep2p": "0.16.0"},
        "profile": "release",
        "compiler": "rustc 1.95.0",
        "listenIp": "10.99.0.2",
        "host": host,
        "kernel": "6.12.48",
        "cpu": "Imaginary CPU",
        "cpus": 2,
        "governor": "performance",
    });
    serde_json::from_value(info).expect("nodes need not say more")
}

/// The trial of this name.
pub fn trial(id: &str) -> Trial {
    let parsed = (|| {
        let (cell, iteration) = id.strip_prefix('c')?.split_once('.')?;
        let warmup = iteration.starts_with('w');
        let iteration = iteration.strip_prefix(['w', 'i'])?.parse().ok()?;
        Some((cell.parse().ok()?, warmup, iteration))
    })();
    let (cell, warmup, iteration) = parsed.expect("trials are named like c0.i3 or c0.w1");
    Trial {
        id: id.to_owned(),
        cell,
        iteration,
        warmup,
    }
}

/// A first attempt at a trial that completed, in which nothing was measured.
pub fn completed(id: &str) -> TrialRecord {
    TrialRecord {
        trial: trial(id),
        attempt: 0,
        failure: None,
        metrics: BTreeMap::new(),
        flags: vec![],
        at_seconds: 0.0,
        start_skew_seconds: None,
        clock_uncertainty_seconds: None,
        start_lateness_seconds: None,
        overhead_seconds: 0.0,
        session: 0,
        disturbance: None,
        standstill: None,
        links: None,
        merged_samples: None,
        nodes: BTreeMap::new(),
    }
}

/// A first attempt at a trial that failed. Its message names the trial and the reason.
pub fn failed(id: &str, reason: Reason) -> TrialRecord {
    TrialRecord {
        failure: Some(TrialFailure {
            node: None,
            reason,
            message: format!("{id}: {reason}"),
            other_limit: false,
        }),
        ..completed(id)
    }
}

/// The same record, of the second attempt.
pub fn retried(record: TrialRecord) -> TrialRecord {
    TrialRecord { attempt: 1, ..record }
}

/// A comparison of a candidate with `main`, of which only the finding is known.
pub fn comparison(candidate: &str, metric: Metric, finding: Finding) -> Comparison {
    Comparison {
        baseline: "main".to_owned(),
        candidate: candidate.to_owned(),
        metric,
        pairs: 20,
        excluded_pairs: 0,
        failed: [0, 0],
        tolerance: 0.05,
        medians: None,
        ratio: None,
        p_adjusted: None,
        finding,
        reason: None,
        detectable_difference: None,
        pairs_needed: None,
    }
}
