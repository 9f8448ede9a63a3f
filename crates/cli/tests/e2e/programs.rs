//! Stack variants with their own programs and settings, and programs that are not nodes.

use std::{fs, time::Instant};

use perfrun_contract::run::{NodeProgram, RunState};
use serde_json::json;

use crate::{
    document::{self, Document},
    perfrun::{Mode, Running, Scratch, TEST_TIMEOUT, entries, node_program, results},
};

fn with_variant(name: &str, variant: serde_json::Value) -> Document {
    document::run(name).with("stacks", json!([variant])).with(
        "matrix",
        json!({ "clients": ["raw", "next"], "servers": ["raw", "next"], "transports": ["tcp"] }),
    )
}

#[test]
fn a_variant_runs_its_own_program_with_its_own_settings() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let script = format!(
            "echo \"the colour is $COLOUR\" >&2; exec {} \"$@\"",
            node_program().display()
        );
        let program = scratch.script("next-node", &script);
        let given = format!("next={}", program.display());
        let variant = json!({ "name": "next", "stack": "raw", "image": "example.org/next", "env": { "COLOUR": "blue" } });
        let document = with_variant("variant", variant);
        scratch.run(mode, &document, &["--node", &given]).expect(0);
        let folder = scratch.only_run();
        let results = results(&folder);
        let cells: Vec<&str> = results.plan.cells.iter().map(|cell| cell.id.as_str()).collect();
        assert_eq!(
            cells,
            [
                "raw.raw.tcp.ping-1",
                "raw.next.tcp.ping-1",
                "next.raw.tcp.ping-1",
                "next.next.tcp.ping-1"
            ]
        );
        let named = NodeProgram {
            variant: Some("next".to_owned()),
            path: program.canonicalize().unwrap().to_str().unwrap().to_owned(),
        };
        assert_eq!(results.environment.programs, [named]);
        let nodes: Vec<&String> = results.environment.nodes.keys().collect();
        assert_eq!(nodes, ["client-0", "client-0-next", "server-0", "server-0-next"]);
        let logs = entries(&folder.join("logs"));
        assert_eq!(logs.len(), 2, "of those that said something: {logs:?}");
        for log in logs {
            assert!(log.to_str().unwrap().ends_with("-0-next.log"));
            assert_eq!(fs::read_to_string(log).unwrap(), "the colour is blue\n");
        }
    }
}

#[test]
fn a_resumed_run_uses_the_programs_it_started_with() {
    let scratch = Scratch::new();
    let script = format!("echo started >&2; exec {} \"$@\"", node_program().display());
    let program = scratch.script("next-node", &script);
    let given = format!("next={}", program.display());
    // An image: without a program it is refused.
    let variant = json!({ "name": "next", "stack": "raw", "image": "example.org/next" });
    let document = document::steady("remembered", 300, 4)
        .with("stacks", json!([variant]))
        .with(
            "matrix",
            json!({ "clients": ["next"], "servers": ["next"], "transports": ["tcp"], "rawReference": false }),
        );
    Running::start(scratch.command(Mode::Loopback, &document, &["--node", &given])).interrupt_after("[1/4]");
    let folder = scratch.only_run();
    let before = results(&folder).environment.programs;
    assert_eq!(before.len(), 1);

    let moved = scratch.path().join("moved-node");
    fs::rename(&program, &moved).unwrap();
    let resume = ["run", "--resume", folder.to_str().unwrap()];
    let ended = scratch.call(&resume).expect(1);
    let missing = format!("unable to run --node next={} as a node", program.display());
    assert!(ended.stderr.contains(&missing), "{ended}");

    let given = format!("next={}", moved.display());
    Running::start(scratch.perfrun(&[&resume[..], &["--node", &given]].concat())).interrupt_after("[2/4]");
    let ended = scratch.resume().expect(0);
    let moved_line = format!(
        "perfrun/remembered: stack next runs {}\n",
        moved.canonicalize().unwrap().display()
    );
    assert!(ended.stderr.starts_with(&moved_line), "{ended}");
    let results = results(&folder);
    assert_eq!(results.state, RunState::Complete);
    let [now] = &results.environment.programs[..] else {
        panic!("{:?}", results.environment.programs)
    };
    assert_eq!(now.path, moved.canonicalize().unwrap().to_str().unwrap());
    let log = fs::read_to_string(folder.join("logs/client-0-next.log")).unwrap();
    assert_eq!(log, "started\n".repeat(3));
}

