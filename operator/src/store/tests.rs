//! The program against stores in memory, in a folder, and behind S3.

use std::{net::Ipv4Addr, sync::Arc};

use axum::{Router, body::Body};
use http::{Request, StatusCode};
use object_store::{Error, ObjectStoreExt, memory::InMemory, path::Path};
use perfrun_api::pod::store::{PARTS, STORED_PART_BYTES};
use perfrun_conductor::client::read_within;
use perfrun_contract::node::TOKEN_HEADER;
use perfrun_test_kit::s3;
use tempfile::TempDir;
use tower::ServiceExt;

use super::*;

const FOLDER: &str = "nightly/bench/run/uid-1/v2";
const TOKEN: &str = "secret";

fn in_memory() -> Parts {
    Parts {
        store: Arc::new(InMemory::new()),
        folder: Path::from(FOLDER),
    }
}

fn settings(url: String) -> StoreArgs {
    StoreArgs {
        url,
        endpoint: None,
        credentials: None,
        listen: ([127, 0, 0, 1], 0).into(),
        token_file: None,
        read_only: false,
    }
}

/// What any store has to do.
async fn keeps_parts(parts: &Parts) {
    assert!(parts.list().await.unwrap().is_empty());
    assert!(parts.put("run-trials-0", "first".into()).await.unwrap());
    assert!(parts.put("run-trials-0", "first".into()).await.unwrap());
    assert!(!parts.put("run-trials-0", "other".into()).await.unwrap());
    assert!(parts.put("run-trials-1", "second".into()).await.unwrap());
    let mut names = parts.list().await.unwrap();
    names.sort();
    assert_eq!(names, ["run-trials-0", "run-trials-1"]);
    let first = parts.get("run-trials-0").await.unwrap().unwrap();
    assert_eq!(first.bytes().await.unwrap(), "first");
    assert!(parts.get("run-trials-2").await.unwrap().is_none());
    check(parts, false).await.unwrap();
    check(parts, false).await.unwrap();
    assert_eq!(parts.list().await.unwrap().len(), 3);
}

#[tokio::test]
async fn parts_in_memory_never_change() {
    keeps_parts(&in_memory()).await;
}

#[tokio::test]
async fn parts_on_a_volume_never_change() {
    let volume = TempDir::new().unwrap();
    let url = format!("file://{}/{FOLDER}", volume.path().display());
    keeps_parts(&bucket::open(&settings(url)).unwrap()).await;
    assert!(volume.path().join(FOLDER).join("run-trials-0").is_file());
}

#[tokio::test]
async fn a_volume_that_cannot_be_used_says_what_to_permit() {
    let volume = TempDir::new().unwrap();
    // Root may write to every folder, and not below a file.
    fs::write(volume.path().join("file"), "").unwrap();
    let url = format!("file://{}/file/{FOLDER}", volume.path().display());
    let error = run(&settings(url)).await.unwrap_err().to_string();
    assert!(error.contains("chgrp 65532 FOLDER"), "{error}");
}

/// An S3-compatible store with a bucket, and the settings to use it.
struct S3 {
    credentials: TempDir,
    _objects: TempDir,
    settings: StoreArgs,
}

impl S3 {
    async fn start() -> Self {
        let (objects, credentials) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let endpoint = s3::serve(Ipv4Addr::LOCALHOST.into(), objects.path())
            .await
            .unwrap();
        let settings = StoreArgs {
            endpoint: Some(endpoint),
            credentials: Some(credentials.path().to_owned()),
            ..settings(format!("s3://{}/{FOLDER}", s3::BUCKET))
        };
        let (key, secret) = s3::KEY;
        let s3 = Self {
            credentials,
            _objects: objects,
            settings,
        };
        s3.set("AWS_ACCESS_KEY_ID", key);
        s3.set("AWS_SECRET_ACCESS_KEY", &format!("{secret}\n"));
        s3.set("notes", "no setting");
        s3
    }

    fn set(&self, key: &str, value: &str) {
        fs::write(self.credentials.path().join(key), value).unwrap();
    }
}

