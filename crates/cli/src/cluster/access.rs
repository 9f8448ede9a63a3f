//! Finding the API server of a cluster, and calls to it.

use std::{fmt::Write, future::Future, time::Duration};

use anyhow::anyhow;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::DeserializeGuard,
};
use perfrun_api::{pod::CONTROL_PORT, spec::PerfRun};
use tokio::{io::DuplexStream, time::timeout};

use super::error::{Call, Error};
use crate::args::{Target, program};

/// The field manager of all objects that this program writes.
pub(super) const FIELD_MANAGER: &str = "kubectl-perfrun";

/// How long the API server may take to accept a connection, and to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A PerfRun, or why this program cannot read it.
pub(super) type MaybeRun = DeserializeGuard<PerfRun>;

/// A cluster, and a namespace in it.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    url: String,
    namespace: String,
    /// Whether the namespace was named on the command line.
    named: bool,
    /// The options that select this cluster, for commands that messages suggest. Without the namespace.
    options: String,
}

impl Cluster {
    /// Reads how to reach the cluster. Sends nothing to it yet.
    pub(super) async fn find(target: &Target) -> anyhow::Result<Self> {
        // The text of kube's errors includes their causes.
        let mut config = config(target).await.map_err(|error| {
            let error = match error {
                KubeconfigError::LoadContext(context) => format!("the kubeconfig has no context {context}"),
                other => other.to_string(),
            };
            anyhow!(
                "no cluster found: {error}; set --kubeconfig or KUBECONFIG, and choose a context with --context"
            )
        })?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let url = config.cluster_url.to_string();
        let namespace = target.namespace.clone();
        let client = Client::try_from(config.clone())
            .map_err(|error| anyhow!("unable to use the settings of the kubeconfig for {url}: {error}"))?;
        Ok(Self {
            client,
            url,
            named: namespace.is_some(),
            namespace: namespace.unwrap_or(config.default_namespace),
            options: options(target),
        })
    }

    /// The namespace of the command.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Another namespace in this cluster.
    pub(super) fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            named: self.named || namespace != self.namespace,
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// Whether the namespace was named on the command line.
    pub(super) fn is_namespace_named(&self) -> bool {
        self.named
    }

    /// The PerfRuns of the namespace.
    pub(super) fn runs(&self) -> Api<PerfRun> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The PerfRuns of the namespace, some of which this program may be unable to read.
    pub(super) fn maybe_runs(&self) -> Api<MaybeRun> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The PerfRuns of all namespaces, some of which this program may be unable to read.
    pub(super) fn all_maybe_runs(&self) -> Api<MaybeRun> {
        Api::all(self.client.clone())
    }

    /// The ConfigMaps of the namespace.
    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The pods of the namespace.
    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The Secrets of the namespace.
    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits for the answer to a call, up to a limit. Errors name the call.
    pub(super) async fn call<T>(
        &self,
        call: &Call<'_>,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        match timeout(ANSWER_TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|error| Error::of(error, call, &self.url)),
            Err(_) => Err(Error::Silent {
                url: self.url.clone(),
                limit: ANSWER_TIMEOUT,
            }),
        }
    }

    /// Deletes a pod, whose program has some seconds to exit. A pod that is gone is not an error.
    pub(super) async fn delete_pod(&self, name: &str, grace_seconds: u32) -> Result<(), Error> {
        let call = Call::of("delete", "pods", name);
        let params = DeleteParams::default().grace_period(grace_seconds);
        match self.call(&call, self.pods().delete(name, &params)).await {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// A command that the user can type next, for this cluster and namespace.
    pub(super) fn command(&self, command: &str) -> String {
        let namespace = if self.named {
            format!(" -n {}", self.namespace)
        } else {
            String::new()
        };
        format!("{} {command}{namespace}{}", program(), self.options)
    }
}

/// The parameters with which this program creates an object.
pub(super) fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// The parameters of a patch that is not an apply.
pub(super) fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Opens a connection to a pod's control port, as `kubectl port-forward` does.
pub(super) async fn open(pods: &Api<Pod>, name: &str) -> kube::Result<DuplexStream> {
    let mut forwarded = pods.portforward(name, &[CONTROL_PORT]).await?;
    Ok(forwarded
        .take_stream(CONTROL_PORT)
        .expect("the stream of a port that was named can be taken once"))
}

async fn config(target: &Target) -> Result<Config, KubeconfigError> {
    // Built together with the stacks under test, rustls has two providers and chooses neither. The first call
    // decides.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let selected = KubeConfigOptions {
        context: target.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(file) = &target.kubeconfig {
        return Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &selected).await;
    }
    match Config::from_kubeconfig(&selected).await {
        // In a pod, use its service account, which has no contexts.
        Err(error) if target.context.is_none() => Config::incluster().map_err(|_| error),
        config => config,
    }
}

fn options(target: &Target) -> String {
    let mut options = String::new();
    if let Some(context) = &target.context {
        let _ = write!(options, " --context {context}");
    }
    if let Some(file) = &target.kubeconfig {
        let _ = write!(options, " --kubeconfig {}", file.display());
    }
    options
}
