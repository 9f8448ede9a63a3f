//! A node reached directly over HTTP/1.1.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use http_body_util::BodyExt;
use perfrun_contract::node::EPOCH_HEADER;
use reqwest::{
    Client, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};

use super::{BoxError, Method, Request, Requester, Response};

/// A node that has not accepted a connection by then is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Nodes close connections that are idle for a minute: a call must not meet one that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// After a longer answer that took room, connections are not used again: the buffer of each grows with the
/// answers, up to 400 KiB, and a run may have hundreds of nodes.
const BUFFERED_BYTES: usize = 64 << 10;

/// Keeps connections open between calls.
pub(super) struct Http {
    client: Mutex<Client>,
    authorization: HeaderValue,
    base: String,
}

impl Http {
    pub(super) fn new(base: &str, token: &str) -> Result<Self, BoxError> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        base.parse::<Url>()?;
        Ok(Self {
            client: Mutex::new(Self::connecting(&authorization)?),
            authorization,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// A client without connections.
    fn connecting(authorization: &HeaderValue) -> reqwest::Result<Client> {
        let authorization = authorization.clone();
        Client::builder()
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, authorization)]))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .http1_only()
            // Nodes are next door; a proxy from the environment would add its delay, or not find them.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .build()
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connects for the next calls, instead of using connections again.
    fn reconnect(&self) -> Result<(), BoxError> {
        let client = Self::connecting(&self.authorization)?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
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
        let mut builder = self
            .client()
            .request(method, url)
            .header(EPOCH_HEADER, request.epoch);
        if let Some(body) = request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        // The address is told apart from the token, and callers name the node: neither belongs into the
        // message.
        let call = async {
            let answer = builder.send().await.map_err(reqwest::Error::without_url)?;
            let answer = http::Response::from(answer);
            Ok::<_, BoxError>(answer.map(|body| body.map_err(reqwest::Error::without_url)))
        };
        let reading = &request.reading;
        let answer = reading.answer(request.timeout, request.most_bytes, call).await?;
        if answer.held.is_some() && answer.body.len() > BUFFERED_BYTES {
            self.reconnect()?;
        }
        Ok(answer)
    }
}
