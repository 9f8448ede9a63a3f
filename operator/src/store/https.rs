//! The HTTP client of object stores. It has the certificates of public authorities with it: the operator's
//! image has none.

use std::{io, time::Duration};

use anyhow::Context;
use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect},
    rt::TokioExecutor,
};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::time::timeout;

/// How long a store may take to begin its answer. A part is small.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a connection to a store may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client over HTTP and HTTPS.
#[derive(Clone, Debug)]
pub(super) struct Https(legacy::Client<HttpsConnector<connect::HttpConnector>, HttpRequestBody>);

impl Https {
    /// Trusts public authorities, and these certificates, in PEM.
    pub(super) fn new(certificates: Option<&str>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for certificate in CertificateDer::pem_slice_iter(certificates.unwrap_or_default().as_bytes()) {
            let certificate = certificate.context("unable to read ca.crt of the Secret")?;
            roots
                .add(certificate)
                .context("unable to trust ca.crt of the Secret")?;
        }
        let tls = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .context("the provider of TLS has no protocol")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = connect::HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self(
            legacy::Client::builder(TokioExecutor::new()).build(connector),
        ))
    }
}

impl HttpConnector for Https {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Https {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = match timeout(ANSWER_TIMEOUT, self.0.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.is_connect() => {
                return Err(HttpError::new(HttpErrorKind::Connect, error));
            }
            Ok(Err(error)) => return Err(HttpError::new(HttpErrorKind::Request, error)),
            Err(_) => {
                let late = io::Error::other(format!("no answer within {ANSWER_TIMEOUT:?}"));
                return Err(HttpError::new(HttpErrorKind::Timeout, late));
            }
        };
        Ok(answer.map(|body| {
            HttpResponseBody::new(body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error)))
        }))
    }
}
