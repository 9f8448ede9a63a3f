//! The process: leadership, controllers, graceful end.

use std::{collections::BTreeSet, mem, sync::Arc, time::Duration};

use anyhow::Context as _;
use backon::{ConstantBuilder, Retryable};
use error_reporter::Report;
use futures::{StreamExt, TryStreamExt, join};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::version::Info};
use kube::{
    Client, ResourceExt,
    runtime::{
        Controller, WatchStreamExt,
        events::{Recorder, Reporter},
        reflector, watcher,
    },
};
use perfrun_api::cluster::{MANAGED_BY_LABEL, MANAGER};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    access::Access,
    admin,
    args::Args,
    build::Site,
    clock,
    conduct::Conductors,
    controller::{Context, after_error, reconcile},
    lease::Leadership,
    ledger::Ledger,
    metrics::Metrics,
    plans::Plans,
    schedule::{self, reconcile_schedules},
    token::TokenKey,
    watch::{log_failure, watch},
    watched::WatchedRun,
};

/// Pause between two attempts to reach the API server at the start.
const RETRY: Duration = Duration::from_secs(2);

/// Runs the operator until a signal stops it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let listener = admin::bind(args.admin).await?;
    let metrics = Arc::new(Metrics::new());
    let serving = admin::serve_all(listener, metrics.clone());
    let client = Client::try_default()
        .await
        .context("unable to find a cluster: set KUBECONFIG, or run in a pod with a service account")?;
    tokio::select! {
        () = serving => {}
        () = lead(&args, client, &metrics) => {}
    }
    Ok(())
}

/// Leads whenever it can, until a signal stops it.
async fn lead(args: &Args, client: Client, metrics: &Arc<Metrics>) {
    let holder = std::env::var("HOSTNAME").unwrap_or_else(|_| "operator".to_owned());
    let holder = format!("{holder}-{:08x}", rand::random::<u32>());
    let stop = stop_signal();
    tokio::pin!(stop);
    let key = tokio::select! {
        key = key(&client, &args.lease_namespace) => key,
        () = &mut stop => return,
    };
    let tcp_sysctls = tokio::select! {
        version = version(&client) => tcp_sysctls_are_safe(&version),
        () = &mut stop => return,
    };
    let site = Site {
        node_image: args.node_image.clone(),
        node_image_go: args.node_image_go.clone(),
        pull_policy: args.node_image_pull_policy.clone(),
        pull_secrets: args.node_image_pull_secrets.clone(),
        tcp_sysctls,
    };
    metrics.set_ready();
    let mut leadership = Leadership::new(client.clone(), &args.lease_namespace, &args.lease_name, holder);
    loop {
        tokio::select! {
            () = leadership.acquire() => {}
            () = &mut stop => return,
        }
        tracing::info!(lease = args.lease_name, "leading");
        metrics.lead(true);
        let stopped = tokio::select! {
            () = reconcile_all(args, &client, &key, &site, metrics) => false,
            () = leadership.keep() => false,
            () = &mut stop => true,
        };
        // All conductors have been dropped here. Another operator resumes their runs.
        metrics.lead(false);
        metrics.watch(None);
        metrics.watch_schedules(None);
        if stopped {
            tracing::info!("stopping; another operator may lead");
            return leadership.release().await;
        }
        tracing::warn!(
            lease = args.lease_name,
            "no longer leading: the lease could not be renewed"
        );
    }
}

async fn key(client: &Client, namespace: &str) -> TokenKey {
    (|| TokenKey::get_or_create(client.clone(), namespace))
        .retry(forever())
        .notify(
            |error, _| tracing::error!(error = %Report::new(error), "the key for tokens is not available"),
        )
        .await
        .expect("it is retried without a limit")
}

/// The version of the API server.
async fn version(client: &Client) -> Info {
    (|| client.apiserver_version())
        .retry(forever())
        .notify(|error, _| tracing::warn!(%error, "failed to get the version of the API server"))
        .await
        .expect("it is retried without a limit")
}

fn forever() -> ConstantBuilder {
    ConstantBuilder::default().with_delay(RETRY).without_max_times()
}

