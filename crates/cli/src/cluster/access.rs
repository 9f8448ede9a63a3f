//! Which cluster, and calls to it.

use std::{fmt::Write, future::Future, time::Duration};

use anyhow::anyhow;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::DeserializeGuard,
};
use perfrun_api::spec::PerfRun;
use tokio::time::timeout;

use super::error::{Act, Error};
use crate::args::{Target, program};

/// Objects are written by this name.
pub const FIELD_MANAGER: &str = "kubectl-perfrun";

/// How long the API server may take to accept a connection, and to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A PerfRun, or why what the cluster has is not one that this program can read.
pub type MaybeRun = DeserializeGuard<PerfRun>;

/// A cluster, and a namespace of it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    url: String,
    namespace: String,
    /// Whether the namespace was named on the command line.
    named: bool,
    /// What to repeat on the command line to come here again, but the namespace.
    place: String,
}

impl Cluster {
    /// Finds out how the cluster is reached. Nothing is sent to it yet.
    pub async fn find(target: &Target) -> anyhow::Result<Self> {
        // Causes of kube's errors are part of their text.
        let mut config = config(target).await.map_err(|error| {
            let error = match error {
                KubeconfigError::LoadContext(context) => format!("the kubeconfig has no context {context}"),
                other => other.to_string(),
            };
            anyhow!(
                "found no cluster: {error}; name a kubeconfig by --kubeconfig or KUBECONFIG, and one of its contexts by \
                 --context"
            )
        })?;
        config.connect_timeout = Some(CONNECT_LIMIT);
        let url = config.cluster_url.to_string();
        let namespace = target.namespace.clone();
        let client = Client::try_from(config.clone())
            .map_err(|error| anyhow!("unable to use what the kubeconfig says about {url}: {error}"))?;
        Ok(Self {
            client,
            url,
            named: namespace.is_some(),
            namespace: namespace.unwrap_or(config.default_namespace),
            place: place(target),
        })
    }

    /// The namespace that commands are about.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The same cluster, another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            named: self.named || namespace != self.namespace,
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// Whether the namespace was named on the command line.
    pub fn is_namespace_named(&self) -> bool {
        self.named
    }

    /// Its PerfRuns.
    pub fn runs(&self) -> Api<PerfRun> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Its PerfRuns, each of which may be one that this program cannot read.
    pub fn maybe_runs(&self) -> Api<MaybeRun> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The same of all namespaces.
    pub fn all_maybe_runs(&self) -> Api<MaybeRun> {
        Api::all(self.client.clone())
    }

    /// Its ConfigMaps.
    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Its pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits for an answer, within limits; says what was tried if there is none.
    pub async fn call<T>(
        &self,
        act: &Act<'_>,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        match timeout(ANSWER_LIMIT, answer).await {
            Ok(answer) => answer.map_err(|error| Error::of(error, act, &self.url)),
            Err(_) => Err(Error::Silent {
                url: self.url.clone(),
                limit: ANSWER_LIMIT,
            }),
        }
    }

    /// A command to type next.
    pub fn command(&self, command: &str) -> String {
        let namespace = if self.named {
            format!(" -n {}", self.namespace)
        } else {
            String::new()
        };
        format!("{} {command}{namespace}{}", program(), self.place)
    }
}

async fn config(target: &Target) -> Result<Config, KubeconfigError> {
    // Built together with the stacks under test rustls has two of these, and does not choose. Only the first call counts.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = KubeConfigOptions {
        context: target.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(file) = &target.kubeconfig {
        return Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await;
    }
    match Config::from_kubeconfig(&options).await {
        // In a pod, its service account; that knows no contexts.
        Err(error) if target.context.is_none() => Config::incluster().map_err(|_| error),
        config => config,
    }
}

fn place(target: &Target) -> String {
    let mut place = String::new();
    if let Some(context) = &target.context {
        let _ = write!(place, " --context {context}");
    }
    if let Some(file) = &target.kubeconfig {
        let _ = write!(place, " --kubeconfig {}", file.display());
    }
    place
}
