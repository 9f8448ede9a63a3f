//! Claims by value, and leadership against a scripted API server.

use http::Method;

use super::*;
use crate::test_server::{Answer, SYSTEM, TestServer};

const LEASES: &str = "/leases/operator";

fn claim(holder: &str) -> Claim {
    Claim {
        name: "operator".to_owned(),
        holder: holder.to_owned(),
        seen: None,
    }
}

fn held_by(holder: &str, version: &str) -> Lease {
    let mut lease = claim(holder).lease(None, Timestamp::UNIX_EPOCH);
    lease.metadata.resource_version = Some(version.to_owned());
    lease
}

fn written(step: Step) -> LeaseSpec {
    match step {
        Step::Write(lease) => lease.spec.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_that_nobody_holds_is_taken() {
    let now = Instant::now();
    let spec = written(claim("a").step(None, now, Timestamp::UNIX_EPOCH));
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("a"), Some(1))
    );
    let spec = written(claim("a").step(Some(held_by("", "1")), now, Timestamp::UNIX_EPOCH));
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("a"), Some(2))
    );
}

#[test]
fn a_renewal_keeps_the_time_of_the_acquisition_and_names_the_version() {
    let mut a = claim("a");
    let later: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let Step::Write(lease) = a.step(Some(held_by("a", "7")), Instant::now(), later) else {
        panic!("it holds the lease")
    };
    assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
    let spec = lease.spec.unwrap();
    assert_eq!(spec.acquire_time, Some(MicroTime(Timestamp::UNIX_EPOCH)));
    assert_eq!(spec.renew_time, Some(MicroTime(later)));
    assert_eq!(spec.lease_transitions, Some(1));
}

#[test]
fn a_holder_counts_as_gone_by_the_local_clock_only() {
    let (mut b, start) = (claim("b"), Instant::now());
    let mut step = |version, seconds| {
        let now = start + Duration::from_secs_f64(seconds);
        b.step(Some(held_by("a", version)), now, Timestamp::UNIX_EPOCH)
    };
    // The times in the Lease are those of 1970.
    assert_eq!(step("1", 0.0), Step::Wait);
    assert_eq!(step("1", 14.9), Step::Wait);
    assert_eq!(step("2", 14.95), Step::Wait, "renewed");
    assert_eq!(step("2", 29.9), Step::Wait);
    let spec = written(step("2", 29.95));
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("b"), Some(2))
    );
}

#[test]
fn a_claim_whose_lease_was_taken_is_lost() {
    let (mut a, now) = (claim("a"), Instant::now());
    a.see(held_by("a", "1"), now);
    let taken = Some(held_by("b", "2"));
    assert_eq!(a.step(taken.clone(), now, Timestamp::UNIX_EPOCH), Step::Lost);
    assert_eq!(a.step(taken, now, Timestamp::UNIX_EPOCH), Step::Wait);
    assert_eq!(a.released(), None, "it is another's");
}

fn leadership(server: &TestServer, holder: &str) -> Leadership {
    Leadership::new(server.client(), SYSTEM, "operator", holder.to_owned())
}

/// How many seconds a future takes by the paused clock.
async fn seconds(future: impl Future<Output = ()>) -> u64 {
    let start = Instant::now();
    future.await;
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_second_operator_leads_when_the_first_is_silent_or_has_released() {
    let server = TestServer::new();
    let mut first = leadership(&server, "first");
    first.acquire().await;
    let mut second = leadership(&server, "second");
    let took = seconds(second.acquire()).await;
    assert!((15..=18).contains(&took), "{took} s");
    second.release().await;
    assert_eq!(seconds(leadership(&server, "third").acquire()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_before_another_may_lead() {
    for answer in [
        Answer::Silence,
        Answer::Refuse(500, "etcd is away"),
        Answer::Refuse(429, "slow down"),
    ] {
        let server = TestServer::new();
        let mut leader = leadership(&server, "leader");
        leader.acquire().await;
        server.script(Method::GET, LEASES, answer);
        let took = seconds(leader.keep()).await;
        assert!((10..=12).contains(&took), "{answer:?}: {took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_a_short_outage() {
    let server = TestServer::new();
    let mut leader = leadership(&server, "leader");
    leader.acquire().await;
    server.script_times(3, Method::PUT, LEASES, Answer::Refuse(503, "etcd is away"));
    assert!(
        timeout(Duration::from_secs(120), leader.keep()).await.is_err(),
        "it leads on"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_version_is_outdated_stops_at_once() {
    let server = TestServer::new();
    let mut leader = leadership(&server, "leader");
    leader.acquire().await;
    server.script_times(
        1,
        Method::PUT,
        LEASES,
        Answer::Refuse(409, "the object has been modified"),
    );
    assert_eq!(seconds(leader.keep()).await, 2);
}