/// Whether any pod may set the sizes of TCP's windows, even in a namespace with Pod Security `baseline`. Some
/// providers add a `+` to the minor version.
fn tcp_sysctls_are_safe(version: &Info) -> bool {
    let number = |text: &str| {
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        digits.parse::<u32>().unwrap_or(0)
    };
    (number(&version.major), number(&version.minor)) >= (1, 32)
}

/// Reconciles all runs and schedules. Does not end on its own.
pub(crate) async fn reconcile_all(
    args: &Args,
    client: &Client,
    key: &TokenKey,
    site: &Site,
    metrics: &Arc<Metrics>,
) {
    let (wake, woken) = mpsc::unbounded_channel();
    let (wake_all, woken_all) = mpsc::unbounded_channel();
    let (runs, runs_writer) = reflector::store::<WatchedRun>();
    let (pods, pods_writer) = reflector::store::<Pod>();
    metrics.watch(Some(runs.clone()));
    let reporter = Reporter {
        controller: MANAGER.to_owned(),
        instance: std::env::var("HOSTNAME").ok(),
    };
    let context = Arc::new(Context {
        client: client.clone(),
        clock: clock::system(),
        access: Access::new(args.node_access, client.clone()),
        key: key.clone(),
        site: site.clone(),
        operators: args.lease_namespace.clone(),
        max_concurrent_runs: usize::try_from(args.max_concurrent_runs).unwrap_or(usize::MAX),
        policy: args.policy.clone(),
        result_bytes: u64::from(args.max_result_bytes),
        plans: Plans::default(),
        conductors: Conductors::default(),
        ledger: Ledger::default(),
        recorder: Recorder::new(client.clone(), reporter),
        metrics: metrics.clone(),
        pods,
        runs: runs.clone(),
        wake,
        wake_all,
    });
    let (wake_schedule, woken_schedules) = mpsc::unbounded_channel();
    let schedules = schedule::Context {
        client: client.clone(),
        clock: context.clock.clone(),
        recorder: context.recorder.clone(),
        metrics: metrics.clone(),
        runs: runs.clone(),
    };
    let schedules = reconcile_schedules(schedules, &args.watch_namespaces, woken_schedules);
    let (watched, stored) = (context.clone(), runs.clone());
    let mut listed = BTreeSet::new();
    let runs_seen = watch::<WatchedRun>(client, &args.watch_namespaces, watcher::Config::default())
        // A deleted run is not reconciled, so that its conductor is stopped here. A run that was deleted
        // during an outage of the watch has no event, but is missing in the next list.
        .inspect_ok(move |event| match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(run) => listed.extend(run.uid()),
            watcher::Event::InitDone => watched.remove_others(&mem::take(&mut listed)),
            watcher::Event::Apply(_) => {}
            watcher::Event::Delete(run) => watched.remove(&run.uid().unwrap_or_default()),
        })
        .reflect(runs_writer)
        .inspect_ok(move |event| schedule::wake(event, &stored, &wake_schedule))
        .applied_objects();
    let managed = watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
    let pods_seen = watch::<Pod>(client, &args.watch_namespaces, managed)
        .reflect(pods_writer)
        .touched_objects();
    let runs = Controller::for_stream(runs_seen, runs)
        .owns_stream(pods_seen)
        .reconcile_on(UnboundedReceiverStream::new(woken))
        .reconcile_all_on(UnboundedReceiverStream::new(woken_all))
        .run(reconcile, after_error, context)
        .for_each(async |result| log_failure(result));
    join!(runs, schedules);
}

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // Without signals there is no graceful end, only SIGKILL.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_set_tcp_windows_where_every_pod_may() {
        let safe = |major: &str, minor: &str| {
            tcp_sysctls_are_safe(&Info {
                major: major.to_owned(),
                minor: minor.to_owned(),
                ..Info::default()
            })
        };
        assert!(safe("1", "32") && safe("1", "36") && safe("1", "33+") && safe("2", "0"));
        assert!(!safe("1", "31") && !safe("1", "31+") && !safe("", ""));
    }
}
