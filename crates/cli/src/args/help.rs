//! What `--help` has beside the options: groups of commands, and examples.

use clap::Command;

/// The commands of perfrun by what they are for, those that few need at the end.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["run", "new", "plan", "validate", "doctor"]),
    ("Results", &["report", "compare", "history"]),
    ("Cluster", &["list", "watch", "get", "cancel", "logs"]),
    ("Nodes and links", &["link", "conformance", "describe"]),
    ("Shells", &["completions"]),
];

/// Command lines for each command, by its path. RUN is a folder that `perfrun run` has made.
const EXAMPLES: [(&str, &[&str]); 23] = [
    (
        "run",
        &[
            "perfrun run examples/quickstart.yaml",
            "perfrun run examples/quickstart.yaml --wait-quiet 60s --all",
            "perfrun run examples/candidate.yaml --candidate ../next/target/release/perfrun-node",
            "perfrun run examples/quickstart.yaml --aa    # what this machine cannot tell apart",
            "perfrun run --resume results/RUN",
            "perfrun run examples/quickstart.yaml --cluster --namespace lab",
        ],
    ),
    (
        "new",
        &["perfrun new bandwidth", "perfrun new ping --output my.yaml"],
    ),
    (
        "plan",
        &[
            "perfrun plan examples/wan-matrix.yaml",
            "perfrun plan examples/wan-matrix.yaml --all",
        ],
    ),
    (
        "validate",
        &[
            "perfrun validate examples/quickstart.yaml examples/nightly.yaml",
            "perfrun validate examples",
        ],
    ),
    (
        "doctor",
        &[
            "perfrun doctor    # before the first run",
            "perfrun doctor --json",
        ],
    ),
    (
        "report",
        &[
            "perfrun report results/RUN",
            "perfrun report results/RUN --all",
            "perfrun report results/RUN --where transport=tcp,client=libp2p",
            "perfrun report results/RUN --output md",
            "perfrun report results/RUN --svg plots",
        ],
    ),
    (
        "compare",
        &[
            "perfrun compare results/RUN",
            "perfrun compare results/RUN-1 results/RUN-2",
            "perfrun compare --base main --candidate next    # folders of at least 6 runs each",
            "perfrun compare --history results results/RUN",
        ],
    ),
    ("history", &["perfrun history results"]),
    ("list", &["perfrun list --all-namespaces"]),
    ("watch", &["perfrun watch quickstart --namespace lab"]),
    ("get", &["perfrun get results quickstart"]),
    (
        "get results",
        &[
            "perfrun get results quickstart --namespace lab",
            "perfrun get results quickstart --output json",
        ],
    ),
    ("cancel", &["perfrun cancel quickstart"]),
    (
        "logs",
        &[
            "perfrun logs quickstart --follow",
            "perfrun logs quickstart --node client-0",
        ],
    ),
    (
        "link",
        &[
            "perfrun link set --netns a --to 10.0.0.2 --delay 25ms --rate 100Mbit",
            "perfrun link probe --netns a --to-netns b --to 10.0.0.2",
            "perfrun link clear --netns a",
        ],
    ),
    (
        "link set",
        &["perfrun link set --netns a --to 10.0.0.2 --delay 25ms --loss 1% --rate 100Mbit"],
    ),
    ("link show", &["perfrun link show --netns a"]),
    (
        "link probe",
        &[
            "perfrun link probe --netns a --to-netns b --to 10.0.0.2",
            "perfrun link probe --netns a --to-netns b --to 10.0.0.2 --forward delay=25ms,loss=1%",
        ],
    ),
    ("link clear", &["perfrun link clear --netns a"]),
    (
        "conformance",
        &[
            "perfrun conformance --node target/release/perfrun-node",
            "perfrun conformance --image registry.example/node:1 --namespace lab",
        ],
    ),
    ("describe", &["perfrun describe python3 node.py"]),
    ("completions", &["perfrun completions bash"]),
    ("man", &["perfrun man --output target/man"]),
];

/// The command line with its groups and examples, as `program` is called.
pub(super) fn explained(command: Command, program: &str) -> Command {
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        grouped(&command)
    );
    let command = command.help_template(template);
    EXAMPLES.into_iter().fold(command, |command, (path, examples)| {
        let names: Vec<&str> = path.split(' ').collect();
        let as_called = |line: &&str| format!("  {}\n", line.replacen("perfrun", program, 1));
        let examples: String = examples.iter().map(as_called).collect();
        with_examples(command, &names, &examples)
    })
}

