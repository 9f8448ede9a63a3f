//! A real Prometheus discovers operators and nodes, and dashboards show their data.

use std::{env, ffi::OsStr};

use anyhow::{Context, Result, ensure};
use kube::{Api, api::PostParams};
use perfrun_api::{schedule::PerfSchedule, spec::PerfRun};
use perfrun_e2e::{Scene, e2e, run::TINY, seconds, until};
use perfrun_test_kit::dashboards::{
    Dashboard, Prometheus, Scope, agrees_with, all, all_have_data, keep_picture, now,
    stays_when_targets_are_gone, without_intervals,
};
use perfrun_test_kit::{Need, skip};

use crate::schedule::every_minute;

/// Names a Prometheus with Kubernetes service discovery, which Debian's build lacks.
const PROMETHEUS: &str = "PERFRUN_E2E_PROMETHEUS";

/// The pods, by name, and the ports that are scraped.
const EVERYBODY: &str = "perfrun-operator;admin|perfrun-node;metrics|perfrun-node;link-metrics";
const OPERATORS: &str = "perfrun-operator;admin";

/// Transfers over links with delay, with enough trials for intervals. It is exclusive, since other runs would
/// make links late. The delay is far more than what a busy machine adds.
const BANDWIDTH: &str = "
workload: {bandwidth: {duration: 700ms, directions: [upload, download]}}
matrix: {clients: [libp2p], servers: [litep2p], networks: [near]}
networks: [{name: near, delay: 50ms, rate: 100Mbit, backend: userspace}]
iterations: 6
warmup: 0
topology: {placement: Any}
template: {link: {realTime: true}}
";

/// Two variants that are the same, compared, and an expectation. New nodes in each iteration would count from
/// 0 again.
const PINGS: &str = "
workload: {ping: {count: 50, interval: 20ms}}
stacks: [{name: main, stack: libp2p}, {name: pr, stack: libp2p}]
matrix: {clients: [main], servers: [main], rawReference: false}
compare: [{baseline: main, candidate: pr}]
expect: [{metric: roundTripP50, max: 1s}]
renew: never
iterations: 10
warmup: 0
topology: {placement: Any, exclusive: false}
";

/// Other workloads, each in its own run: name, workload. Each takes 12 seconds, since Prometheus looks for
/// new pods every five.
const OTHERS: [(&str, &str); 5] = [
    ("handshakes", "{handshakes: {duration: 2s}}"),
    (
        "substreams",
        "{substreams: {counts: [100], mode: paced, rate: 50}}",
    ),
    // The ramp may last half of the time, of which a busy machine needs some seconds.
    (
        "echoes",
        "{echo: {loads: [{connections: 2, streamsPerConnection: 5}], connectionInterval: 100ms, streamInterval: 10ms, \
         pause: 100ms, duration: 6s, sampleInterval: 200ms}}",
    ),
    (
        "messages",
        "{messages: {modes: [stream, broadcast], sizes: [64], duration: 2s}}",
    ),
    // One sink more than the relay accepts, so that it refuses one.
    (
        "stressed",
        "{relayStress: {sinks: [4], sinksPerSource: 4, sinkInterval: 10ms, plateau: 5s, transferBytes: 100k, \
         limits: {circuits: 3}}}",
    ),
];