#[tokio::test]
async fn parts_in_an_s3_compatible_store_never_change() {
    let s3 = S3::start().await;
    keeps_parts(&bucket::open(&s3.settings).unwrap()).await;
}

#[tokio::test]
async fn a_store_that_refuses_is_found_before_any_measurement() {
    let s3 = S3::start().await;
    s3.set("AWS_SECRET_ACCESS_KEY", "wrong");
    let error = check(&bucket::open(&s3.settings).unwrap(), false)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
}

#[test]
fn a_secret_without_credentials_is_not_replaced_by_those_of_the_machine() {
    for (url, key) in [
        ("s3://results/a", "AWS_ACCESS_KEY_ID"),
        ("gs://results/a", "GOOGLE_SERVICE_ACCOUNT_KEY"),
        (
            "az://results/a",
            "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY",
        ),
    ] {
        let error = bucket::open(&settings(url.to_owned())).unwrap_err();
        let message = format!("the Secret has no credentials: it needs one of {key}");
        assert!(error.to_string().starts_with(&message), "{error}");
    }
}

#[tokio::test]
async fn a_key_of_the_secret_that_is_not_a_credential_is_ignored() {
    let s3 = S3::start().await;
    s3.set("AWS_ENDPOINT", "http://127.0.0.1:1");
    s3.set("AWS_SKIP_SIGNATURE", "true");
    fs::write(s3.credentials.path().join("AWS_BUCKET"), [0xff]).unwrap();
    keeps_parts(&bucket::open(&s3.settings).unwrap()).await;
}

/// The settings of a Secret with these keys, and its folder.
fn with_secret(url: &str, keys: &[(&str, &str)]) -> (StoreArgs, TempDir) {
    let secret = TempDir::new().unwrap();
    for (key, value) in keys {
        fs::write(secret.path().join(key), value).unwrap();
    }
    let settings = StoreArgs {
        credentials: Some(secret.path().to_owned()),
        ..settings(url.to_owned())
    };
    (settings, secret)
}

#[test]
fn a_secret_does_not_choose_the_address() {
    let google = r#"{"gcs_base_url": "http://elsewhere", "disable_oauth": true, "private_key": "",
        "private_key_id": "", "client_email": ""}"#;
    for (url, keys, address) in [
        (
            "s3://results/a",
            [
                ("AWS_ACCESS_KEY_ID", "a"),
                ("AWS_SECRET_ACCESS_KEY", "b"),
                ("AWS_REGION", "eu-central-1"),
                ("AWS_ENDPOINT_URL", "http://elsewhere"),
            ],
            "s3.eu-central-1.amazonaws.com",
        ),
        (
            "gs://results/a",
            [
                ("GOOGLE_SERVICE_ACCOUNT_KEY", google),
                ("GOOGLE_BASE_URL", "http://elsewhere"),
                ("GOOGLE_PROXY_URL", "http://elsewhere"),
                ("GOOGLE_BUCKET", "elsewhere"),
            ],
            "storage.googleapis.com",
        ),
        (
            "az://results/a",
            [
                ("AZURE_STORAGE_ACCOUNT_NAME", "perfrun"),
                ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
                ("AZURE_ENDPOINT", "http://elsewhere"),
                ("AZURE_CONTAINER_NAME", "elsewhere"),
            ],
            "perfrun.blob.core.windows.net",
        ),
    ] {
        let (settings, _secret) = with_secret(url, &keys);
        let opened = format!("{:?}", bucket::open(&settings).unwrap());
        assert!(opened.contains(address), "{opened}");
        assert!(!opened.contains("elsewhere"), "{opened}");
    }
}

#[test]
fn a_region_or_an_account_that_is_no_name_is_refused() {
    for (url, keys) in [
        (
            "s3://results/a",
            [("AWS_REGION", "a.elsewhere/"), ("AWS_ACCESS_KEY_ID", "a")],
        ),
        (
            "az://results/a",
            [
                ("AZURE_STORAGE_ACCOUNT_NAME", "elsewhere/"),
                ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
            ],
        ),
    ] {
        let (settings, _secret) = with_secret(url, &keys);
        let error = bucket::open(&settings).unwrap_err();
        assert!(
            error.to_string().contains("lower-case letters, digits"),
            "{error}"
        );
    }
}

