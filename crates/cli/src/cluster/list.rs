//! `perfrun list`.

use std::io::{Write, stderr};

use jiff::Timestamp;
use kube::{ResourceExt, api::ListParams};

use super::{
    access::{Cluster, MaybeRun},
    age::age,
    error::{Call, RUNS},
    status::StatusSummary,
};
use crate::{args, print};

/// Lists the runs of one or all namespaces. Returns the exit status.
pub async fn list(args: &args::List) -> anyhow::Result<u8> {
    let cluster = Cluster::find(&args.target).await?;
    let call = Call {
        verb: "list",
        resource: RUNS,
        name: None,
    };
    let runs = if args.all_namespaces {
        cluster.all_maybe_runs()
    } else {
        cluster.maybe_runs()
    };
    let runs = cluster
        .call(&call, runs.list(&ListParams::default()))
        .await?
        .items;
    if runs.is_empty() {
        let place = if args.all_namespaces {
            "in the cluster".to_owned()
        } else {
            format!("in namespace {}", cluster.namespace())
        };
        let _ = writeln!(stderr(), "no PerfRuns found {place}");
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
    let status = run.0.as_ref().map(StatusSummary::of);
    let created = run.creation_timestamp();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let (phase, trials, reason) = match &status {
        Ok(status) => (
            or_dash(status.phase.as_ref().map(ToString::to_string).unwrap_or_default()),
            match status.trials.total {
                0 => "-".to_owned(),
                _ => status.progress(),
            },
            or_dash(
                status
                    .cause
                    .as_ref()
                    .map(|cause| cause.reason.clone())
                    .unwrap_or_default(),
            ),
        ),
        // The run has another version. The others can still be listed.
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

/// A table in the format of kubectl.
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

    use super::{super::status::tests::run, *};

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
    fn an_unreadable_run_is_listed_too() {
        let odd: MaybeRun = serde_json::from_value(json!({
            "metadata": {"name": "new", "namespace": "lab"},
            "spec": {"workload": {"teleport": {}}},
            "status": {"phase": 42},
        }))
        .unwrap();
        assert_eq!(row(&odd, now()), ["lab", "new", "?", "?", "?", "Unreadable"]);
    }
}
