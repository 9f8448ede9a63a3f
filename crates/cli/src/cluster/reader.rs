//! Results in an object store or on a volume: a pod reads them with the rights of the user, and this program
//! reaches it as `kubectl port-forward` does. The pod serves nobody else.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use axum::body::Bytes;
use http::{Request, StatusCode, header::HOST};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use perfrun_api::{
    cluster::{MANAGED_BY_LABEL, NAME_LABEL, Part, PartKind, TRIALS_KEY, Unreadable},
    memory_budget::MemoryBudget,
    pod::{
        PodState, state,
        store::{PARTS, STORED_PART_BYTES, StoreAccess, store_pod},
    },
    spec::{PerfRun, StoredResults},
    store::Store,
};
use perfrun_conductor::client::read_within;
use perfrun_contract::{node::Problem, text};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    access::{Cluster, FIELD_MANAGER, open, post_params},
    error::{Call, Error},
    follow::retry_until_answered,
};
use crate::ui::Screen;

/// How long the pod may take until it answers.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between two looks at the pod.
const PAUSE: Duration = Duration::from_millis(250);
/// A pod that nobody deletes, because perfrun was killed, ends after this time. The PerfRun owns it.
const SECONDS_MAX: i64 = 1800;

/// What it takes to read the results of a run.
pub(super) struct Reader<'a> {
    pub(super) run: &'a PerfRun,
    pub(super) store: &'a Store,
    pub(super) stored: &'a StoredResults,
}

impl Reader<'_> {
    /// The parts with these names. `None` at `stop`. Deletes the pod in any case.
    pub(super) async fn parts(
        &self,
        cluster: &Cluster,
        names: &[String],
        memory: &MemoryBudget,
        screen: &Screen,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Vec<Part>>> {
        let pod = self.pod();
        let name = pod.name_any();
        let creation = Call::of("create", "pods", &name);
        let pods = cluster.pods();
        let created = cluster.call(&creation, pods.create(&post_params(), &pod)).await;
        let read = match created {
            Ok(_) => {
                let read = read(cluster, &name, names, memory, screen);
                stop.run_until_cancelled(read).await.transpose()
            }
            // The answer may be lost, and not the pod.
            Err(error @ (Error::Silent { .. } | Error::ServerTrouble { .. })) => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = cluster.delete_pod(&name, 1).await {
            screen.print_line(&format!("perfrun: pod {name} is left: {error}"));
        }
        let location = &self.stored.location;
        read.with_context(|| format!("failed to read results from {location}"))
    }

    fn pod(&self) -> Pod {
        let (run, namespace) = (self.run.name_any(), self.run.namespace().unwrap_or_default());
        let uid = self.run.uid().unwrap_or_default();
        let url = self.store.url(&namespace, &run, &uid);
        let labels = [(NAME_LABEL, "perfrun-results"), (MANAGED_BY_LABEL, FIELD_MANAGER)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Pod {
            metadata: ObjectMeta {
                name: Some(format!("{run}-reader-{:08x}", rand::random::<u32>())),
                labels: Some(BTreeMap::from(labels)),
                owner_references: self.run.owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                active_deadline_seconds: Some(SECONDS_MAX),
                ..store_pod(
                    self.store,
                    &url,
                    &self.stored.image,
                    &self.stored.pull_secrets,
                    StoreAccess::Forwarded,
                )
            }),
            status: None,
        }
    }
}

/// A connection to the program in the pod, and the task that drives it.
type Connection = (http1::SendRequest<Empty<Bytes>>, JoinSet<hyper::Result<()>>);

async fn read(
    cluster: &Cluster,
    pod: &str,
    names: &[String],
    memory: &MemoryBudget,
    screen: &Screen,
) -> anyhow::Result<Vec<Part>> {
    let mut connection = connect(cluster, pod, screen).await?;
    let mut parts = vec![];
    for name in names {
        let (status, body) = get(&mut connection, &format!("{PARTS}/{name}")).await?;
        ensure!(status == StatusCode::OK, "{name}: {}", problem(status, &body));
        let part = (PartKind::of(name).map_or(TRIALS_KEY, PartKind::key), body);
        hold(&part, memory)?;
        parts.push(part);
    }
    Ok(parts)
}

/// Counts the memory of a part: it is there twice while all are put together.
pub(super) fn hold((_, bytes): &Part, memory: &MemoryBudget) -> Result<(), Unreadable> {
    match memory.take(2 * bytes.len() as u64) {
        true => Ok(()),
        false => Err(Unreadable::TooMuchMemory),
    }
}

/// Why a call failed. The words may be those of a store.
fn problem(status: StatusCode, body: &[u8]) -> String {
    let problem: Option<Problem> = serde_json::from_slice(body).ok();
    problem.map_or_else(
        || format!("status {status}"),
        |problem| text::message(&problem.message),
    )
}

/// Waits until the program answers.
async fn connect(cluster: &Cluster, pod: &str, screen: &Screen) -> anyhow::Result<Connection> {
    let until = Instant::now() + READY_TIMEOUT;
    loop {
        let (look, pods) = (Call::of("get", "pods", pod), cluster.pods());
        let seen = retry_until_answered(Some(screen), || cluster.call(&look, pods.get(pod))).await?;
        let why = match state(&seen) {
            PodState::Gone(cause) => bail!(cause.message),
            PodState::Stuck(cause) => anyhow!(cause.message),
            PodState::Starting => {
                anyhow!("pod {pod} is starting: kubectl describe pod {pod} shows its events")
            }
            // The program listens when it has reached the store.
            PodState::Ready(_) => match try_connect(cluster, pod).await {
                Ok(connection) => return Ok(connection),
                Err(error) if is_refused(&error) => return Err(error),
                Err(error) => error,
            },
        };
        ensure!(
            Instant::now() < until,
            "{why:#} (not ready within {READY_TIMEOUT:?})"
        );
        sleep(PAUSE).await;
    }
}

async fn try_connect(cluster: &Cluster, pod: &str) -> anyhow::Result<Connection> {
    let forwarding = Call::of("create", "pods/portforward", pod);
    let stream = cluster.call(&forwarding, open(&cluster.pods(), pod)).await?;
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(driver);
    let mut connection = (sender, tasks);
    let (status, _) = get(&mut connection, "/readyz").await?;
    ensure!(status == StatusCode::OK, "pod {pod} answers {status}");
    Ok(connection)
}

/// Whether the user may not forward ports.
fn is_refused(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| matches!(error, Error::Forbidden { .. } | Error::NotAdmitted { .. }))
}

