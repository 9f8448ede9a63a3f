//! `perfrun list`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{ResourceExt, api::ListParams};
use perfrun_api::cluster::{age::age, condition::Reason};

use super::{
    access::{Cluster, MaybeRun},
    error::{Call, RUNS},
    status::StatusSummary,
};
use crate::{
    args::{self, Columns},
    output::{write_line_to_stderr, write_to_stdout},
    words::columns,
};

/// Lists the runs of one or all namespaces. Returns the exit status.
pub async fn list(args: &args::List) -> anyhow::Result<u8> {
    let cluster = Cluster::find(&args.target).await?;
    let call = Call::all("list", RUNS);
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
        write_line_to_stderr(format_args!("no PerfRuns found {place}"));
        return Ok(0);
    }
    let now = Timestamp::now();
    let rows: Vec<Row> = runs.iter().map(|run| row(run, now)).collect();
    let is_wide = args.output == Some(Columns::Wide);
    write_to_stdout(&table(&rows, args.all_namespaces, is_wide))?;
    Ok(0)
}

/// The namespace, and the columns of `kubectl get`.
type Row = [String; 10];

const HEAD: [&str; 10] = [
    "NAMESPACE",
    "NAME",
    "PHASE",
    "VERDICT",
    "REASON",
    "TRIALS",
    "AGE",
    "WORKLOAD",
    "DURATION",
    "ENDED",
];

/// The number of columns of a list that is not wide.
const NARROW: usize = 7;

fn row(run: &MaybeRun, now: Timestamp) -> Row {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let since = |time: Time| age(now.duration_since(time.0).as_secs());
    let created = run.creation_timestamp().map_or("?".to_owned(), since);
    let [phase, verdict, reason, trials, workload, duration, ended] = match &run.0 {
        Ok(readable) => {
            let summary = StatusSummary::of(readable);
            let status = readable.status.clone().unwrap_or_default();
            [
                status.phase.map(|phase| phase.to_string()),
                status.verdict.map(|verdict| verdict.to_string()),
                summary.cause.as_ref().map(|cause| cause.reason.clone()),
                (summary.trials.total > 0).then(|| summary.progress()),
                Some(readable.spec.workload.name().to_owned()),
                status.duration,
                status.completion_time.map(since),
            ]
            .map(or_dash)
        }
        // The run has another version. The others can still be listed.
        Err(_) => ["?", "?", Reason::Unreadable.as_ref(), "?", "?", "?", "?"].map(str::to_owned),
    };
    [
        run.namespace().unwrap_or_default(),
        run.name_any(),
        phase,
        verdict,
        reason,
        trials,
        created,
        workload,
        duration,
        ended,
    ]
}

/// A table in the format of kubectl.
fn table(rows: &[Row], with_namespace: bool, is_wide: bool) -> String {
    let shown = usize::from(!with_namespace)..if is_wide { HEAD.len() } else { NARROW };
    let head = HEAD.map(str::to_owned);
    let rows = [&head].into_iter().chain(rows);
    columns(&rows.map(|row| row[shown.clone()].to_vec()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
    use kube::{CustomResourceExt, core::DeserializeGuard};
    use perfrun_api::spec::PerfRun;
    use perfrun_contract::compare::Verdict;
    use serde_json::json;

    use super::{super::status::tests::run, *};

    fn now() -> Timestamp {
        "2026-01-01T12:03:05Z".parse().unwrap()
    }

    fn row_of(run: PerfRun) -> Row {
        row(&DeserializeGuard(Ok(run)), now())
    }

    #[test]
    fn each_run_is_a_line_of_the_list() {
        let waits = "Provisioned=Unknown WaitingForOtherRuns ";
        let waiting = row_of(run(Some("Pending"), (0, 0), &[waits]));
        let unseen = row_of(run(None, (0, 0), &[]));
        let rows = [waiting, unseen];
        assert_eq!(
            table(&rows, true, false),
            "NAMESPACE   NAME   PHASE     VERDICT   REASON                TRIALS   AGE\n\
             lab         tcp    Pending   -         WaitingForOtherRuns   0/40     3m5s\n\
             lab         tcp    -         -         -                     -        3m5s\n"
        );
        assert_eq!(
            table(&rows[..1], false, false),
            "NAME   PHASE     VERDICT   REASON                TRIALS   AGE\n\
             tcp    Pending   -         WaitingForOtherRuns   0/40     3m5s\n"
        );
    }

    #[test]
    fn a_run_that_measured_a_regression_does_not_look_like_a_success() {
        let conditions = [
            "Verdict=False Regressed slower",
            "Complete=True Succeeded all 40 trials were measured",
        ];
        let mut ended = run(Some("Succeeded"), (40, 0), &conditions);
        let status = ended.status.as_mut().unwrap();
        status.verdict = Some(Verdict::Fail);
        status.duration = Some("52s".to_owned());
        status.completion_time = Some(Time("2026-01-01T12:03:00Z".parse().unwrap()));
        assert_eq!(
            table(&[row_of(ended)], false, true),
            "NAME   PHASE       VERDICT   REASON      TRIALS   AGE    WORKLOAD   DURATION   ENDED\n\
             tcp    Succeeded   Fail      Regressed   40/40    3m5s   ping       52s        5s\n"
        );
    }

    #[test]
    fn the_columns_are_those_of_kubectl() {
        let crd = PerfRun::crd();
        let columns = crd.spec.versions[0].additional_printer_columns.iter().flatten();
        let (wide, narrow): (Vec<_>, Vec<_>) = columns.partition(|column| column.priority == Some(1));
        let head = |columns: &[&CustomResourceColumnDefinition]| {
            let names = columns.iter().map(|column| column.name.to_uppercase());
            names.collect::<Vec<_>>()
        };
        assert_eq!(HEAD[..2], ["NAMESPACE", "NAME"]);
        assert_eq!(HEAD[2..NARROW], head(&narrow));
        assert_eq!(HEAD[NARROW..], head(&wide));
    }

    #[test]
    fn an_unreadable_run_is_listed_too() {
        let odd: MaybeRun = serde_json::from_value(json!({
            "metadata": {"name": "new", "namespace": "lab"},
            "spec": {"workload": {"teleport": {}}},
            "status": {"phase": 42},
        }))
        .unwrap();
        let row = row(&odd, now());
        assert_eq!(row[..NARROW], ["lab", "new", "?", "?", "Unreadable", "?", "?"]);
    }
}
