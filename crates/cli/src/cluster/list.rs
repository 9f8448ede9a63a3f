//! `perfrun list`.

use std::io::{Write, stderr};

use jiff::Timestamp;
use kube::{ResourceExt, api::ListParams};

use super::{
    access::{Cluster, MaybeRun},
    age::age,
    error::{Act, RUNS},
    stage::Stage,
};
use crate::{args, print};

/// Lists the runs of a namespace, or of all; returns the exit status.
pub async fn list(args: &args::List) -> anyhow::Result<u8> {
    let cluster = Cluster::find(&args.target).await?;
    let act = Act {
        verb: "list",
        resource: RUNS,
        name: None,
    };
    let runs = if args.all_namespaces {
        cluster.all_maybe_runs()
    } else {
        cluster.maybe_runs()
    };
    let runs = cluster.call(&act, runs.list(&ListParams::default())).await?.items;
    if runs.is_empty() {
        let place = if args.all_namespaces {
            "in the cluster".to_owned()
        } else {
            format!("in namespace {}", cluster.namespace())
        };
        let _ = writeln!(stderr(), "there is no PerfRun {place}");
        return Ok(0);
    }
    let now = Timestamp::now();
    let rows: Vec<Row> = runs.iter().map(|run| row(run, now)).collect();
    print(&table(&rows, args.all_namespaces))?;
    Ok(0)
}

/// Namespace, name, phase, trials, age, reason.
type Row = [String; 6];

const HEAD: [&str; 6] = ["NAMESPACE", "NAME", "PHASE", "TRIALS", "AGE", "REASON"];

fn row(run: &MaybeRun, now: Timestamp) -> Row {
    let stage = run.0.as_ref().map(Stage::of);
    let created = run.creation_timestamp();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let (phase, trials, reason) = match &stage {
        Ok(stage) => (
            or_dash(stage.phase.as_ref().map(ToString::to_string).unwrap_or_default()),
            match stage.trials.total {
                0 => "-".to_owned(),
                _ => stage.progress(),
            },
            or_dash(
                stage
                    .why
                    .as_ref()
                    .map(|why| why.reason.clone())
                    .unwrap_or_default(),
            ),
        ),
        // Of another version; the others can still be listed.
        Err(_) => ("?".to_owned(), "?".to_owned(), "Unreadable".to_owned()),
    };
    [
        run.namespace().unwrap_or_default(),
        run.name_any(),
        phase,
        trials,
        created.map_or("?".to_owned(), |created| {
            age(now.duration_since(created.0).as_secs())
        }),
        reason,
    ]
}

/// As kubectl would print it.
fn table(rows: &[Row], with_namespace: bool) -> String {
    let first = usize::from(!with_namespace);
    let head = HEAD.map(str::to_owned);
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| {
            let cells = std::iter::once(&head).chain(rows);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().zip(&widths).skip(first);
        let line: String = cells.map(|(cell, width)| format!("{cell:<width$}   ")).collect();
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::stage::tests::run, *};

    fn now() -> Timestamp {
        "2026-01-01T12:03:05Z".parse().unwrap()
    }

    #[test]
    fn a_run_is_a_line() {
        let waits = "Provisioned=Unknown WaitingForOtherRuns ";
        let waiting = row(
            &kube::core::DeserializeGuard(Ok(run(Some("Pending"), (0, 0), &[waits]))),
            now(),
        );
        let unseen = row(&kube::core::DeserializeGuard(Ok(run(None, (0, 0), &[]))), now());
        let rows = [waiting, unseen];
        assert_eq!(
            table(&rows, true),
            "NAMESPACE   NAME   PHASE     TRIALS   AGE    REASON\n\
             lab         tcp    Pending   0/40     3m5s   WaitingForOtherRuns\n\
             lab         tcp    -         -        3m5s   -\n"
        );
        assert_eq!(
            table(&rows[..1], false),
            "NAME   PHASE     TRIALS   AGE    REASON\n\
             tcp    Pending   0/40     3m5s   WaitingForOtherRuns\n"
        );
    }

    #[test]
    fn what_cannot_be_read_is_listed_all_the_same() {
        let odd: MaybeRun = serde_json::from_value(json!({
            "metadata": {"name": "new", "namespace": "lab"},
            "spec": {"workload": {"teleport": {}}},
            "status": {"phase": "Levitating"},
        }))
        .unwrap();
        assert_eq!(row(&odd, now()), ["lab", "new", "?", "?", "?", "Unreadable"]);
    }
}