#[test]
fn programs_that_a_document_names_are_printed_before_the_first_run() {
    let named = |document: Document, scratch: &Scratch| {
        let script = format!("exec {} \"$@\"", node_program().display());
        let program = scratch.script("own-node", &script);
        let variant = json!({
            "name": "next", "stack": "raw", "command": [program], "env": { "COLOUR": "blue\nred" },
        });
        let document = document.with("stacks", json!([variant])).with(
            "matrix",
            json!({ "clients": ["next"], "servers": ["next"], "transports": ["tcp"], "rawReference": false }),
        );
        let line = |program: &str| format!("perfrun/named: stack next runs {program} with COLOUR=blue red\n");
        (document, line(program.to_str().unwrap()), line("its program"))
    };
    let scratch = Scratch::new();
    let (document, line, without_program) = named(document::run("named"), &scratch);
    let ended = scratch.run(Mode::Loopback, &document, &["--quiet"]).expect(0);
    assert!(ended.stderr.starts_with(&line), "{ended}");
    let given = format!("next={}", node_program().display());
    let ended = scratch
        .run(Mode::Loopback, &document, &["--quiet", "--node", &given])
        .expect(0);
    assert!(ended.stderr.starts_with(&without_program), "{ended}");

    let scratch = Scratch::new();
    let (document, line, _) = named(document::steady("named", 300, 4), &scratch);
    Running::start(scratch.command(Mode::Loopback, &document, &[])).interrupt_after("[1/4]");
    let ended = scratch.resume().expect(0);
    assert!(ended.stderr.starts_with(&line), "{ended}");
}

#[test]
fn a_program_that_ends_early_is_reported_with_the_end_of_its_log() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let program = scratch.script("broken", "echo 'libfoo.so.1 is missing' >&2; exit 3");
        let program = format!("next={}", program.display());
        let document = with_variant("broken", json!({ "name": "next", "stack": "raw" }));
        let begun = Instant::now();
        let ended = scratch.run(mode, &document, &["--node", &program]).expect(1);
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "not after timeouts.provision, 5 minutes"
        );
        let told = ended
            .stderr
            .contains("perfrun: perfrun/broken failed: server-0-next ended before it was ready")
            || ended
                .stderr
                .contains("perfrun: perfrun/broken failed: client-0-next ended before it was ready");
        assert!(told, "{ended}");
        assert!(
            ended
                .stderr
                .contains("exit status: 3; the end of its log:\n  libfoo.so.1 is missing"),
            "{ended}"
        );
        let folder = scratch.only_run();
        let shown = folder.strip_prefix(scratch.path()).unwrap().display();
        let command = format!(" run --resume {shown} --node next=PATH\n");
        assert!(ended.stdout.contains(&command), "{ended}");
        let results = results(&folder);
        assert_eq!(results.state, RunState::Failed);
        assert!(results.reason.unwrap().contains("libfoo.so.1 is missing"));
        assert_eq!(results.trials, []);
    }
}

#[test]
fn a_program_does_not_get_the_digest_of_another_one() {
    let scratch = Scratch::new();
    let told = "echo \"digest: ${PERFRUN_PROGRAM_SHA256-none}\" >&2; exit 3";
    let program = scratch.script("asked", told);
    let node = ["--node", program.to_str().unwrap()];
    let mut command = scratch.command(Mode::Loopback, &document::run("asked"), &node);
    command.env("PERFRUN_PROGRAM_SHA256", "ab".repeat(32));
    let ended = Running::start(command).ended().expect(1);
    assert!(ended.stderr.contains("digest: none"), "{ended}");
}

#[test]
fn a_program_that_never_answers_is_given_up_after_timeouts_provision() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let program = scratch.script("mute", "echo 'thinking' >&2; exec sleep 1000");
        let document = document::run("mute").with("timeouts", json!({ "provision": "1s" }));
        let ended = scratch
            .run(mode, &document, &["--node", program.to_str().unwrap()])
            .expect(1);
        assert!(
            ended
                .stderr
                .contains("was not ready within timeouts.provision, 1s; the end of its log:\n  thinking"),
            "{ended}"
        );
        assert_eq!(results(&scratch.only_run()).state, RunState::Failed);
        // A resumed run has the same limit.
        assert!(!ended.stdout.contains("--resume"), "{ended}");
    }
}
