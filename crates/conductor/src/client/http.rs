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
    /// Makes a client without connections.
    make_client: fn(&HeaderValue) -> reqwest::Result<Client>,
    authorization: HeaderValue,
    base: String,
}

impl Http {
    pub(super) fn new(base: &str, token: &str) -> Result<Self, BoxError> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        base.parse::<Url>()?;
        Ok(Self {
            client: Mutex::new(Self::make_client(&authorization)?),
            make_client: Self::make_client,
            authorization,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// A client without connections.
    fn make_client(authorization: &HeaderValue) -> reqwest::Result<Client> {
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

    /// Connects for the next calls, instead of using connections again. If that is not possible, memory stays
    /// in use, and the answer that was read is as good as any.
    fn reconnect(&self) {
        match (self.make_client)(&self.authorization) {
            Ok(client) => *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client,
            Err(error) => tracing::warn!(%error, "connections to a node are used again"),
        }
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
        // Callers name the node, so messages do without its address.
        let call = async {
            let answer = builder.send().await.map_err(reqwest::Error::without_url)?;
            let answer = http::Response::from(answer);
            Ok::<_, BoxError>(answer.map(|body| body.map_err(reqwest::Error::without_url)))
        };
        let answer_budget = &request.answer_budget;
        let answer = answer_budget
            .read_answer(request.timeout, request.most_bytes, call)
            .await?;
        if answer.permit.is_some() && answer.body.len() > BUFFERED_BYTES {
            self.reconnect();
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::client::AnswerBudget;

    #[tokio::test]
    async fn a_long_answer_is_not_lost_if_the_next_call_cannot_have_a_client_of_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let mut http = Http::new(&base, "x").unwrap();
        http.make_client = |_| Client::builder().user_agent("\n").build();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = stream.read(&mut [0; 4096]).await.unwrap();
            assert!(read > 0);
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n".to_vec();
            let answer = [head, vec![b'x'; 1 << 20]].concat();
            stream.write_all(&answer).await.unwrap();
        });
        let request = Request {
            method: Method::Get,
            path: "/metrics",
            body: None,
            epoch: 1,
            timeout: Duration::from_secs(60),
            most_bytes: 8 << 20,
            answer_budget: AnswerBudget::of_process(),
        };
        let answer = http.request(request).await.unwrap();
        assert_eq!(answer.body.len(), 1 << 20);
    }
}
