//! Elections by value, and leadership against a scripted API server.

use http::Method;
use tokio::time::timeout;

use super::*;
use crate::test_server::{Answer, TestServer};

const LEASES: &str = "/leases/perfrun-operator";
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/perfrun-system/leases/perfrun-operator";

fn election(holder: &str) -> Election {
    Election {
        name: "operator".to_owned(),
        holder: holder.to_owned(),
        last_lease: None,
    }
}

fn held_by(holder: &str, version: &str) -> Lease {
    let mut lease = election(holder).lease(None, Timestamp::UNIX_EPOCH);
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
fn a_lease_without_a_holder_is_taken() {
    let now = Instant::now();
    let spec = written(election("a").decide(None, now, Timestamp::UNIX_EPOCH));
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("a"), Some(1))
    );
    let spec = written(election("a").decide(Some(held_by("", "1")), now, Timestamp::UNIX_EPOCH));
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("a"), Some(2))
    );
}

#[test]
fn a_renewal_keeps_the_time_of_the_acquisition_and_names_the_version() {
    let mut a = election("a");
    let later: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let Step::Write(lease) = a.decide(Some(held_by("a", "7")), Instant::now(), later) else {
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
    let (mut b, start) = (election("b"), Instant::now());
    let mut step = |version, seconds| {
        let now = start + Duration::from_secs_f64(seconds);
        b.decide(Some(held_by("a", version)), now, Timestamp::UNIX_EPOCH)
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
fn an_operator_whose_lease_was_taken_has_lost_it() {
    let (mut a, now) = (election("a"), Instant::now());
    a.remember(held_by("a", "1"), now);
    let taken = Some(held_by("b", "2"));
    assert_eq!(a.decide(taken.clone(), now, Timestamp::UNIX_EPOCH), Step::Lost);
    assert_eq!(a.decide(taken, now, Timestamp::UNIX_EPOCH), Step::Wait);
    assert_eq!(a.without_holder(), None, "it is another's");
}

/// How many seconds a future takes by the paused clock.
async fn seconds(future: impl Future<Output = ()>) -> u64 {
    let start = Instant::now();
    future.await;
    start.elapsed().as_secs()
}

async fn leads_for(time: Duration, leader: &mut Leadership) {
    let ended = timeout(time, leader.keep_renewing()).await;
    assert!(ended.is_err(), "it no longer leads");
}

#[tokio::test(start_paused = true)]
async fn a_second_operator_leads_when_the_first_is_silent_or_has_released() {
    let server = TestServer::new();
    let mut first = server.leadership("first");
    first.acquire().await;
    let mut second = server.leadership("second");
    let took = seconds(async { drop(second.acquire().await) }).await;
    assert!((15..=18).contains(&took), "{took} s");
    second.release().await;
    let mut third = server.leadership("third");
    assert_eq!(seconds(async { drop(third.acquire().await) }).await, 0);
}

#[tokio::test(start_paused = true)]
async fn every_term_has_a_larger_epoch_than_those_before() {
    let server = TestServer::new();
    let mut epochs = vec![];
    for holder in ["a", "b", "a"] {
        let mut leadership = server.leadership(holder);
        epochs.push(leadership.acquire().await.epoch);
        leadership.release().await;
    }
    // Somebody deletes the Lease, whose transitions begin at 1 again, and it is created a second later.
    server.remove(PATH);
    server.leadership("c").acquire().await;
    server.change(PATH, |lease| {
        assert_eq!(lease["spec"]["leaseTransitions"], 1);
        lease["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z".into();
    });
    epochs.push(server.leadership("c").acquire().await.epoch);
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_leaders_after_the_lease_was_deleted_one_is_left_at_the_next_renewal() {
    let server = TestServer::new();
    let mut first = server.leadership("first");
    let term = first.acquire().await;
    server.remove(PATH);
    server.leadership("second").acquire().await;
    assert!(term.is_current(), "the first does not know it yet");
    assert_eq!(seconds(first.keep_renewing()).await, RENEW_PAUSE.as_secs());
    assert!(!term.is_current());
    assert_eq!(server.object(PATH).unwrap()["spec"]["holderIdentity"], "second");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_unnoticed_does_not_cost_the_lease() {
    let server = TestServer::new();
    let mut leader = server.leadership("leader");
    server.script_times(1, Method::GET, LEASES, Answer::Silence);
    let took = seconds(async { drop(leader.acquire().await) }).await;
    assert_eq!(took, 7, "an attempt and a pause");
    server.script_times(1, Method::PUT, LEASES, Answer::Silence);
    leads_for(Duration::from_secs(120), &mut leader).await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_renewal_counts_from_its_request() {
    let server = TestServer::new();
    let mut leader = server.leadership("leader");
    leader.acquire().await;
    // Another operator may lead 15 s after the Lease was written, whenever the answer arrives.
    server.script_times(1, Method::PUT, LEASES, Answer::DoLate(4));
    server.script_times(1, Method::GET, LEASES, Answer::DoLate(0));
    server.script(Method::GET, LEASES, Answer::Silence);
    let took = seconds(leader.keep_renewing()).await;
    assert!((12..=14).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_stands_still_is_noticed() {
    let server = TestServer::new();
    let health = Arc::new(Health::default());
    assert_eq!(health.check_alive(), Ok(()), "it has not begun");
    let mut leader = server.leadership("leader");
    leader.health = health.clone();
    // Neither an API server that is away nor a long term is a reason to restart.
    server.script_times(20, Method::GET, LEASES, Answer::Silence);
    leader.acquire().await;
    assert_eq!(health.check_alive(), Ok(()));
    leads_for(Duration::from_secs(600), &mut leader).await;
    assert_eq!(health.check_alive(), Ok(()));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(
        health.check_alive(),
        Err("the loop that renews the lease has stopped")
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_before_another_may_lead() {
    for answer in [
        Answer::Silence,
        Answer::Refuse(500, "etcd is away"),
        Answer::Refuse(429, "slow down"),
    ] {
        let server = TestServer::new();
        let mut leader = server.leadership("leader");
        leader.acquire().await;
        server.script(Method::GET, LEASES, answer);
        let took = seconds(leader.keep_renewing()).await;
        assert!((10..=12).contains(&took), "{answer:?}: {took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_a_short_outage() {
    let server = TestServer::new();
    let mut leader = server.leadership("leader");
    leader.acquire().await;
    server.script_times(3, Method::PUT, LEASES, Answer::Refuse(503, "etcd is away"));
    leads_for(Duration::from_secs(120), &mut leader).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_version_is_outdated_stops_immediately() {
    let server = TestServer::new();
    let mut leader = server.leadership("leader");
    leader.acquire().await;
    server.script_times(
        1,
        Method::PUT,
        LEASES,
        Answer::Refuse(409, "the object has been modified"),
    );
    assert_eq!(seconds(leader.keep_renewing()).await, 2);
}
