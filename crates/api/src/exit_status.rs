//! The exit statuses of every command of `perfrun`: its `--help` and `docs/reference/exit-statuses.md` show
//! them. They are in this crate because the generator of that page does not depend on the command line.

/// The command has done its work, and nothing is wrong with what it found.
pub const SUCCESS: u8 = 0;
/// The command failed, or the run did not complete. Errors have this status, too.
pub const INCOMPLETE: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// The results are not as expected.
pub const FAIL: u8 = 3;
/// The results cannot show whether they are as expected.
pub const INCONCLUSIVE: u8 = 4;
/// Stopped by Ctrl-C, as shells report it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// The exit statuses of a command.
#[derive(Clone, Copy, Debug)]
pub struct Statuses {
    /// The command without `perfrun`, e.g. `link set`; empty for all commands together.
    pub command: &'static str,
    /// Each status with its meaning, in ascending order, without that of an invalid command line.
    meanings: &'static [(u8, &'static str)],
    /// What to know about all of them.
    pub note: &'static str,
}

const STOPPED: (u8, &str) = (INTERRUPTED, "stopped by Ctrl-C, SIGTERM or SIGHUP");

/// Every command, in the order of `perfrun --help`.
pub const COMMANDS: [Statuses; 22] = [
    Statuses {
        command: "",
        meanings: &[
            (SUCCESS, "success: every trial completed, every document is valid"),
            (
                INCOMPLETE,
                "a trial, a run or a command failed, or a document, a run or results were refused: the message says why, and \
                 what to do",
            ),
            (FAIL, "something is worse, or an expectation does not hold"),
            (
                INCONCLUSIVE,
                "the results cannot show whether something is worse, or whether an expectation holds",
            ),
            (
                INTERRUPTED,
                "stopped by Ctrl-C, SIGTERM or SIGHUP; `perfrun run --resume` continues a run",
            ),
        ],
        note: "`perfrun COMMAND --help` says what they mean for a command.",
    },
    Statuses {
        command: "run",
        meanings: &[
            (
                SUCCESS,
                "every trial completed, possibly in a second attempt, and all expectations hold (`expect`, --max-regression)",
            ),
            (
                INCOMPLETE,
                "a trial or the run failed, the run was refused, or the machine was not quiet in time (--wait-quiet). \
                 With --cluster also if the run was cancelled or deleted. Remove the cause that the message names; \
                 --resume runs failed trials again",
            ),
            (FAIL, "every trial completed, and an expectation does not hold"),
            (
                INCONCLUSIVE,
                "every trial completed, and the trials cannot show whether an expectation holds",
            ),
            STOPPED,
        ],
        note: "With several documents, the worst status counts, in this order: 130, 1, 3, 4, 0.",
    },
    Statuses {
        command: "new",
        meanings: &[
            (SUCCESS, "the document was written"),
            (INCOMPLETE, "the file exists already, or cannot be written"),
        ],
        note: "",
    },
    Statuses {
        command: "doctor",
        meanings: &[
            (
                SUCCESS,
                "`perfrun run` works here, even if findings make its numbers less certain",
            ),
            (
                INCOMPLETE,
                "something that `perfrun run` needs is missing: the last line says whether an option avoids it",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "plan",
        meanings: &[
            (SUCCESS, "the plans were printed"),
            (
                INCOMPLETE,
                "a document cannot be read, is invalid or cannot be planned: correct what the message names",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "conformance",
        meanings: &[
            (SUCCESS, "no check failed: the node may take part in runs"),
            (
                INCOMPLETE,
                "a check failed, or the nodes could not be started: correct the node, its command or its image",
            ),
            (INTERRUPTED, "stopped by Ctrl-C, SIGTERM or SIGHUP, with --image"),
        ],
        note: "",
    },
    Statuses {
        command: "describe",
        meanings: &[
            (SUCCESS, "the stacks were printed"),
            (
                INCOMPLETE,
                "the program did not start, or does not speak the node contract: correct the program or its command",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "validate",
        meanings: &[
            (SUCCESS, "every document is valid, and can be run"),
            (
                INCOMPLETE,
                "a document cannot be read, is invalid or cannot be run: correct what the message names",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "report",
        meanings: &[
            (SUCCESS, "the results were printed, whatever they are"),
            (
                INCOMPLETE,
                "the results cannot be read, have nothing for junit, --svg or --csv, or a file cannot be written",
            ),
        ],
        note: "Of results without samples, `--output csv` prints the header, says so on standard error, and exits with \
               0. A `--where` that selects no cell is an invalid command line.",
    },
    Statuses {
        command: "compare",
        meanings: &[
            (SUCCESS, "nothing is worse; all expectations of a single run hold"),
            (
                INCOMPLETE,
                "results cannot be read; the runs differ in more than their program (see --allow), have no cell in common, or \
                 are too few; a single run did not complete (resume it), or has neither `compare` nor `expect`",
            ),
            (
                FAIL,
                "something is worse; an expectation of a single run does not hold",
            ),
            (
                INCONCLUSIVE,
                "something is inconclusive or not comparable (0 with --inconclusive pass)",
            ),
        ],
        note: "Two single runs, BASE and CANDIDATE, are never better or worse: their status is 4, or 0 with \
               --inconclusive pass.",
    },
    Statuses {
        command: "history",
        meanings: &[
            (SUCCESS, "the medians were printed"),
            (
                INCOMPLETE,
                "the results cannot be read: name a folder that `perfrun run` has made",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "list",
        meanings: &[
            (
                SUCCESS,
                "the runs were printed, or there are none, however they ended",
            ),
            (
                INCOMPLETE,
                "the cluster did not answer or refused: check --context, --namespace and your rights",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "watch",
        meanings: &[
            (SUCCESS, "every trial completed, and all expectations hold"),
            (
                INCOMPLETE,
                "a trial or the run failed, the run was cancelled or deleted, or there is none of this name: remove the \
                 cause that the message names, and run it again",
            ),
            (FAIL, "every trial completed, and an expectation does not hold"),
            (
                INCONCLUSIVE,
                "every trial completed, and the trials cannot show whether an expectation holds",
            ),
            STOPPED,
        ],
        note: "",
    },
    Statuses {
        command: "get results",
        meanings: &[
            (SUCCESS, "the results were printed, however the run ended"),
            (
                INCOMPLETE,
                "the run has not ended (`perfrun watch` waits for its end), or has no results, or nothing for junit",
            ),
            STOPPED,
        ],
        note: "",
    },
    Statuses {
        command: "cancel",
        meanings: &[
            (
                SUCCESS,
                "the run has ended or was deleted; with --no-wait, it will be cancelled",
            ),
            (
                INCOMPLETE,
                "the run could not be cancelled: there is none of this name, or the cluster did not answer or refused",
            ),
            (
                INTERRUPTED,
                "stopped by Ctrl-C, SIGTERM or SIGHUP; the run will be cancelled",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "logs",
        meanings: &[
            (SUCCESS, "the logs were printed"),
            (
                INCOMPLETE,
                "a log cannot be read: its pod does not exist or has not started, or the cluster did not answer or refused",
            ),
            STOPPED,
        ],
        note: "",
    },
    Statuses {
        command: "link set",
        meanings: &[
            (
                SUCCESS,
                "the impairment was set and, in user space, removed again",
            ),
            (
                INCOMPLETE,
                "it could not be set, or its emulator stopped: check the interface, the peers, --backend and your privileges",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "link show",
        meanings: &[
            (SUCCESS, "the state was printed"),
            (
                INCOMPLETE,
                "it cannot be read: check the interface, the network namespace and your privileges",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "link probe",
        meanings: &[
            (
                SUCCESS,
                "the link was measured, and behaves as expected if --forward or --backward was given",
            ),
            (
                INCOMPLETE,
                "the link does not behave as expected, as the output shows, or could not be measured: check that the peer \
                 answers probes",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "link clear",
        meanings: &[
            (SUCCESS, "the interface has no impairment that perfrun has set"),
            (
                INCOMPLETE,
                "it could not be removed: check the interface, the network namespace and your privileges",
            ),
        ],
        note: "",
    },
    Statuses {
        command: "completions",
        meanings: &[
            (SUCCESS, "the script was printed"),
            (INCOMPLETE, "it could not be printed"),
        ],
        note: "",
    },
    Statuses {
        command: "man",
        meanings: &[
            (SUCCESS, "the pages were written"),
            (
                INCOMPLETE,
                "a page cannot be written: name a folder in which you may write",
            ),
        ],
        note: "",
    },
];

impl Statuses {
    /// The statuses of a command. `None` for an unknown command.
    pub fn of(command: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|statuses| statuses.command == command)
    }

    /// Each status with its meaning, in ascending order.
    pub fn meanings(&self) -> impl Iterator<Item = (u8, &'static str)> {
        let below = self.meanings.partition_point(|(status, _)| *status < USAGE);
        let (below, above) = self.meanings.split_at(below);
        let usage = (USAGE, "the command line is invalid");
        below.iter().copied().chain([usage]).chain(above.iter().copied())
    }

    /// The statuses as the end of the command's `--help`.
    pub fn help(&self) -> String {
        let lines: Vec<_> = self
            .meanings()
            .map(|(status, meaning)| format!("  {status:<5}{meaning}"))
            .collect();
        let help = format!("Exit status:\n{}\n{}", lines.join("\n"), self.note);
        help.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_meaning_says_more_than_where_to_look() {
        for statuses in &COMMANDS {
            for (status, meaning) in statuses.meanings() {
                let elsewhere = ["see standard error", "see the output"];
                let is_said = !elsewhere.iter().any(|words| meaning.contains(words));
                assert!(is_said, "{} {status}: {meaning}", statuses.command);
            }
        }
    }

    #[test]
    fn exit_statuses_of_a_command_ascend() {
        for statuses in &COMMANDS {
            let all: Vec<u8> = statuses.meanings().map(|(status, _)| status).collect();
            assert_eq!(all[..3], [SUCCESS, INCOMPLETE, USAGE], "{}", statuses.command);
            assert!(all.is_sorted(), "{}: {all:?}", statuses.command);
        }
    }
}
