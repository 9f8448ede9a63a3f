//! `perfrun plan`, `validate`, `report` and the help texts.

use std::fs;

use perfrun_contract::plan::Plan;
use serde_json::json;

use crate::{
    document::{self, Document},
    kept,
    perfrun::{Mode, Running, Scratch, entries, parsed, results},
};

fn sweep() -> Document {
    document::run("sweep")
        .default_stacks()
        .with("workload", json!({ "bandwidth": { "sizes": ["1Ki", "1Mi"] } }))
        .with("iterations", json!(3))
        .with("warmup", json!(1))
}

#[test]
fn a_plan_lists_nodes_cells_and_the_reason_of_each_skipped_cell() {
    let scratch = Scratch::new();
    scratch.write("sweep.yaml", &sweep().text());
    let short = scratch.call(&["plan", "sweep.yaml"]).expect(0);
    for line in [
        "  44 cells, 176 trials: upload-1Ki, upload-1Mi, download-1Ki, download-1Mi; each 3 × measured, 1 × warm-up",
        "    raw, libp2p → litep2p, litep2p → libp2p, litep2p → litep2p: tcp, quic-v1",
        "    libp2p → libp2p: tcp, tcp-tls, quic-v1",
        "  12 cells skipped:",
        "    libp2p.litep2p.tcp-tls.upload-1Ki and 11 more: litep2p secures TCP by Noise only, it has no TLS",
    ] {
        assert!(
            short.stdout.lines().any(|found| found == line),
            "{line:?}: {short}"
        );
    }
    let excluded = sweep().with("workload", json!({"ping": {"count": 10}}));
    let matrix = json!({"clients": ["litep2p", "libp2p"], "servers": ["litep2p", "libp2p"], "transports": ["tcp", "ws"], "networks": ["lan", "satellite"], "exclude": [{"network": "lan", "transport": "ws"}]});
    scratch.write("excluded.yaml", &excluded.with("matrix", matrix).text());
    let part = scratch.call(&["plan", "excluded.yaml"]).expect(0);
    assert!(
        part.stdout
            .contains("; lan, satellite (not all of these combinations); each "),
        "{part}"
    );
    fs::remove_file(scratch.path().join("excluded.yaml")).unwrap();
    let plan = scratch.call(&["plan", "sweep.yaml", "--all"]).expect(0);
    assert_eq!(plan.stderr, "");
    for line in [
        "perfrun/sweep",
        "  nodes: server-0, client-0",
        "  44 cells, 176 trials:",
        "    raw.raw.tcp.upload-1Ki                3 × measured, 1 × warm-up",
        "    litep2p.litep2p.quic-v1.download-1Mi  3 × measured, 1 × warm-up",
        "  12 cells skipped:",
    ] {
        assert!(plan.stdout.lines().any(|found| found == line), "{line:?}: {plan}");
    }
    assert!(
        plan.stdout
            .contains("litep2p.libp2p.tcp-tls.upload-1Ki  litep2p secures TCP by Noise only"),
        "{plan}"
    );
    assert_eq!(entries(scratch.path()).len(), 1, "a plan leaves nothing behind");
}

#[test]
fn a_plan_as_json_is_the_one_that_is_run() {
    let scratch = Scratch::new();
    let document = document::run("short").with("iterations", json!(2));
    scratch.write("both.yaml", &(document.text() + &sweep().text()));
    let printed = scratch
        .call(&["plan", "both.yaml", "--json", "--seed", "7"])
        .expect(0)
        .stdout;
    let plans: Vec<Plan> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(plans.len(), 2);
    assert_eq!(plans[1].cells.len(), 44);
    scratch
        .run(Mode::Loopback, &document, &["--quiet", "--seed", "7"])
        .expect(0);
    assert_eq!(results(&scratch.only_run()).plan, plans[0]);
}

#[test]
fn a_plan_of_standard_input_is_shown() {
    let scratch = Scratch::new();
    let command = scratch.perfrun(&["plan", "-"]);
    let plan = Running::start_with_input(command, &document::run("piped").text())
        .ended()
        .expect(0);
    assert!(plan.stdout.starts_with("perfrun/piped\n"), "{plan}");
}

