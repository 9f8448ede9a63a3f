//! What perfrun writes for its users: first documents.

use std::fs;

use crate::perfrun::Scratch;

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
