//! A node reached directly over HTTP/1.1.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use perfrun_contract::node::EPOCH_HEADER;
use reqwest::{
    Client, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};

use super::{BoxError, Method, Request, Requester, Response, read_within};

/// A node that has not accepted a connection by then is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Nodes close connections that are idle for a minute: a call must not meet one that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps connections open between calls.
pub(super) struct Http {
    client: Client,
    base: String,
}

impl Http {
    pub(super) fn new(base: &str, token: &str) -> Result<Self, BoxError> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        let client = Client::builder()
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, authorization)]))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .http1_only()
            // Nodes are next door; a proxy from the environment would add its delay, or not find them.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .build()?;
        base.parse::<Url>()?;
        Ok(Self {
            client,
            base: base.trim_end_matches('/').to_owned(),
        })
    }
}

#[async_trait]
impl Requester for Http {
    async fn request(&self, request: Request<'_>) -> Result<Response, BoxError> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let url = format!("{}{}", self.base, request.path);
        let builder = self.client.request(method, url).timeout(request.timeout);
        let mut builder = builder.header(EPOCH_HEADER, request.epoch);
        if let Some(body) = request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        // The address is told apart from the token, and callers name the node: neither belongs into the
        // message.
        let response = builder.send().await.map_err(reqwest::Error::without_url)?;
        let status = response.status().as_u16();
        let body = http::Response::from(response).into_body();
        let body = read_within(body.map_err(reqwest::Error::without_url), request.most_bytes).await?;
        Ok(Response { status, body })
    }
}
