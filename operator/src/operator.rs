//! Runs the operator: leads, starts the controllers, and ends gracefully.

use std::{collections::BTreeSet, mem, sync::Arc, time::Duration};

use backon::{ConstantBuilder, Retryable};
use error_reporter::Report;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, future, join};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::{
    Client, ResourceExt,
    runtime::{
        Controller, WatchStreamExt, controller,
        events::{Recorder, Reporter},
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use perfrun_api::cluster::{MANAGED_BY_LABEL, MANAGER};
use perfrun_conductor::client::AnswerBudget;
use tokio::sync::{SetOnce, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::{
    access::Access,
    api::{
        call::{find_cluster, within_timeout},
        watched::{WatchedPod, WatchedRun, WatchedSchedule},
    },
    args::Args,
    build::PodDefaults,
    conduct::Conductors,
    process::{
        admin, clock,
        fence::Term,
        health::Health,
        lease::Leadership,
        metrics::Metrics,
        orphans::report_orphaned,
        shared_memory_budget::SharedMemoryBudget,
        signal::stop_signal,
        watch::{note_failure, watch},
    },
    run::{
        context::Context,
        controller::{after_error, reconcile},
        plans::Plans,
        times::Times,
        turns::Turns,
    },
    schedule::{self, reconcile_schedules},
    services::Services,
    token::TokenKey,
};

/// Pause between two attempts to reach the API server at the start.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// How often the first waiting run is woken, whatever happens: a run that others wait behind may be deleted
/// or suspended, and then nothing else wakes the next.
const WAKE_INTERVAL: Duration = Duration::from_secs(5);

/// Most reconciliations of runs at the same time. Each may have a connection to the API server of its own: an
/// operator that starts with a thousand runs must not open a thousand.
pub(crate) const RECONCILIATIONS_MAX: u16 = 64;

/// Runs the operator until a signal stops it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let admin = admin::bind(args.admin, "--admin").await?;
    let probes = admin::bind(args.probes, "--probes").await?;
    let metrics = Arc::new(Metrics::new());
    let health = Arc::new(Health::default());
    let serving = admin::serve_all(admin, probes, metrics.clone(), health.clone());
    let client = find_cluster().await?;
    tokio::select! {
        () = serving => {}
        () = lead(&args, client, &metrics, &health) => {}
    }
    Ok(())
}

/// Leads whenever it can, until a signal stops it.
async fn lead(args: &Args, client: Client, metrics: &Arc<Metrics>, health: &Arc<Health>) {
    let holder = std::env::var("HOSTNAME").unwrap_or_else(|_| "operator".to_owned());
    let holder = format!("{holder}-{:08x}", rand::random::<u32>());
    let stop = stop_signal();
    tokio::pin!(stop);
    let key = tokio::select! {
        key = wait_for_key(&client, &args.lease_namespace) => key,
        () = &mut stop => return,
    };
    let tcp_sysctls = tokio::select! {
        version = wait_for_version(&client) => tcp_sysctls_are_safe(&version),
        () = &mut stop => return,
    };
    let pod_defaults = PodDefaults {
        node_image: args.node_image.clone(),
        node_image_go: args.node_image_go.clone(),
        operator_image: args.image.clone(),
        operator_image_pull_policy: args.image_pull_policy.clone(),
        node_image_pull_policy: args.node_image_pull_policy.clone(),
        pull_secrets: args.node_image_pull_secrets.clone(),
        tcp_sysctls,
        kept_pods: args.policy.kept_pods.into(),
    };
    let process = Process {
        args,
        client: client.clone(),
        key,
        pod_defaults,
        metrics: metrics.clone(),
        health: health.clone(),
    };
    health.note_answer();
    let mut leadership = Leadership::new(
        client,
        &args.lease_namespace,
        &args.lease_name,
        holder,
        health.clone(),
    );
    loop {
        let term = tokio::select! {
            term = leadership.acquire() => term,
            () = &mut stop => return,
        };
        tracing::info!(lease = args.lease_name, epoch = term.epoch, "leading");
        metrics.set_leading(true);
        health.set_leading(true);
        let stopped = tokio::select! {
            () = process.reconcile_all(&term) => false,
            () = leadership.keep_renewing() => false,
            () = &mut stop => true,
        };
        // All conductors have been dropped here. Another operator resumes their runs.
        metrics.set_leading(false);
        health.set_leading(false);
        metrics.export_runs(None);
        metrics.export_schedules(None);
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

async fn wait_for_key(client: &Client, namespace: &str) -> TokenKey {
    (|| TokenKey::get_or_create(client.clone(), namespace))
        .retry(retry_forever())
        .notify(
            |error, _| tracing::error!(error = %Report::new(error), "the key for tokens is not available"),
        )
        .await
        .expect("it is retried without a limit")
}

/// Waits for the version of the API server.
async fn wait_for_version(client: &Client) -> Info {
    (|| within_timeout(client.apiserver_version()))
        .retry(retry_forever())
        .notify(|error, _| tracing::warn!(%error, "failed to get the version of the API server"))
        .await
        .expect("it is retried without a limit")
}

fn retry_forever() -> ConstantBuilder {
    ConstantBuilder::default()
        .with_delay(RETRY_PAUSE)
        .without_max_times()
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

/// What the terms of this process have in common.
pub(crate) struct Process<'a> {
    pub(crate) args: &'a Args,
    pub(crate) client: Client,
    pub(crate) key: TokenKey,
    pub(crate) pod_defaults: PodDefaults,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
}

impl Process<'_> {
    /// Reconciles all runs and schedules during a term. Does not end on its own.
    pub(crate) async fn reconcile_all(&self, term: &Term) {
        let Self {
            args,
            metrics,
            health,
            ..
        } = self;
        let client = &term.fenced(&self.client);
        let namespaces = &args.watch_namespaces;
        let (runs, runs_writer) = reflector::store::<WatchedRun>();
        let (pods, pods_writer) = reflector::store::<WatchedPod>();
        metrics.export_runs(Some((runs.clone(), pods.clone())));
        let services = Arc::new(self.services(client, term, pods.clone()));
        let schedules = schedule::Context {
            services: services.clone(),
            runs: runs.clone(),
            pauses: schedule::Pauses::default(),
        };
        let (wake, woken) = mpsc::unbounded_channel();
        let max_active = usize::try_from(args.max_concurrent_runs).unwrap_or(usize::MAX);
        let context = Arc::new(Context {
            services,
            turns: Turns::new(args.policy.clone(), max_active, runs.clone(), pods, wake),
            plans: Plans::default(),
            times: Times::default(),
            conductors: Conductors::default(),
            are_runs_listed: SetOnce::new(),
            are_pods_listed: SetOnce::new(),
        });
        let (wake_schedule, woken_schedules) = mpsc::unbounded_channel();
        let schedules = reconcile_schedules(schedules, namespaces, woken_schedules);
        let run_changes = watch_runs(&context, namespaces, runs_writer, wake_schedule);
        let managed = watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
        let of_pods = context.clone();
        let pod_changes = watch::<WatchedPod>(client, namespaces, managed, |_| {})
            .reflect(pods_writer)
            .inspect_ok(move |event| {
                if let watcher::Event::Delete(pod) = event {
                    of_pods.turns.remove_pod(pod);
                }
            })
            .touched_objects();
        let of_lists = context.clone();
        let pod_changes = async move {
            of_lists.are_runs_listed.wait().await;
            pod_changes
        };
        let runs = Controller::for_stream(run_changes, runs)
            .with_config(controller::Config::default().concurrency(RECONCILIATIONS_MAX))
            .owns_stream(pod_changes.flatten_stream())
            .reconcile_on(UnboundedReceiverStream::new(woken))
            .run(reconcile, after_error, context.clone())
            .for_each(|result| {
                note_failure(result, metrics);
                future::ready(())
            });
        join!(
            runs,
            schedules,
            wake_first_regularly(&context),
            follow_lists(&context, health)
        );
    }

    /// The services of a term. `client` is that of the term.
    fn services(&self, client: &Client, term: &Term, pods: Store<WatchedPod>) -> Services {
        let args = self.args;
        let reporter = Reporter {
            controller: MANAGER.to_owned(),
            instance: std::env::var("HOSTNAME").ok(),
        };
        Services {
            client: client.clone(),
            term: term.clone(),
            clock: clock::system(),
            access: Access::new(args.node_access, client.clone()),
            answer_budget: AnswerBudget::of_process(),
            key: self.key.clone(),
            pod_defaults: self.pod_defaults.clone(),
            operator_namespace: args.lease_namespace.clone(),
            result_bytes: u64::from(args.max_result_bytes),
            recorder: Recorder::new(client.clone(), reporter),
            metrics: self.metrics.clone(),
            memory: SharedMemoryBudget::default(),
            pods,
        }
    }
}

/// Watches runs. A deleted run is not reconciled, so that its conductor is stopped here, when the cache of
/// the watch no longer has the run. A run that was deleted during an outage of the watch has no event, but is
/// missing in the next list.
fn watch_runs(
    context: &Arc<Context>,
    namespaces: &[String],
    writer: Writer<WatchedRun>,
    wake_schedule: mpsc::UnboundedSender<ObjectRef<WatchedSchedule>>,
) -> impl Stream<Item = watcher::Result<WatchedRun>> + use<> {
    let (context, mut listed) = (context.clone(), BTreeSet::new());
    let Services { client, memory, .. } = &*context.services;
    let memory = memory.clone();
    let keep = move |run: &mut WatchedRun| run.keep_within(|bytes| memory.for_spec(bytes));
    watch::<WatchedRun>(client, namespaces, watcher::Config::default(), keep)
        .reflect(writer)
        .inspect_ok(move |event| {
            match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(run) => listed.extend(run.uid()),
                watcher::Event::InitDone => {
                    context.remove_all_except(&mem::take(&mut listed));
                    // A later list changes nothing.
                    let _ = context.are_runs_listed.set(());
                }
                watcher::Event::Apply(_) => {}
                watcher::Event::Delete(run) => context.remove(&run.uid().unwrap_or_default()),
            }
            schedule::wake_owners(event, &context.turns.runs, &wake_schedule);
        })
        .applied_objects()
}

/// Notes that the operator knows all runs and their pods: no run is reconciled before. From then on, reports
/// pods whose run no longer exists.
async fn follow_lists(context: &Context, health: &Health) {
    let (runs, pods) = (&context.turns.runs, &context.services.pods);
    if runs.wait_until_ready().await.is_ok() && pods.wait_until_ready().await.is_ok() {
        // Nothing else sets it.
        let _ = context.are_pods_listed.set(());
        health.note_listed();
        context.services.metrics.note_listed();
        report_orphaned(runs, pods).await;
    }
}

/// Wakes the first waiting run every [`WAKE_INTERVAL`].
async fn wake_first_regularly(context: &Context) {
    let mut ticks = tokio::time::interval(WAKE_INTERVAL);
    loop {
        ticks.tick().await;
        context.turns.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Method;
    use serde_json::json;
    use tokio::time::sleep;

    use super::*;
    use crate::test_server::{Answer, TestServer};

    fn args() -> Args {
        <Args as clap::Parser>::parse_from(["perfrun-operator", "--node-access=direct"])
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_is_not_ready_before_it_knows_the_pods_of_runs() {
        let server = TestServer::new();
        server.script_times(1, Method::GET, "/api/v1/pods", Answer::DoLate(60));
        let (client, health) = (server.client(), Arc::new(Health::default()));
        let led = health.clone();
        tokio::spawn(async move { lead(&args(), client, &Arc::new(Metrics::new()), &led).await });
        sleep(Duration::from_secs(30)).await;
        assert_eq!(
            health.check_ready(),
            Err("the runs and their pods could not be listed yet")
        );
        sleep(Duration::from_secs(120)).await;
        assert_eq!(health.check_ready(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn pods_are_listed_after_all_runs() {
        let server = TestServer::new();
        server.script_times(1, Method::GET, "/perfruns", Answer::DoLate(60));
        let client = server.client();
        tokio::spawn(async move { lead(&args(), client, &Arc::new(Metrics::new()), &Arc::default()).await });
        let are_pods_listed = || !server.unused_rights().contains(&"pods list".to_owned());
        sleep(Duration::from_secs(30)).await;
        assert!(!are_pods_listed());
        sleep(Duration::from_secs(120)).await;
        assert!(are_pods_listed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_cut_off_from_the_api_server_is_replaced_and_creates_nothing_twice() {
        let server = TestServer::new();
        let create = |name: &str| {
            let spec = json!({"workload": {"ping": {}}, "topology": {"exclusive": false},
                "matrix": {"clients": ["libp2p"], "servers": ["libp2p"], "rawReference": false}});
            let metadata = json!({"name": name, "namespace": "bench", "uid": name, "generation": 1});
            let run = json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": metadata, "spec": spec});
            let runs = "/apis/perfrun.io/v1alpha1/namespaces/bench/perfruns";
            server.put(&format!("{runs}/{name}"), run);
        };
        let start = |client: Client| {
            let metrics = Arc::new(Metrics::new());
            let exported = metrics.clone();
            tokio::spawn(async move { lead(&args(), client, &metrics, &Arc::default()).await });
            move || exported.encode().contains("perfrun_operator_leader 1")
        };
        let later = async || sleep(Duration::from_secs(30)).await;
        let cut_off = Arc::new(AtomicBool::new(false));
        let first_leads = start(server.client_cut_off_by(&cut_off));
        create("before");
        later().await;
        let second_leads = start(server.client());
        later().await;
        assert!(first_leads() && !second_leads());
        cut_off.store(true, Ordering::Relaxed);
        create("meanwhile");
        later().await;
        assert!(!first_leads() && second_leads());
        cut_off.store(false, Ordering::Relaxed);
        create("after");
        later().await;
        assert!(!first_leads() && second_leads());
        let changes = server.take_changes();
        let pods = changes.iter().filter(|call| call.path.ends_with("/pods"));
        assert_eq!(pods.count(), 6, "two for each run: {changes:?}");
    }

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