#[test]
fn validate_checks_every_file() {
    let scratch = Scratch::new();
    scratch.write("one.yaml", &document::run("one").text());
    scratch.write(
        "two.yaml",
        &(document::run("two").text() + &document::run("three").text()),
    );
    let good = scratch.call(&["validate", "one.yaml", "two.yaml"]).expect(0);
    let time = |name: &str| format!("  perfrun/{name} has a duration that is not known before the run\n");
    let [one, two, three] = ["one", "two", "three"].map(time);
    assert_eq!(
        good.stdout,
        format!("one.yaml: 1 valid document\n{one}two.yaml: 2 valid documents\n{two}{three}")
    );
    assert_eq!(good.stderr, "");

    scratch.write(
        "bad.yaml",
        &document::run("bad").with("iterations", json!(0)).text(),
    );
    let bad = scratch
        .call(&["validate", "bad.yaml", "one.yaml", "none.yaml"])
        .expect(1);
    assert_eq!(bad.stdout, format!("one.yaml: 1 valid document\n{one}"));
    assert!(
        bad.stderr
            .contains("perfrun: bad.yaml: perfrun/bad is invalid:\n  - spec.iterations: "),
        "{bad}"
    );
    assert!(
        bad.stderr
            .contains("perfrun: failed to read none.yaml: No such file"),
        "{bad}"
    );

    let command = scratch.perfrun(&["validate", "-"]);
    let piped = Running::start_with_input(command, &document::run("piped").text())
        .ended()
        .expect(0);
    let time = time("piped");
    assert_eq!(piped.stdout, format!("standard input: 1 valid document\n{time}"));
}

#[test]
fn validate_checks_every_file_of_a_folder_and_none_below_it() {
    let scratch = Scratch::new();
    // A folder is left out whatever its name is.
    for folder in ["kept/below.yaml", "empty"] {
        fs::create_dir_all(scratch.path().join(folder)).unwrap();
    }
    for file in ["b.yaml", "a.yml", "c.json"] {
        scratch.write(&format!("kept/{file}"), &document::run(&file[..1]).text());
    }
    scratch.write("kept/README.md", "Not a document.\n");
    scratch.write("kept/below.yaml/bad.yaml", "a: [\n");
    let valid = |file: &str| {
        let time = "has a duration that is not known before the run";
        format!("kept/{file}: 1 valid document\n  perfrun/{} {time}\n", &file[..1])
    };
    let good = scratch.call(&["validate", "kept"]).expect(0);
    assert_eq!(good.stdout, ["a.yml", "b.yaml", "c.json"].map(valid).concat());
    assert_eq!(good.stderr, "");

    scratch.write(
        "kept/b.yaml",
        &document::run("bad").with("iterations", json!(0)).text(),
    );
    let bad = scratch.call(&["validate", "empty", "kept"]).expect(1);
    assert_eq!(bad.stdout, ["a.yml", "c.json"].map(valid).concat());
    for words in [
        "perfrun: empty has no .yaml, .yml or .json file: ",
        "perfrun: kept/b.yaml: perfrun/bad is invalid:\n  - spec.iterations: ",
    ] {
        assert!(bad.stderr.contains(words), "{bad}");
    }
}

#[test]
fn a_run_announces_how_long_it_takes_at_least() {
    let scratch = Scratch::new();
    let document = document::steady("timed", 60, 2);
    scratch.write("timed.yaml", &document.text());
    let least = "takes at least 0.1 s (2 trials)";
    let valid = scratch.call(&["validate", "timed.yaml"]).expect(0);
    assert_eq!(
        valid.stdout,
        format!("timed.yaml: 1 valid document\n  perfrun/timed {least}\n")
    );
    let plan = scratch.call(&["plan", "timed.yaml"]).expect(0);
    assert!(plan.stdout.contains(&format!("\n  {least}\n")), "{plan}");
    let ended = scratch.run(Mode::Loopback, &document, &[]).expect(0);
    assert!(ended.stderr.contains(&format!("\n{least}\n")), "{ended}");

    let unknown = scratch
        .run(Mode::Loopback, &document::run("unknown"), &[])
        .expect(0);
    assert!(!unknown.stderr.contains("at least"), "{unknown}");
}

#[test]
fn validate_checks_the_times_and_the_template_of_a_schedule() {
    let scratch = Scratch::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/nightly.yaml");
    let text = fs::read_to_string(example).unwrap();
    scratch.write("good.yaml", &text);
    scratch.write("zone.yaml", &text.replace("Europe/Berlin", "Mars/Olympus"));
    scratch.write("large.yaml", &text.replace("[tcp, quic-v1]", "[webtransport]"));
    let checked = scratch
        .call(&["validate", "good.yaml", "zone.yaml", "large.yaml"])
        .expect(1);
    assert_eq!(
        checked.stdout,
        "good.yaml: 1 valid document\n  perfschedule/nightly takes at least 2 min 44 s (328 trials)\n"
    );
    for words in [
        "zone.yaml: perfschedule/nightly: spec.timeZone \"Mars/Olympus\" is not in the IANA database",
        "large.yaml: perfschedule/nightly: ",
    ] {
        assert!(checked.stderr.contains(words), "{checked}");
    }
    let run = scratch.call(&["run", "good.yaml"]).expect(1);
    assert!(
        run.stderr
            .contains("it is a PerfSchedule, which a cluster runs: apply it with `kubectl apply -f FILE`"),
        "{run}"
    );
}