#[test]
fn every_query_of_every_dashboard_has_data_that_agree_with_results() {
    e2e(async |scene| {
        let Some(program) = env::var_os(PROMETHEUS) else {
            let reason = "needs a Prometheus that finds pods, which Debian's cannot";
            skip(
                Need::Prometheus,
                "all of it",
                &format!("{reason}: {PROMETHEUS} is not set"),
            );
            return Ok(());
        };
        let from = now();
        let prometheus = scraping(scene, &program, 1, EVERYBODY).await?;
        // Nodes wait for the next scrape by any Prometheus, so that one would miss those that end for the
        // other.
        let slow = scraping(scene, &program, 15, OPERATORS).await?;
        create_all(scene).await?;
        let names = OTHERS.map(|(name, _)| name);
        let mut runs = vec![];
        for name in ["bandwidth", "pings", "short"].into_iter().chain(names) {
            let run = scene.succeeded(name, seconds(120)).await?;
            has_result(&prometheus, scene, name, 60).await?;
            runs.push((name, run));
        }
        // Pods end after their last scrape, long before the limit of that wait.
        for (name, _) in &runs {
            scene.no_pods(name).await?;
        }
        let namespace = &scene.namespace;
        let success =
            format!("perfrun_schedule_last_success_timestamp_seconds{{run_namespace=\"{namespace}\"}}");
        has(&prometheus, "the success of the schedule", &success, 180).await?;
        let to = now();
        let scope = |run, workload| Scope {
            run,
            workload,
            namespace: &scene.namespace,
            from,
            to,
            interval: 1.0,
        };
        // The pods of the short run may not have been discovered in time.
        runs.retain(|(name, _)| *name != "short");
        for (name, run) in &runs {
            agrees(scene, &prometheus, run, &scope(name, run.spec.workload.name())).await?;
        }
        let scopes: Vec<_> = runs
            .iter()
            .map(|(name, run)| scope(name, run.spec.workload.name()))
            .collect();
        let mut without = vec![(
            "Time throttled by CPU limits",
            "pods of this cluster may see no cpu.stat",
        )];
        let statuses = runs.iter().filter_map(|(_, run)| run.status.as_ref());
        without.extend(without_intervals(statuses.flat_map(|status| &status.comparisons)));
        let dashboards = all()?;
        let asked = all_have_data(&prometheus, &dashboards, &scopes, &without).await?;
        ensure!(asked > 50, "only {asked} queries have data");
        // As if the operator were gone by then. Panels about the operator show only the present.
        let dashboards = without_operator(dashboards, &prometheus, &scopes[0]).await?;
        for scope in &scopes {
            stays_when_targets_are_gone(&prometheus, &dashboards, scope, to + 600.0, "Succeeded").await?;
        }
        // The pods of a run of some seconds were gone before they were discovered, but its result was
        // exported.
        has_result(&slow, scene, "short", 40).await
    });
}

/// Draws the dashboard of the operator, and returns the others.
async fn without_operator(
    dashboards: Vec<Dashboard>,
    prometheus: &Prometheus,
    scope: &Scope<'_>,
) -> Result<Vec<Dashboard>> {
    let (of_operator, others): (Vec<_>, Vec<_>) = dashboards
        .into_iter()
        .partition(|dashboard| dashboard.uid == "perfrun-operator");
    for dashboard in of_operator {
        keep_picture(prometheus, &dashboard, scope).await?;
    }
    Ok(others)
}

/// Creates all runs, and a schedule.
async fn create_all(scene: &Scene) -> Result<()> {
    scene.create("bandwidth", BANDWIDTH).await?;
    scene.create("pings", PINGS).await?;
    for (name, workload) in OTHERS {
        let spec = format!(
            "workload: {workload}\nmatrix: {{clients: [libp2p], servers: [libp2p], rawReference: false}}\n\
             iterations: 6\nwarmup: 0\ntopology: {{placement: Any, exclusive: false}}"
        );
        scene.create(name, &spec).await?;
    }
    scene
        .create("short", &TINY.replace("Any", "Any, exclusive: false"))
        .await?;
    let schedules: Api<PerfSchedule> = scene.api();
    schedules
        .create(&PostParams::default(), &every_minute("often")?)
        .await?;
    Ok(())
}

async fn agrees(scene: &Scene, prometheus: &Prometheus, run: &PerfRun, scope: &Scope<'_>) -> Result<()> {
    let results = scene.results(run).await?;
    agrees_with(prometheus, &results, scope).await
}

