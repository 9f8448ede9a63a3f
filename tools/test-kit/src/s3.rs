//! An S3-compatible store on this machine. Its objects are files.

use std::{fs, net::IpAddr, path::Path};

use anyhow::{Context, Result, anyhow};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

/// The bucket of the store.
pub const BUCKET: &str = "results";

/// The access key of the store, and its secret.
pub const KEY: (&str, &str) = ("perfrun", "password");

/// Serves a store until the runtime ends, on a free port of this address, and returns its URL. The bucket is
/// a new folder in `folder`.
///
/// # Errors
///
/// If the folder cannot be made, or the address is not one of this machine.
pub async fn serve(address: IpAddr, folder: &Path) -> Result<String> {
    fs::create_dir(folder.join(BUCKET)).context("failed to make the folder of a bucket")?;
    let files = FileSystem::new(folder);
    let files = files.map_err(|error| anyhow!("failed to open the folder of a store: {error:?}"))?;
    let mut service = S3ServiceBuilder::new(files);
    service.set_auth(SimpleAuth::from_single(KEY.0, KEY.1));
    let service = service.build();
    let listener = TcpListener::bind((address, 0)).await;
    let listener = listener.with_context(|| format!("failed to listen on {address}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        // Without the store, the test fails.
        while let Ok((stream, _)) = listener.accept().await {
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(served);
        }
    });
    Ok(url)
}
