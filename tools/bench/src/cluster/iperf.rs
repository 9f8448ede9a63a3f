//! Pods with iperf3.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use perfrun_e2e::{Scene, seconds, until};
use serde_json::json;

use crate::iperf::{SAME, goodput};

/// The image that `cargo xtask bench cluster` has loaded.
const IMAGE: &str = concat!("perfrun/iperf3:", env!("CARGO_PKG_VERSION"));

/// Two pods: a server, and one in which iperf3 is started as a client.
pub(super) struct IperfPods {
    client: String,
    address: String,
}

impl IperfPods {
    /// Starts the pods on these Kubernetes nodes, which may be the same.
    pub(super) async fn start(scene: &Scene, hosts: [&str; 2]) -> Result<Self> {
        let [server, client] = ["server", "client"].map(|role| format!("iperf3-{role}-{}", hosts[1]));
        for (name, host) in [&server, &client].into_iter().zip(hosts) {
            let created = scene
                .api()
                .create(&PostParams::default(), &pod(name, host)?)
                .await;
            created.with_context(|| format!("failed to create pod {name}"))?;
        }
        running(scene, &client).await?;
        let address = running(scene, &server).await?;
        Ok(Self { client, address })
    }

    /// One upload, in bit/s at the receiver.
    pub(super) async fn measure(&self, scene: &Scene, seconds: f64) -> Result<f64> {
        let seconds = seconds.ceil().to_string();
        let mut args = vec!["exec", &self.client, "--", "/usr/bin/iperf3", "-J"];
        args.extend(["-c", &self.address, "-t", &seconds]);
        args.extend(SAME.split(' '));
        goodput(scene.kubectl(&args).await?.as_bytes())
    }
}

fn pod(name: &str, host: &str) -> Result<Pod> {
    // As a node of a run: the same share of the processors, and no more rights.
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": host },
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" }
            },
            "containers": [{
                "name": "iperf3",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "args": ["-s"],
                "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] }
                },
                // iperf3 keeps its blocks in a file.
                "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }]
            }],
            "volumes": [{ "name": "tmp", "emptyDir": { "medium": "Memory" } }]
        }
    });
    serde_json::from_value(pod).context("the pod is well-formed")
}

/// Waits until a pod runs. Returns its address.
async fn running(scene: &Scene, name: &str) -> Result<String> {
    until(&format!("pod {name} runs"), seconds(60), async || {
        let pod: Pod = scene.api().get(name).await?;
        let status = pod.status.unwrap_or_default();
        Ok(status
            .pod_ip
            .filter(|_| status.phase.as_deref() == Some("Running")))
    })
    .await
}
