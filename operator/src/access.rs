//! Reaches the programs in pods: by pod IP, or through the API server's pod proxy where pod IPs are not
//! routable.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use async_trait::async_trait;
use clap::ValueEnum;
use kube::{Client, client::Body};
use perfrun_conductor::client::{BoxError, Request, Requester, Response, direct};
use perfrun_contract::node::{EPOCH_HEADER, TOKEN_HEADER};

/// The configured way to reach nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum NodeAccess {
    /// `direct` inside the cluster, `proxy` outside.
    Auto,
    /// By pod IP.
    Direct,
    /// Through the API server's pod proxy.
    Proxy,
}

/// How nodes are reached.
#[derive(Clone)]
pub(crate) enum Access {
    /// By pod IP.
    Direct,
    /// Through the API server's pod proxy.
    Proxy(Client),
}

impl Access {
    /// The configured access; `auto` depends on whether this process runs in a pod.
    pub(crate) fn new(configured: NodeAccess, client: Client) -> Self {
        let inside = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        match configured {
            NodeAccess::Direct => Self::Direct,
            NodeAccess::Auto if inside => Self::Direct,
            NodeAccess::Auto | NodeAccess::Proxy => Self::Proxy(client),
        }
    }

    /// Whether nodes see the API server as their caller, instead of an operator's pod.
    pub(crate) fn is_proxy(&self) -> bool {
        matches!(self, Self::Proxy(_))
    }

    /// Carries requests with this token to the program that listens at a port of a pod.
    pub(crate) fn requester(
        &self,
        pod: &PodAddress<'_>,
        port: u16,
        token: &str,
    ) -> Result<Arc<dyn Requester>, BoxError> {
        match self {
            Self::Direct => direct(&pod.base(port), token),
            Self::Proxy(client) => Ok(Arc::new(PodProxy::new(client, pod, port, token))),
        }
    }
}

/// The address of a pod, by either way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodAddress<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) ip: IpAddr,
}

impl PodAddress<'_> {
    fn base(&self, port: u16) -> String {
        format!("http://{}", SocketAddr::new(self.ip, port))
    }
}

struct PodProxy {
    client: Client,
    base: String,
    token: String,
}

impl PodProxy {
    fn new(client: &Client, pod: &PodAddress<'_>, port: u16, token: &str) -> Self {
        let PodAddress { namespace, name, .. } = pod;
        Self {
            client: client.clone(),
            base: format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy"),
            token: token.to_owned(),
        }
    }
}

#[async_trait]
impl Requester for PodProxy {
    async fn request(&self, request: Request<'_>) -> Result<Response, BoxError> {
        let sent = http::Request::builder()
            .method(request.method.as_ref())
            .uri(format!("{}{}", self.base, request.path))
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(TOKEN_HEADER, &self.token)
            .header(EPOCH_HEADER, request.epoch)
            .body(Body::from(request.body.unwrap_or_default()))?;
        let call = async { self.client.send(sent).await.map_err(BoxError::from) };
        let answer_budget = &request.answer_budget;
        answer_budget
            .read_answer(request.timeout, request.most_bytes, call)
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, net::Ipv4Addr};

    use http::Response;
    use perfrun_conductor::NodeClient;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn an_answer_behind_the_proxy_is_read_within_a_limit() {
        let serve = |_: http::Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from(vec![b' '; 1 << 20])))
        };
        let pod = PodAddress {
            namespace: "bench",
            name: "pod",
            ip: Ipv4Addr::LOCALHOST.into(),
        };
        let access = Access::Proxy(Client::new(service_fn(serve), "default"));
        let node = NodeClient::over(access.requester(&pod, 9090, "token").unwrap());
        assert_eq!(node.info().await.unwrap_err().category(), "TooLong");
    }
}
