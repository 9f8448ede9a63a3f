//! What perfrun writes for its users: first documents, scripts for shells, and pages for `man`.

use std::{fs, process::Command};

use crate::perfrun::{Running, Scratch, entries};

#[test]
fn a_new_document_is_printed_or_written_and_says_what_to_do_next() {
    let scratch = Scratch::new();
    let printed = scratch.call(&["new", "ping"]).expect(0);
    assert_eq!(printed.stderr, "");
    assert!(
        printed.stdout.ends_with(
            "\n# Next: `perfrun plan FILE`, then `perfrun run FILE`, on a cluster with `--cluster`.\n"
        ),
        "{printed}"
    );

    let written = scratch.call(&["new", "ping", "--output", "my.yaml"]).expect(0);
    assert_eq!(written.stdout, "");
    assert!(
        written.stderr.starts_with("wrote my.yaml; next: ")
            && written.stderr.ends_with("perfrun plan my.yaml\n"),
        "{written}"
    );
    let text = fs::read_to_string(scratch.path().join("my.yaml")).unwrap();
    assert_eq!(text, printed.stdout.replace("FILE", "my.yaml"));
    scratch.call(&["validate", "my.yaml"]).expect(0);
    let plan = scratch.call(&["plan", "my.yaml"]).expect(0);
    assert!(plan.stdout.starts_with("perfrun/ping\n"), "{plan}");
}

/// Bash as it is when somebody has typed words and presses the tab key: the last word is not complete.
const COMPLETE: &str = r#"
source ./perfrun.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_perfrun "$1" "${@: -1}" "${@: -2:1}"
echo "${COMPREPLY[*]}"
"#;

#[test]
fn bash_completes_commands_options_and_workloads() {
    let scratch = Scratch::new();
    let script = scratch.call(&["completions", "bash"]).expect(0);
    scratch.write("perfrun.bash", &script.stdout);
    for (words, completed) in [
        ("perfrun ne", "new"),
        ("perfrun new pi", "ping"),
        ("perfrun run --wait", "--wait-quiet"),
        ("perfrun get resu", "results"),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", COMPLETE, "bash"])
            .args(words.split(' '))
            .current_dir(scratch.path());
        let ended = Running::start(bash).ended().expect(0);
        assert_eq!(ended.stdout.trim_end(), completed, "{words}: {ended}");
    }
}

#[test]
fn every_shell_has_a_script() {
    let scratch = Scratch::new();
    for shell in ["elvish", "fish", "powershell", "zsh"] {
        let script = scratch.call(&["completions", shell]).expect(0);
        assert_eq!(script.stderr, "");
        for word in ["perfrun", "wait-quiet", "validate"] {
            assert!(script.stdout.contains(word), "{word}: {script}");
        }
    }
    scratch.call(&["completions", "sh"]).expect(2);
}

#[test]
fn every_command_has_a_page_for_man() {
    let scratch = Scratch::new();
    // The second time, the pages are there.
    for _ in 0..2 {
        let written = scratch.call(&["man", "--output", "share/man1"]).expect(0);
        assert_eq!(written.stderr, "wrote a page for each command to share/man1\n");
    }
    let folder = scratch.path().join("share/man1");
    let pages = entries(&folder);
    let has = |name: &str| pages.contains(&folder.join(name));
    for name in [
        "perfrun.1",
        "perfrun-new.1",
        "perfrun-get-results.1",
        "perfrun-link-set.1",
    ] {
        assert!(has(name), "{name}: {pages:?}");
    }
    for name in ["perfrun-man.1", "perfrun-help.1", "perfrun-link-help.1"] {
        assert!(!has(name), "{name}");
    }
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        // Commands that only hold others say where the exit statuses are.
        for words in [".TH perfrun", ".SH NAME", ".SH SYNOPSIS", "xit status"] {
            assert!(text.contains(words), "{words}: {}: {text}", page.display());
        }
    }
}