#[test]
fn a_report_shows_kept_results_in_every_form() {
    let scratch = Scratch::new();
    let document = sweep().with("iterations", json!(1)).with("warmup", json!(0));
    let ran = scratch.run(Mode::Loopback, &document, &["--quiet"]).expect(0);
    let kept = scratch.only_run();
    let folder = kept.strip_prefix(scratch.path()).unwrap().to_str().unwrap();
    let report = |args: &[&str]| {
        let ended = scratch.call(&[&["report", folder], args].concat()).expect(0);
        assert_eq!(ended.stderr, "");
        ended.stdout
    };
    let file = |name: &str| fs::read_to_string(kept.join(name)).unwrap();
    let page = format!(" · {folder}/report.html · exit 0\n");
    let table = ran
        .stdout
        .strip_suffix(&page)
        .unwrap_or_else(|| panic!("{page}: {ran}"));
    assert_eq!(report(&[]).trim_end(), table, "as the run showed it");
    assert_eq!(report(&["-o", "md"]), file("report.md"));
    assert_eq!(report(&["--output", "csv"]), file("samples.csv"));
    assert_eq!(parsed(&report(&["-o", "json"])), parsed(&file("results.json")));

    let by_file = scratch
        .call(&["report", &format!("{folder}/results.json"), "--svg", "plots"])
        .expect(0);
    let plots = entries(&scratch.path().join("plots"));
    assert!(!plots.is_empty());
    assert_eq!(by_file.stderr.lines().count(), plots.len(), "{by_file}");
    for plot in plots {
        let svg = fs::read_to_string(&plot).unwrap();
        assert!(svg.trim_end().ends_with("</svg>"), "{}", plot.display());
    }
}

#[test]
fn a_report_may_show_some_cells() {
    let scratch = Scratch::new();
    kept::run(&kept::uploads(), 0, |_| 1.0).keep(&scratch, "uploads");
    let report = |args: &[&str]| scratch.call(&[&["report", "uploads"], args].concat());
    let whole = report(&["--output", "md"]).expect(0).stdout;
    assert!(
        whole.contains("| tcp |") && whole.contains("| quic-v1 |"),
        "{whole}"
    );

    let some = report(&["--output", "md", "--where", "transport=quic-v1,client=litep2p"]);
    let some = some.expect(0).stdout;
    assert!(
        !some.contains("| tcp |") && some.contains("| quic-v1 |"),
        "{some}"
    );
    let both = ["transport=quic-v1", "transport=tcp"].map(|cells| ["--where", cells]);
    let both = report(&[&["--output", "md"], both.as_flattened()].concat());
    assert_eq!(both.expect(0).stdout, whole);

    let sentence = "uploads has no cell that --where transport=ws selects: the first of its 2 cells is \
                    client=litep2p,server=litep2p,transport=tcp,network=none,ipFamily=IPv4,load=";
    for others in [&["--where", "transport=tcp"][..], &[]] {
        let none = report(&[others, &["--where", "transport=ws"]].concat()).expect(2);
        assert!(none.stderr.contains(sentence), "{none}");
    }
    let findings = report(&["--where", "transport=tcp", "--output", "junit"]).expect(2);
    assert!(
        findings.stderr.contains("findings are of the whole run"),
        "{findings}"
    );
}

#[test]
fn a_report_of_what_is_not_results_is_refused() {
    let scratch = Scratch::new();
    scratch.write("document.yaml", &document::run("no-results").text());
    scratch.write("old.json", "{}");
    for (argument, sentence) in [
        (
            "nowhere",
            "unable to read nowhere: name the results folder of a run, or its results.json",
        ),
        (
            ".",
            "unable to read .: it has no results.json: name the results folder of a run",
        ),
        (
            "document.yaml",
            "unable to read document.yaml as results of schema version 2: it is not JSON",
        ),
        (
            "old.json",
            "unable to read old.json as results of schema version 2: something else wrote it",
        ),
    ] {
        let ended = scratch.call(&["report", argument]).expect(1);
        assert!(ended.stderr.contains(sentence), "{ended}");
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn the_help_lists_the_exit_statuses() {
    let scratch = Scratch::new();
    for args in [&["--help"][..], &["run", "--help"]] {
        let help = scratch.call(args).expect(0).stdout;
        assert!(help.contains("Exit status:"), "{help}");
        for status in ["  0  ", "  1  ", "  2  ", "  130  "] {
            assert!(
                help.lines().any(|line| line.starts_with(status)),
                "{status:?}: {help}"
            );
        }
    }
}
