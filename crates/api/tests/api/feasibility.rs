//! Documents that cannot succeed, refused before they run.

use std::time::Duration;

use perfrun_api::planning;
use perfrun_contract::plan::LeastTime;

use crate::fixtures::{plan, spec};

/// The least time of a document with this workload and one cell.
fn least_of(workload: &str, rest: &str) -> LeastTime {
    let matrix = "matrix: {clients: [libp2p], servers: [libp2p], rawReference: false}";
    plan(&format!("workload: {workload}\n{matrix}\n{rest}")).least_time()
}

/// The least time, in milliseconds, of a trial over a network with these figures.
fn least_over(figures: &str, workload: &str, rest: &str) -> u128 {
    let document = format!(
        "workload: {workload}\nnetworks: [{{name: far, {figures}}}]\niterations: 1\nwarmup: 0\n\
         matrix: {{clients: [libp2p], servers: [libp2p], transports: [tcp], networks: [far], rawReference: false}}\n\
         {rest}"
    );
    plan(&document).least_time().time.as_millis()
}

/// Why a document has no plan. The plan of its run, which may have begun with an earlier version, is there.
fn refusal(document: &str) -> Option<String> {
    let spec = spec(document);
    assert!(planning::draft(&spec).is_ok());
    planning::plan(&spec).err().map(|error| error.to_string())
}

/// Why this network is refused for round trips between two stacks of one kind over a transport.
fn network(figures: &str, stack: &str, transport: &str) -> Option<String> {
    refusal(&format!(
        "workload: {{ping: {{count: 1}}}}\nnetworks: [{{name: far, {figures}}}]\n\
         matrix: {{clients: [{stack}], servers: [{stack}], transports: [{transport}], networks: [far], \
         rawReference: false}}"
    ))
}

#[test]
fn each_workload_takes_at_least_the_time_that_it_requests() {
    for (workload, milliseconds) in [
        ("{bandwidth: {duration: 3s, directions: [upload]}}", 3000),
        ("{bandwidth: {sizes: [1Gi], directions: [upload]}}", 0),
        ("{handshakes: {duration: 2s}}", 2000),
        ("{handshakes: {count: 1000}}", 0),
        // The last of several is followed by no pause.
        ("{ping: {count: 11, interval: 100ms}}", 1000),
        ("{ping: {count: 1, interval: 1m}}", 0),
        ("{ping: {count: 1000}}", 0),
        ("{substreams: {counts: [11], mode: paced, rate: 10}}", 1000),
        ("{substreams: {counts: [11]}}", 0),
        (
            "{messages: {count: 11, rate: 10, modes: [stream], sizes: [64]}}",
            1000,
        ),
        (
            "{messages: {duration: 4s, rate: 10, modes: [stream], sizes: [64]}}",
            4000,
        ),
        ("{messages: {count: 11, modes: [stream], sizes: [64]}}", 0),
        (
            "{echo: {loads: [{connections: 1, streamsPerConnection: 1}], duration: 20s}}",
            20_000,
        ),
    ] {
        let least = least_of(workload, "iterations: 1\nwarmup: 0");
        assert_eq!(least.time, Duration::from_millis(milliseconds), "{workload}");
    }
}

#[test]
fn each_round_trip_that_follows_another_takes_the_time_of_the_network() {
    for (workload, round_trips) in [
        ("{ping: {count: 10}}", 10),
        // A dial of two round trips, and the first byte.
        ("{handshakes: {count: 10}}", 30),
        ("{handshakes: {count: 10, inFlight: [4]}}", 9),
        ("{messages: {count: 10, modes: [serialAck], sizes: [64]}}", 10),
        (
            "{messages: {count: 100, window: 32, modes: [stream], sizes: [64]}}",
            4,
        ),
        ("{messages: {count: 10, modes: [broadcast], sizes: [64]}}", 0),
        ("{substreams: {counts: [10]}}", 0),
        ("{bandwidth: {sizes: [1Gi], directions: [upload]}}", 0),
    ] {
        let least = least_over("delay: 50ms", workload, "");
        assert_eq!(least, 100 * round_trips, "{workload}");
    }
    let two_peers = "topology: {peersPerClient: 2}";
    assert_eq!(
        least_over("delay: 50ms", "{handshakes: {count: 10}}", two_peers),
        1500
    );
    // Pauses are between round trips, and messages of a schedule do not wait for it.
    let paused = "{ping: {count: 11, interval: 100ms}}";
    assert_eq!(least_over("delay: 50ms", paused, ""), 1000 + 1100);
    let scheduled = "{messages: {count: 11, rate: 10, modes: [serialAck], sizes: [64]}}";
    assert_eq!(least_over("delay: 50ms", scheduled, ""), 1100);
    assert_eq!(least_over("delay: 5ms", scheduled, ""), 1000);
}

