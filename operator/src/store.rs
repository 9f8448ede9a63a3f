//! `perfrun-operator store`: serves the results of one run from an object store or a volume, in a pod of its
//! own. It alone has the credentials: neither the operator nor a node does.
//!
//! | call | answer |
//! |---|---|
//! | `PUT /v1/parts/{name}` | 204; 409 if the part exists with other content: parts never change |
//! | `GET /v1/parts` | the names of all parts, as JSON |
//! | `GET /v1/parts/{name}` | the part; 413 if it is larger than parts are |
//! | `GET /readyz` | 200; needs no token |
//!
//! A store that refuses is 422, and one that may answer later 500. Bodies of failures are `{"message": …}`.

mod bucket;
mod https;
mod parts;
mod serve;

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use perfrun_serve::Limits;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::parts::Parts;
use crate::process::signal::stop_signal;

/// Connections at the same time, and how long each may be idle.
const LIMITS: Limits = Limits::new(64, Duration::from_secs(60));
/// The part that shows before any measurement that parts can be written.
const README: (&str, &str) = (
    "README",
    "Results of a PerfRun. `perfrun get results` reads them. Each other file is gzip: of trial records, one JSON document \
     per line, or of the results without them.\n",
);

/// See [`crate::args::Command::Store`].
#[derive(Clone, Debug, clap::Args)]
pub struct StoreArgs {
    /// Folder of the run: s3://…, gs://…, az://… or file:///….
    #[arg(long)]
    pub url: String,
    /// Address of the object store, unless it is that of its provider.
    #[arg(long)]
    pub endpoint: Option<String>,
    /// Folder with a file for each credential of the object store, for example `AWS_ACCESS_KEY_ID`.
    #[arg(long, value_name = "FOLDER")]
    pub credentials: Option<PathBuf>,
    /// Address to serve.
    #[arg(long)]
    pub listen: SocketAddr,
    /// File with the token that calls need. Without it, they need none.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Write nothing.
    #[arg(long)]
    pub read_only: bool,
}

/// Serves until a signal.
pub async fn run(settings: &StoreArgs) -> anyhow::Result<()> {
    let token = settings.token_file.as_ref().map(|file| {
        let text = fs::read_to_string(file);
        text.with_context(|| format!("failed to read the token from {}", file.display()))
    });
    let token = token.transpose()?;
    ensure!(
        token.is_some() || settings.listen.ip().is_loopback(),
        "without --token-file, --listen must be a loopback address: everybody could read the results"
    );
    let url = &settings.url;
    let parts = bucket::open(settings).with_context(|| format!("unable to use {url}"))?;
    check(&parts, settings.read_only)
        .await
        .with_context(|| format!("failed to use {url}: {}", advice(url)))?;
    let listener = TcpListener::bind(settings.listen).await;
    let listener = listener.with_context(|| format!("failed to listen on {}", settings.listen))?;
    tracing::info!(url, listen = %settings.listen, "serving results");
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let router = serve::router(parts, token.as_deref().map(str::trim), settings.read_only);
    let stopping = async {
        stop_signal().await;
        stopped.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = perfrun_serve::serve(listener, router, LIMITS, stop) => {}
        () = stopping => {}
    }
    Ok(())
}

/// Finds out whether the store can be used, before a run measures for hours.
async fn check(parts: &Parts, read_only: bool) -> object_store::Result<()> {
    if !read_only {
        let (name, text) = README;
        parts.put(name, text.into()).await?;
    }
    parts.list().await.map(drop)
}

/// What to do about a store that cannot be used.
fn advice(url: &str) -> &'static str {
    if url.starts_with("file:") {
        "permit group 65532 on the volume, as root: `chgrp 65532 FOLDER` and `chmod g+rwx FOLDER`"
    } else {
        "check the address, the Secret and what it may do"
    }
}

/// Whether a text has only characters that cannot change the rest of a path or of an address.
fn is_plain(text: &str) -> bool {
    let is_fine = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-');
    !text.is_empty() && text.chars().all(is_fine)
}

/// The calls of a program whose store is in memory.
#[cfg(test)]
pub(crate) fn in_memory(token: &str) -> axum::Router {
    let parts = Parts {
        store: std::sync::Arc::new(object_store::memory::InMemory::new()),
        folder: object_store::path::Path::from("results"),
    };
    serve::router(parts, Some(token), false)
}

#[cfg(test)]
mod tests;
