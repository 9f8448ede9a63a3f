//! `perfrun cancel`.

use std::io::{Write, stderr};

use kube::{ResourceExt, api::Patch};
use perfrun_contract::run::Phase;
use serde_json::json;

use super::{
    access::Cluster,
    apply::written,
    error::{Act, RUNS},
    find::find,
    follow::{Followed, follow},
    run::{screen, stop_on_signal},
    stage::Stage,
};
use crate::{args, run::INTERRUPTED};

/// Stops a run; returns the exit status.
pub async fn cancel(args: &args::Cancel) -> anyhow::Result<u8> {
    let stop = stop_on_signal();
    let cluster = Cluster::find(&args.target).await?;
    let run = find(&cluster, &args.name).await?;
    let name = run.name_any();
    let stage = Stage::of(&run);
    let say = |text: &str| drop(writeln!(stderr(), "perfrun/{name} {text}"));
    if stage.has_ended() {
        say(&format!("has ended already ({})", stage.phase()));
        return Ok(0);
    }
    let act = Act {
        verb: "patch",
        resource: RUNS,
        name: Some(&name),
    };
    let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
    let run = cluster
        .call(&act, cluster.runs().patch(&name, &written(), &patch))
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
            let stage = Stage::of(&ended);
            match stage.phase {
                Some(Phase::Cancelled) => say(&format!("was cancelled after {} trials", stage.progress())),
                _ => say(&format!("ended before it could be cancelled ({})", stage.phase())),
            }
            Ok(0)
        }
        Followed::Deleted => {
            say("was deleted");
            Ok(0)
        }
        Followed::Left => {
            say("will be cancelled, nobody waits for it");
            Ok(INTERRUPTED)
        }
    }
}