#[test]
fn a_url_of_no_known_store_is_refused() {
    for url in ["https://example.com/results", "memory:///results", "results"] {
        assert!(bucket::open(&settings(url.to_owned())).is_err(), "{url}");
    }
}

/// Status and body of the answer to a call.
async fn call(router: &Router, method: &str, path: &str, token: &str, body: Vec<u8>) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(TOKEN_HEADER, token)
        .body(Body::from(body));
    let answer = router.clone().oneshot(request.unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = read_within(answer.into_body(), 1000).await.unwrap();
    (status, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn calls_need_the_token_and_parts_have_names_and_bounds() {
    let router = serve::router(in_memory(), Some(TOKEN), false);
    let part = format!("{PARTS}/run-trials-0");
    let put = async |path: &str, body: Vec<u8>| call(&router, "PUT", path, TOKEN, body).await.0;
    for (method, path) in [("PUT", part.as_str()), ("GET", PARTS), ("GET", "/v1/other")] {
        let (status, message) = call(&router, method, path, "guess", vec![]).await;
        assert_eq!(status, 401, "{method} {path}");
        assert!(message.contains("token"), "{message}");
    }
    assert_eq!(call(&router, "GET", "/readyz", "", vec![]).await.0, 200);
    assert_eq!(put(&part, b"first".to_vec()).await, 204);
    assert_eq!(put(&part, b"first".to_vec()).await, 204);
    assert_eq!(put(&part, b"other".to_vec()).await, 409);
    assert_eq!(put(&format!("{PARTS}/..%2Fother"), vec![]).await, 400);
    let large = vec![0; STORED_PART_BYTES + 1];
    assert_eq!(put(&format!("{PARTS}/large"), large).await, 413);
    let read = call(&router, "GET", &part, TOKEN, vec![]).await;
    assert_eq!(read, (200, "first".to_owned()));
    let names = call(&router, "GET", PARTS, TOKEN, vec![]).await;
    assert_eq!(names, (200, r#"["run-trials-0"]"#.to_owned()));
    let absent = call(&router, "GET", &format!("{PARTS}/absent"), TOKEN, vec![]).await;
    assert_eq!(absent.0, StatusCode::NOT_FOUND.as_u16());
}

#[tokio::test]
async fn objects_that_are_not_parts_are_neither_listed_nor_sent() {
    let parts = in_memory();
    for (name, bytes) in [("README", 1), ("large", STORED_PART_BYTES + 1)] {
        let path = parts.folder.clone().join(name);
        parts.store.put(&path, vec![0_u8; bytes].into()).await.unwrap();
    }
    let router = serve::router(parts, None, true);
    let names = call(&router, "GET", PARTS, "", vec![]).await;
    assert_eq!(names, (200, r#"["large"]"#.to_owned()));
    let (status, message) = call(&router, "GET", &format!("{PARTS}/large"), "", vec![]).await;
    assert_eq!(status, 413);
    assert!(message.contains("which perfrun does not write"), "{message}");
}

#[tokio::test]
async fn a_reader_refuses_writes() {
    let parts = in_memory();
    check(&parts, true).await.unwrap();
    let router = serve::router(parts, None, true);
    let put = call(&router, "PUT", &format!("{PARTS}/a"), "", b"a".to_vec()).await;
    assert_eq!(put.0, StatusCode::METHOD_NOT_ALLOWED.as_u16());
    let names = call(&router, "GET", PARTS, "", vec![]).await;
    assert_eq!(names, (200, "[]".to_owned()));
}

#[tokio::test]
async fn a_store_server_on_the_network_requires_a_token() {
    let open = StoreArgs {
        listen: ([0, 0, 0, 0], 0).into(),
        ..settings("file:///absent".to_owned())
    };
    let error = run(&open).await.unwrap_err();
    assert!(error.to_string().contains("--token-file"), "{error}");
}