fn with_examples(command: Command, path: &[&str], examples: &str) -> Command {
    if let Some((name, rest)) = path.split_first() {
        return command.mut_subcommand(name, |inner| with_examples(inner, rest, examples));
    }
    let notes = command.get_after_help().map(ToString::to_string);
    let notes = notes.map_or_else(String::new, |notes| format!("\n{notes}"));
    command.after_help(format!("Examples:\n{examples}{notes}"))
}

/// The list of commands, which clap has in one group only.
fn grouped(command: &Command) -> String {
    let mut lines = String::new();
    for (group, names) in GROUPS {
        lines += &format!("{group}:\n");
        for inner in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let aliases: Vec<&str> = inner.get_visible_aliases().collect();
            let aliases = match aliases.as_slice() {
                [] => String::new(),
                aliases => format!(" [alias: {}]", aliases.join(", ")),
            };
            lines += &format!("  {:<12} {about}{aliases}\n", inner.get_name());
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::FromArgMatches;
    use perfrun_api::planning::plan;

    use super::{
        super::{Cli, Command as Chosen},
        *,
    };
    use crate::documents;

    /// All commands without subcommands of their own, by their paths.
    fn leaves(command: &Command, path: &str) -> Vec<String> {
        let of = |inner: &Command| {
            let path = format!("{path} {}", inner.get_name());
            match inner.has_subcommands() {
                true => leaves(inner, &path),
                false => vec![path.trim().to_owned()],
            }
        };
        command.get_subcommands().flat_map(of).collect()
    }

    /// The words of a command line, without a comment.
    fn words(line: &str) -> Vec<&str> {
        line.split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect()
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::described("perfrun");
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let mut all: Vec<&str> = shown.map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let help = Cli::described("perfrun").render_long_help().to_string();
        assert!(
            help.contains("\nRun:\n  run          Run every PerfRun"),
            "{help}"
        );
        assert!(help.contains("[alias: ls]"), "{help}");
    }

    #[test]
    fn every_command_has_examples_that_it_accepts() {
        let command = Cli::described("perfrun");
        for path in leaves(&command, "") {
            assert!(EXAMPLES.iter().any(|(of, _)| *of == path), "{path}");
        }
        for (path, examples) in EXAMPLES {
            let help = help_of(path);
            for line in examples {
                let parsed = Cli::described("perfrun").try_get_matches_from(words(line));
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
                assert!(line.starts_with(&format!("perfrun {path} ")), "{path}: {line}");
                assert!(help.contains(&format!("\n  {line}")), "{help}");
            }
            assert!(help.contains("\nExamples:\n"), "{help}");
        }
    }

    /// What options change may be impossible in the document of an example.
    #[test]
    fn examples_of_run_can_be_planned() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (_, examples) = EXAMPLES.iter().find(|(path, _)| *path == "run").unwrap();
        for line in *examples {
            let matches = Cli::described("perfrun").get_matches_from(words(line));
            let Cli {
                command: Chosen::Run(args),
                ..
            } = Cli::from_arg_matches(&matches).unwrap()
            else {
                panic!("{line}")
            };
            let Some(file) = args.file else { continue };
            for run in documents::read(&root.join(file), &args.comparison).unwrap() {
                plan(&run.spec).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    fn help_of(path: &str) -> String {
        let mut command = Cli::described("perfrun");
        path.split(' ')
            .fold(&mut command, |command, name| {
                command.find_subcommand_mut(name).unwrap()
            })
            .render_long_help()
            .to_string()
    }

    /// Reads the command lines in the texts of options and notes: what is between back quotes, and is more
    /// than the name of a command.
    #[test]
    fn command_lines_in_texts_are_accepted() {
        let command = Cli::described("perfrun");
        let mut seen = 0;
        for path in leaves(&command, "") {
            let help = help_of(&path);
            let quoted = help.split('`').skip(1).step_by(2);
            for line in quoted.filter(|text| text.starts_with("perfrun ") && text.contains(" --")) {
                seen += 1;
                // What follows the option is named in the text around it.
                let line = match line.ends_with("--resume") {
                    true => format!("{line} results/RUN"),
                    false => line.to_owned(),
                };
                let parsed = Cli::described("perfrun").try_get_matches_from(words(&line));
                assert!(parsed.is_ok(), "{path}: {line}: {parsed:?}");
            }
        }
        assert!(seen >= 4, "{seen}");
    }

    #[test]
    fn examples_name_the_program_as_it_is_called() {
        let mut command = Cli::described("kubectl perfrun");
        let list = command.find_subcommand_mut("list").unwrap();
        let help = list.render_long_help().to_string();
        assert!(help.contains("  kubectl perfrun list --all-namespaces"), "{help}");
    }
}