/// Waits until Prometheus has the result of a run, which the operator exports.
async fn has_result(prometheus: &Prometheus, scene: &Scene, run: &str, limit: u64) -> Result<()> {
    let namespace = &scene.namespace;
    let median = format!("perfrun_result_median{{run_namespace=\"{namespace}\", run=\"{run}\"}}");
    has(prometheus, &format!("the result of {run}"), &median, limit).await
}

/// Waits until Prometheus has what a selector selects.
async fn has(prometheus: &Prometheus, what: &str, selector: &str, limit: u64) -> Result<()> {
    let query = format!("count({selector})");
    until(&format!("{what} is in Prometheus"), seconds(limit), async || {
        Ok(prometheus.number(&query).await?.filter(|count| *count > 0.0))
    })
    .await
    .map(drop)
    .with_context(|| prometheus.log())
}

/// A Prometheus that discovers the operators, and the nodes of this test, as one in the cluster would. It
/// scrapes them through the API server, since addresses of pods are not reachable from here.
async fn scraping(scene: &Scene, program: &OsStr, interval: u32, whom: &str) -> Result<Prometheus> {
    let Login {
        server,
        authority,
        certificate,
        key,
    } = Login::of(scene).await?;
    let kubeconfig = scene.cluster.kubeconfig().canonicalize()?;
    let (kubeconfig, namespace) = (kubeconfig.display(), &scene.namespace);
    let configuration = format!(
        "
global: {{scrape_interval: {interval}s}}
scrape_configs:
  - job_name: perfrun
    kubernetes_sd_configs:
      - role: pod
        kubeconfig_file: {kubeconfig}
        namespaces: {{names: [perfrun-system, {namespace}]}}
    scheme: https
    tls_config: {{ca_file: ca.crt, cert_file: client.crt, key_file: client.key}}
    relabel_configs:
      - source_labels: [__meta_kubernetes_pod_label_app_kubernetes_io_name, __meta_kubernetes_pod_container_port_name]
        regex: {whom}
        action: keep
      - source_labels: [__meta_kubernetes_namespace, __meta_kubernetes_pod_name, __meta_kubernetes_pod_container_port_number]
        regex: (.+);(.+);(.+)
        target_label: __metrics_path__
        replacement: /api/v1/namespaces/$1/pods/$2:$3/proxy/metrics
      - source_labels: [__meta_kubernetes_pod_name, __meta_kubernetes_pod_container_port_name]
        target_label: instance
      - source_labels: [__meta_kubernetes_namespace]
        target_label: namespace
      - source_labels: [__meta_kubernetes_pod_name]
        target_label: pod
      - target_label: __address__
        replacement: {server}
"
    );
    let files = [
        ("ca.crt", authority.as_str()),
        ("client.crt", &certificate),
        ("client.key", &key),
    ];
    Prometheus::start_this(program, &configuration, &files).await
}

/// How the cluster authenticates its administrator.
struct Login {
    server: String,
    authority: String,
    certificate: String,
    key: String,
}

impl Login {
    async fn of(scene: &Scene) -> Result<Self> {
        let server = kubeconfig_value(scene, "(index .clusters 0).cluster.server").await?;
        let user = "index (index .users 0).user";
        let cluster = "index (index .clusters 0).cluster";
        Ok(Self {
            server: server
                .trim_start_matches("https://")
                .trim_end_matches('/')
                .to_owned(),
            authority: kubeconfig_value(
                scene,
                &format!("{cluster} \"certificate-authority-data\" | base64decode"),
            )
            .await?,
            certificate: kubeconfig_value(
                scene,
                &format!("{user} \"client-certificate-data\" | base64decode"),
            )
            .await?,
            key: kubeconfig_value(scene, &format!("{user} \"client-key-data\" | base64decode")).await?,
        })
    }
}

/// The value of a template in the kubeconfig.
async fn kubeconfig_value(scene: &Scene, place: &str) -> Result<String> {
    let template = format!("--output=go-template={{{{{place}}}}}");
    let view = ["config", "view", "--raw", "--flatten", "--minify", &template];
    scene.kubectl(&view).await
}
