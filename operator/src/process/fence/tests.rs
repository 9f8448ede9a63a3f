//! Operators that stand still, and operators beside one another, against a scripted API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};

use super::*;
use crate::test_server::TestServer;

/// Creates an object, lists it and deletes it.
async fn work(client: &Client, name: &str) -> [Result<(), String>; 3] {
    let api: Api<Pod> = Api::namespaced(client.clone(), "bench");
    let object = Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    };
    let text = |error: kube::Error| error.to_string();
    [
        api.create(&PostParams::default(), &object)
            .await
            .map(drop)
            .map_err(text),
        api.list(&ListParams::default()).await.map(drop).map_err(text),
        api.delete(name, &DeleteParams::default())
            .await
            .map(drop)
            .map_err(text),
    ]
}

fn is_refused(work: &[Result<(), String>; 3]) -> bool {
    let is_deposed = |result: &Result<(), String>| {
        result
            .as_ref()
            .is_err_and(|why| why.contains("has not renewed its lease in time"))
    };
    let [create, list, delete] = work;
    is_deposed(create) && list.is_ok() && is_deposed(delete)
}

fn is_done(work: &[Result<(), String>; 3]) -> bool {
    work.iter().all(Result::is_ok)
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stood_still_changes_nothing_before_it_has_noticed() {
    let server = TestServer::new();
    let mut first = server.leadership("first");
    let term = first.acquire().await;
    let client = term.fenced(&server.client());
    assert!(is_done(&work(&client, "a").await));
    // Nothing renews the Lease: the process stands still until another leads.
    let mut second = server.leadership("second");
    let next = second.acquire().await;
    server.take_changes();
    assert!(is_refused(&work(&client, "b").await));
    assert!(server.take_changes().is_empty());
    assert!(is_done(&work(&next.fenced(&server.client()), "b").await));
    assert!(next.epoch > term.epoch);
    // It notices at its next turn.
    let noticed = tokio::time::timeout(Duration::from_secs(3), first.keep_renewing()).await;
    assert!(noticed.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_term_lasts_as_long_as_the_lease_is_renewed() {
    let server = TestServer::new();
    let mut leader = server.leadership("leader");
    let term = leader.acquire().await;
    let client = term.fenced(&server.client());
    let during = Duration::from_secs(120);
    assert!(
        tokio::time::timeout(during, leader.keep_renewing())
            .await
            .is_err(),
        "it still leads"
    );
    // Dropping the loop ended the term, with its last renewal two seconds ago.
    assert!(is_refused(&work(&client, "a").await));
    let term = leader.acquire().await;
    let client = term.fenced(&server.client());
    tokio::join!(
        async { drop(tokio::time::timeout(during, leader.keep_renewing()).await) },
        async {
            for turn in 0..11 {
                tokio::time::sleep(Duration::from_secs(10)).await;
                assert!(is_done(&work(&client, &turn.to_string()).await), "{turn}");
            }
        }
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_renewal_that_was_requested_later_confirms_a_term() {
    let (renew, term) = Term::begin(1, Instant::now());
    let confirmed = term.wait_for_renewal();
    tokio::pin!(confirmed);
    let soon = Duration::from_secs(1);
    assert!(tokio::time::timeout(soon, &mut confirmed).await.is_err());
    renew.send_replace(Instant::now() - soon * 2);
    assert!(tokio::time::timeout(soon, &mut confirmed).await.is_err());
    renew.send_replace(Instant::now());
    confirmed.await;
    drop(renew);
    assert!(tokio::time::timeout(soon, term.wait_for_renewal()).await.is_err());
}