async fn get((sender, _): &mut Connection, path: &str) -> anyhow::Result<(StatusCode, Vec<u8>)> {
    let request = Request::get(path).header(HOST, "results").body(Empty::new())?;
    // The connection may not have noticed the end of the last answer yet.
    sender.ready().await?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = read_within(answer.into_body(), STORED_PART_BYTES).await;
    let body = body.map_err(|error| anyhow!("failed to read {path}: {error}"))?;
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use http_body_util::Full;
    use hyper::{body::Incoming, server, service::service_fn};
    use perfrun_api::document;

    use super::*;

    const DOCUMENT: &str = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: run, namespace: bench, uid: uid-1}
spec:
  workload: {ping: {}}
  results: {store: {volume: {claim: disk}}}
";

    #[test]
    fn the_reader_pod_only_reads_and_serves_only_forwarded_connections() {
        let run = document::parse(DOCUMENT).unwrap().remove(0);
        let stored = StoredResults {
            location: String::new(),
            image: "registry/operator:1".to_owned(),
            pull_secrets: vec!["registry".to_owned()],
        };
        let store = run.spec.store().unwrap();
        let stored = &stored;
        let pod = Reader {
            run: &run,
            store,
            stored,
        }
        .pod();
        let pod = serde_json::to_value(pod).unwrap();
        let container = &pod["spec"]["containers"][0];
        assert_eq!(
            container["args"],
            serde_json::json!([
                "store",
                "--url=file:///run/results/bench/run/uid-1/v2",
                "--listen=127.0.0.1:9090",
                "--read-only"
            ])
        );
        assert_eq!(container["image"], "registry/operator:1");
        assert_eq!(
            pod["spec"]["imagePullSecrets"],
            serde_json::json!([{"name": "registry"}])
        );
        let mounts = serde_json::json!([{"mountPath": "/run/results", "name": "results", "readOnly": true}]);
        assert_eq!(container["volumeMounts"], mounts);
        assert_eq!(
            pod["spec"]["volumes"][0]["persistentVolumeClaim"],
            serde_json::json!({"claimName": "disk", "readOnly": true})
        );
    }

    #[tokio::test]
    async fn two_parts_come_over_one_connection() {
        let (near, far) = tokio::io::duplex(1 << 10);
        let (sender, driver) = http1::handshake(TokioIo::new(near)).await.unwrap();
        let echo = service_fn(|request: Request<Incoming>| async move {
            let path = request.uri().path().to_owned();
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(path))))
        });
        let served = server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), echo);
        let mut tasks = JoinSet::new();
        tasks.spawn(driver);
        tasks.spawn(served);
        let mut connection: Connection = (sender, tasks);
        for path in ["/first", "/second"] {
            let (status, body) = get(&mut connection, path).await.unwrap();
            assert_eq!((status, body.as_slice()), (StatusCode::OK, path.as_bytes()));
        }
    }

    #[test]
    fn the_message_of_a_store_cannot_control_a_terminal() {
        let refused = br#"{"message": "no\u001b[2J"}"#;
        assert_eq!(problem(StatusCode::UNPROCESSABLE_ENTITY, refused), "no [2J");
        assert_eq!(
            problem(StatusCode::BAD_GATEWAY, b"<html>"),
            "status 502 Bad Gateway"
        );
    }
}
