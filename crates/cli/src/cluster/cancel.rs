//! `perfrun cancel`.

use kube::{ResourceExt, api::Patch};
use perfrun_api::exit_status::INTERRUPTED;
use perfrun_contract::run::Phase;
use serde_json::json;

use super::{
    access::{Cluster, patch_params},
    error::{Call, RUNS},
    find::find,
    follow::{Followed, follow, screen},
    status::StatusSummary,
};
use crate::{args, output::write_line_to_stderr, signals::cancel_on_signal};

/// Cancels a run. Returns the exit status.
pub async fn cancel(args: &args::Cancel) -> anyhow::Result<u8> {
    let stop = cancel_on_signal();
    let cluster = Cluster::find(&args.target).await?;
    let run = find(&cluster, &args.name).await?;
    let name = run.name_any();
    let status = StatusSummary::of(&run);
    let say = |text: &str| write_line_to_stderr(format_args!("perfrun/{name} {text}"));
    if status.has_ended {
        say(&format!("has already ended ({})", status.phase()));
        return Ok(0);
    }
    let call = Call::of("patch", RUNS, &name);
    let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
    let run = cluster
        .call(&call, cluster.runs().patch(&name, &patch_params(), &patch))
        .await?;
    if args.no_wait {
        say("will be cancelled");
        return Ok(0);
    }
    let screen = screen(&run, false);
    let followed = follow(&cluster, &run, &screen, &stop).await?;
    drop(screen);
    match followed {
        Followed::Ended(ended) => {
            say(&end(&StatusSummary::of(&ended)));
            Ok(0)
        }
        Followed::Deleted => {
            say("was deleted");
            Ok(0)
        }
        Followed::Stopped => {
            say("will be cancelled; no longer waiting for it");
            Ok(INTERRUPTED)
        }
    }
}

/// How a run ended that the user wants cancelled.
fn end(status: &StatusSummary) -> String {
    match status.phase {
        Some(Phase::Cancelled) => format!("was cancelled after {} trials", status.progress()),
        // Only the newer version knows whether the run was cancelled.
        Some(Phase::Newer(phase)) => format!("has ended as {phase}"),
        _ => format!("ended before it could be cancelled ({})", status.phase()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::status::tests::run, *};

    #[test]
    fn the_message_after_a_cancel_follows_the_phase_of_the_run() {
        for (phase, message) in [
            ("Cancelled", "was cancelled after 12/40 trials"),
            ("Succeeded", "ended before it could be cancelled (Succeeded)"),
            ("Hibernating", "has ended as Hibernating"),
        ] {
            let run = run(Some(phase), (11, 1), &["Complete=True Unspecified "]);
            assert_eq!(end(&StatusSummary::of(&run)), message);
        }
    }
}