#[test]
fn a_packet_may_be_as_early_as_its_network_lets_it() {
    for (figures, round_trip) in [
        ("delay: 50ms, direction: toServer", 50),
        ("delay: 50ms, jitter: 5ms", 90),
        ("delay: 50ms, jitter: 5ms, distribution: normal", 60),
        ("delay: 50ms, reorder: 1%", 0),
    ] {
        let least = least_over(figures, "{ping: {count: 10}}", "");
        assert_eq!(least, 10 * round_trip, "{figures}");
    }
}

#[test]
fn payload_takes_the_time_of_its_rate() {
    let rate = "rate: 8Mbit, toClient: {rate: 80Mbit}";
    for (workload, milliseconds) in [
        ("{bandwidth: {sizes: [1M], directions: [upload]}}", 1000),
        ("{bandwidth: {sizes: [1M], directions: [download]}}", 100),
        ("{bandwidth: {sizes: [1M], directions: [both]}}", 1000),
        (
            "{bandwidth: {sizes: [1M], streams: [4], directions: [upload]}}",
            4000,
        ),
        ("{bandwidth: {duration: 5s, directions: [upload]}}", 5000),
        ("{messages: {count: 1000, modes: [stream], sizes: [1000]}}", 1000),
        ("{relay: {sizes: [1M], paths: [direct]}}", 100),
    ] {
        let least = least_over(rate, workload, "");
        assert_eq!(least, milliseconds, "{workload}");
    }
    let upload = "{bandwidth: {sizes: [1M], directions: [upload]}}";
    let peers = |servers: u32| format!("topology: {{peersPerClient: 3, servers: {servers}}}");
    assert_eq!(least_over(rate, upload, &peers(1)), 3000);
    assert_eq!(
        least_over(rate, upload, &peers(2)),
        2000,
        "two of three share a server"
    );
    assert_eq!(least_over("toClient: {rate: 8Mbit}", upload, ""), 0);
    let relayed = "relay: {client: {rate: 80Mbit}, server: {rate: 8Mbit}}";
    assert_eq!(
        least_over(relayed, "{relay: {sizes: [1M], paths: [relayed]}}", ""),
        1000
    );
}

