//! The process: leadership, controllers, graceful end.

use std::{collections::BTreeSet, mem, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::version::Info};
use kube::{
    Client, ResourceExt,
    runtime::{
        Controller, WatchStreamExt,
        controller::Error as ControllerError,
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
    conduct::Tasks,
    controller::{Begun, Context, Guarded, after_error, reconcile},
    lease::Leadership,
    metrics::Metrics,
    plans::Plans,
    token::TokenKey,
    watch::watch,
};

/// Between two attempts to reach the API server at the start.
const PAUSE: Duration = Duration::from_secs(2);

/// Runs the operator until it is told to stop.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let listener = admin::bind(args.admin).await?;
    let metrics = Arc::new(Metrics::new());
    let serving = admin::serve(listener, metrics.clone());
    let client = Client::try_default()
        .await
        .context("unable to find a cluster: set KUBECONFIG, or run in a pod with a service account")?;
    tokio::select! {
        served = serving => served.context("failed to serve the admin port"),
        () = lead(&args, client, &metrics) => Ok(()),
    }
}

/// Leads whenever it can, until it is told to stop.
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
            () = act(args, &client, &key, &site, metrics) => false,
            () = leadership.keep() => false,
            () = &mut stop => true,
        };
        // What it did has been dropped here: another operator finds everything as it was left.
        metrics.lead(false);
        metrics.watch(None);
        if stopped {
            tracing::info!("stopping; another operator may go on");
            return leadership.release().await;
        }
        tracing::warn!(
            lease = args.lease_name,
            "no longer leading: the lease could not be renewed"
        );
    }
}

async fn key(client: &Client, namespace: &str) -> TokenKey {
    loop {
        match TokenKey::get_or_create(client.clone(), namespace).await {
            Ok(key) => return key,
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "no key for tokens");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What the API server is.
async fn version(client: &Client) -> Info {
    loop {
        match client.apiserver_version().await {
            Ok(version) => return version,
            Err(error) => tracing::warn!(%error, "failed to ask the API server for its version"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether any pod may set the sizes of TCP's windows, in a namespace with Pod Security `baseline`, too. Providers add a
/// `+` to the minor version.
fn tcp_sysctls_are_safe(version: &Info) -> bool {
    let number = |text: &str| {
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        digits.parse::<u32>().unwrap_or(0)
    };
    (number(&version.major), number(&version.minor)) >= (1, 32)
}

/// Reconciles. Does not end by itself.
async fn act(args: &Args, client: &Client, key: &TokenKey, site: &Site, metrics: &Arc<Metrics>) {
    let (wake, woken) = mpsc::unbounded_channel();
    let (wake_all, woken_all) = mpsc::unbounded_channel();
    let (runs, runs_writer) = reflector::store::<Guarded>();
    let (pods, pods_writer) = reflector::store::<Pod>();
    metrics.watch(Some(runs.clone()));
    let reporter = Reporter {
        controller: MANAGER.to_owned(),
        instance: std::env::var("HOSTNAME").ok(),
    };
    let context = Arc::new(Context {
        client: client.clone(),
        access: Access::new(args.node_access, client.clone()),
        key: key.clone(),
        site: site.clone(),
        operators: args.lease_namespace.clone(),
        max_concurrent_runs: usize::try_from(args.max_concurrent_runs).unwrap_or(usize::MAX),
        plans: Plans::default(),
        tasks: Tasks::default(),
        recorder: Recorder::new(client.clone(), reporter),
        metrics: metrics.clone(),
        pods,
        runs: runs.clone(),
        wake,
        wake_all,
        begun: Begun::default(),
    });
    let watched = context.clone();
    let mut listed = BTreeSet::new();
    let runs_seen = watch::<Guarded>(client, &args.watch_namespaces, watcher::Config::default())
        // Nothing reconciles a run that is gone, so that its conductor is stopped here. Of one that went while the API server
        // was away nothing is said, but the next list lacks it.
        .inspect_ok(move |event| match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(run) => listed.extend(run.uid()),
            watcher::Event::InitDone => watched.forget_others(&mem::take(&mut listed)),
            watcher::Event::Apply(_) => {}
            watcher::Event::Delete(run) => watched.forget(&run.uid().unwrap_or_default()),
        })
        .reflect(runs_writer)
        .applied_objects();
    let ours = watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
    let pods_seen = watch::<Pod>(client, &args.watch_namespaces, ours)
        .reflect(pods_writer)
        .touched_objects();
    Controller::for_stream(runs_seen, runs)
        .owns_stream(pods_seen)
        .reconcile_on(UnboundedReceiverStream::new(woken))
        .reconcile_all_on(UnboundedReceiverStream::new(woken_all))
        .run(reconcile, after_error, context)
        .for_each(|result| async {
            match result {
                // Told of where it happened, or of a run that was deleted meanwhile.
                Ok(_) | Err(ControllerError::ReconcilerFailed(..) | ControllerError::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(%error, "failed to watch"),
            }
        })
        .await;
}

/// Waits for SIGTERM or SIGINT.
pub async fn stop_signal() {
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