#[test]
fn a_trial_that_cannot_end_in_its_time_is_refused() {
    let document = |workload: &str, network: &str, timeouts: &str| {
        format!(
            "workload: {workload}\niterations: 1\nwarmup: 0\n{timeouts}\n\
             networks: [{{name: far, delay: 60ms}}, {{name: slow, rate: 8Mbit}}]\n\
             matrix: {{clients: [libp2p], servers: [libp2p], transports: [tcp], networks: [{network}], rawReference: false}}"
        )
    };
    let pings = |count: u32, network: &str, timeouts: &str| {
        refusal(&document(
            &format!("{{ping: {{count: {count}}}}}"),
            network,
            timeouts,
        ))
    };
    assert_eq!(
        pings(1000, "far", ""),
        None,
        "exactly the 2 min of timeouts.trial"
    );
    assert_eq!(
        pings(1001, "far", "").unwrap(),
        "cannot end within timeouts.trial, 2 min: a trial of libp2p.libp2p.tcp.ping-1001.far takes at least 2 min \
         0.12 s over network far; raise timeouts.trial to more than 2 min 0.12 s, or measure less (a lower count, \
         smaller sizes)"
    );
    assert_eq!(pings(1001, "none", ""), None);
    assert_eq!(pings(1001, "far", "timeouts: {trial: 3m}"), None);
    let satellite = pings(1000, "satellite", "").unwrap();
    assert!(
        satellite.contains("ping-1000.satellite takes at least 9 min 36 s"),
        "{satellite}"
    );

    let paused = document("{ping: {count: 1100, interval: 100ms}}", "far", "");
    let refused = refusal(&paused).unwrap();
    assert!(
        refused
            .starts_with("cannot end within timeouts.trial and the duration of the workload, 3 min 50 s: "),
        "{refused}"
    );
    assert!(
        refused.contains("to more than 2 min 11.9 s"),
        "the pauses are granted: {refused}"
    );

    let upload = |size: &str| {
        let workload = format!("{{bandwidth: {{sizes: [{size}], directions: [upload]}}}}");
        refusal(&document(&workload, "slow", ""))
    };
    assert_eq!(upload("120M"), None);
    assert!(upload("121M").unwrap().contains("takes at least 2 min 1 s"));
}

#[test]
fn warm_up_takes_time_and_iterations_after_the_first_interim_check_may_not() {
    let workload = "{bandwidth: {duration: 3s, directions: [upload, download]}}";
    let all = least_of(workload, "iterations: 10\nwarmup: 2");
    assert_eq!(all.to_string(), "takes at least 1 min 12 s (24 trials)");

    let interim_checks = "stacks: [{name: a, stack: raw}, {name: b, stack: raw}]\nmatrix: {clients: [a], servers: [a]}\n\
                 compare: [{baseline: a, candidate: b}]\nwarmup: 1\niterations: 10\nmaxIterations: 40\n\
                 timeouts: {run: 4m}";
    let document = format!("workload: {workload}\n{interim_checks}");
    assert_eq!(refusal(&document), None, "it may end in time");
    let checked = plan(&document);
    let cells = checked.cells.len();
    let least = checked.least_time();
    assert_eq!(least.trials, cells * 11);
    assert_eq!(least.time, Duration::from_secs(3 * 11) * cells as u32);
    assert_eq!(least.of_trials(), format!("first {} trials", cells * 11));
}

#[test]
fn a_run_that_cannot_end_in_its_time_is_refused() {
    let document = |run: &str| {
        format!(
            "workload: {{echo: {{duration: 60s, loads: [{{connections: 10, streamsPerConnection: 100}}, \
             {{preset: published-effective}}]}}}}\nmatrix: {{transports: [tcp, quic-v1]}}\ntimeouts: {{run: {run}}}"
        )
    };
    assert_eq!(
        refusal(&document("1h")).unwrap(),
        "cannot end within timeouts.run, 1 h: its 198 trials take at least 3 h 18 min; raise timeouts.run, or \
         measure less (fewer iterations, shorter durations)"
    );
    assert_eq!(refusal(&document("198m")), None);
    let one = "workload: {handshakes: {duration: 2s}}\nmatrix: {clients: [raw], servers: [raw]}\n\
               iterations: 1\nwarmup: 0\ntimeouts: {run: 1s}";
    let refused = refusal(one).unwrap();
    assert!(
        refused.contains("1 s: its 1 trial takes at least 2 s;"),
        "{refused}"
    );
}

#[test]
fn a_load_that_ends_before_its_first_answer_is_refused() {
    let refused = |workload: &str, network: &str| {
        refusal(&format!(
            "workload: {workload}\nnetworks: [{{name: far, delay: 100ms}}]\n\
             matrix: {{clients: [libp2p], servers: [libp2p], networks: [{network}]}}"
        ))
    };
    let transfer = |duration: &str, rest: &str| format!("{{bandwidth: {{duration: {duration}, {rest}}}}}");
    let upload = |duration: &str| transfer(duration, "directions: [upload]");
    assert_eq!(
        refused(&upload("200ms"), "far").unwrap(),
        "workload.bandwidth.duration is too short: a round trip on network far takes 200 ms, and the load lasts 200 ms"
    );
    assert_eq!(refused(&upload("201ms"), "far"), None);
    let both = |duration: &str| transfer(duration, "directions: [upload, download]");
    assert_eq!(
        refused(&both("400ms"), "far").unwrap(),
        "workload.bandwidth.duration is too short: a download on network far has only its first burst of bytes until \
         2 round trips are over, which takes 400 ms, and the load lasts 400 ms"
    );
    assert_eq!(refused(&both("401ms"), "far"), None);
    assert_eq!(refused(&both("10ms"), "none"), None);
    // The published tools count from the request on.
    let compat = transfer("201ms", "directions: [download], timing: compat");
    assert_eq!(refused(&compat, "far"), None);
    let echo = "{echo: {loads: [{connections: 1, streamsPerConnection: 1}], duration: 150ms}}";
    let of_echo = refused(echo, "far").unwrap();
    assert!(
        of_echo.starts_with("workload.echo.duration is too short"),
        "{of_echo}"
    );
    // They end with what was in progress.
    assert_eq!(refused("{handshakes: {duration: 10ms}}", "far"), None);
    assert_eq!(refused("{messages: {duration: 10ms}}", "far"), None);
}

#[test]
fn an_echo_whose_lines_all_miss_their_deadline_is_refused() {
    let refused = |figures: &str, deadline: &str| {
        refusal(&format!(
            "workload: {{echo: {{loads: [{{connections: 1, streamsPerConnection: 1}}], pause: 50ms, duration: 10s, \
             deadline: {deadline}}}}}\nnetworks: [{{name: far, {figures}}}]\n\
             matrix: {{clients: [libp2p], servers: [libp2p], networks: [far]}}"
        ))
    };
    assert_eq!(
        refused("delay: 400ms", "800ms").unwrap(),
        "workload.echo.deadline is too short: a round trip on network far takes 800 ms or more, and a line may take \
         800 ms"
    );
    assert_eq!(refused("delay: 400ms", "801ms"), None);
    // Some packets are faster.
    assert_eq!(refused("delay: 400ms, jitter: 100ms", "700ms"), None);
    assert!(
        refused("delay: 400ms, jitter: 100ms", "600ms").is_some_and(|why| why.contains("600 ms or more"))
    );
}

#[test]
fn limits_of_a_relay_with_which_no_transfer_ends_are_refused() {
    let refused = |workload: &str, stack: &str| {
        refusal(&format!(
            "workload: {workload}\n\
             matrix: {{clients: [{stack}], servers: [{stack}], transports: [tcp], rawReference: false}}"
        ))
    };
    let relay = |paths: &str, limits: &str| {
        format!("{{relay: {{sizes: [1Ki, 10M], paths: [{paths}], limits: {{{limits}}}}}}}")
    };
    let stress =
        |limits: &str| format!("{{relayStress: {{sinks: [2], transferBytes: 1M, limits: {{{limits}}}}}}}");
    assert_eq!(
        refused(&relay("relayed", "circuitBytes: 10M"), "libp2p").unwrap(),
        "workload.relay.limits.circuitBytes is too small: a circuit ends after 10M, and a transfer of \
         workload.relay.sizes has 10M, to which connecting adds; raise circuitBytes, or lower sizes"
    );
    assert_eq!(
        refused(&stress("circuitBytes: 1Ki"), "libp2p").unwrap(),
        "workload.relayStress.limits.circuitBytes is too small: a circuit ends after 1Ki, and a transfer of \
         workload.relayStress.transferBytes has 1M, to which connecting adds; raise circuitBytes, or lower \
         transferBytes"
    );
    assert_eq!(refused(&relay("relayed", "circuitBytes: 11M"), "libp2p"), None);
    assert_eq!(refused(&stress("circuitBytes: 2M, circuits: 1"), "libp2p"), None);
    assert_eq!(
        refused(&relay("relayed", "circuits: 0"), "libp2p").unwrap(),
        "workload.relay.limits.circuits is 0, so the relay refuses every circuit and nothing is transferred; raise it, \
         or leave it out"
    );
    for (limit, what) in [("reservations", "reservation"), ("circuitsPerPeer", "circuit")] {
        let why = refused(&stress(&format!("{limit}: 0")), "libp2p").unwrap();
        let expected =
            format!("workload.relayStress.limits.{limit} is 0, so the relay refuses every {what} ");
        assert!(why.starts_with(&expected), "{why}");
    }
    // No relay has these limits.
    for limits in ["circuitBytes: 1Ki", "circuits: 0"] {
        assert_eq!(refused(&relay("direct", limits), "libp2p"), None, "{limits}");
        assert_eq!(refused(&relay("relayed", limits), "raw"), None, "{limits}");
    }
}

#[test]
fn a_network_that_is_too_far_for_its_stacks_is_refused() {
    assert_eq!(
        network("delay: 2500ms", "litep2p", "tcp").unwrap(),
        "network far is too far for litep2p over tcp: a dial needs 3 round trips of 5 s, and stacks give up after 10 s; \
         lower delay"
    );
    for (stack, transport, possible, impossible) in [
        ("litep2p", "tcp", "1666ms", "1667ms"),
        ("litep2p", "ws", "999ms", "1s"),
        ("libp2p", "ws", "1666ms", "1667ms"),
        ("libp2p", "tcp", "2499ms", "2500ms"),
        ("commonware", "tcp", "2499ms", "2500ms"),
        ("libp2p", "webrtc-direct", "833ms", "834ms"),
        ("raw", "quic-v1", "4999ms", "5s"),
    ] {
        let refused = |delay: &str| network(&format!("delay: {delay}"), stack, transport);
        assert_eq!(refused(possible), None, "{stack} {transport}");
        assert!(refused(impossible).is_some(), "{stack} {transport}");
    }
    let one_way = |delay: &str| network(&format!("delay: {delay}, direction: toClient"), "raw", "tcp");
    assert_eq!(one_way("9999ms"), None);
    assert!(one_way("10s").is_some_and(|why| why.contains("a dial needs a round trip of 10 s")));
    let by_default = "delay: 1s, relay: {client: {delay: 60s}, server: {delay: 60s}}";
    assert_eq!(network(by_default, "libp2p", "tcp"), None, "no relay is used");
}

#[test]
fn both_links_of_a_relay_are_on_the_way() {
    let relayed = |delay: &str| {
        refusal(&format!(
            "workload: {{relay: {{sizes: [1Ki], paths: [relayed]}}}}\n\
             networks: [{{name: far, relay: {{client: {{delay: {delay}}}, server: {{delay: 1s}}}}}}]\n\
             matrix: {{clients: [libp2p], servers: [libp2p], networks: [far], rawReference: false}}"
        ))
    };
    assert_eq!(relayed("1499ms"), None);
    assert!(relayed("1500ms").is_some_and(|why| why.contains("2 round trips of 5 s")));
}

#[test]
fn a_network_that_delivers_nothing_is_refused() {
    for figures in [
        "loss: 100%",
        "toClient: {loss: 100%}",
        "corrupt: 100%",
        "bursts: {enter: 1%, leave: 0%}",
        "bursts: {enter: 1%, leave: 10%, lossInGood: 100%}",
        "relay: {client: {loss: 100%}}",
    ] {
        assert_eq!(
            network(figures, "libp2p", "tcp").unwrap(),
            "network far delivers no packet in at least one direction, so nothing connects over it; lower loss, bursts \
             or corrupt"
        );
    }
    for figures in [
        "loss: 99%",
        "duplicate: 100%",
        "bursts: {enter: 0%, leave: 0%}",
        "bursts: {enter: 1%, leave: 0%, lossInBad: 50%}",
    ] {
        assert_eq!(network(figures, "libp2p", "tcp"), None, "{figures}");
    }
}
