//! The life of a trial.

use std::time::Duration;

use futures::FutureExt;
use perfrun_contract::node::{Reason, Side, Start, TrialRequest};
use tokio::time::Instant;

use super::check_with;
use crate::{
    Check, NotPassed,
    call::{call, expect},
    nodes::{Node, Participant, TestNodes},
    trial::{Trial, forget},
};

pub(super) fn checks(simplest: &Result<Trial, String>) -> Vec<Check> {
    vec![
        check_with(
            "states/accepted",
            "a trial is 201, again 200, another under its id 409, and one beside it 423",
            simplest.clone(),
            |nodes, trial| accepted(nodes, trial).boxed(),
        ),
        check_with(
            "states/order",
            "states follow each other, and a wait ends when the state is later",
            simplest.clone(),
            |nodes, trial| order(nodes, trial).boxed(),
        ),
        check_with(
            "states/start",
            "a client begins at the requested moment of its own clock",
            simplest.clone(),
            |nodes, trial| start(nodes, trial).boxed(),
        ),
        check_with(
            "states/repeated",
            "start, finish and delete may be repeated, and forgotten trials are 404",
            simplest.clone(),
            |nodes, trial| repeated(nodes, trial).boxed(),
        ),
        check_with(
            "states/cancelled",
            "a trial is cancelled in every state, and the node takes the next one",
            simplest.clone(),
            |nodes, trial| cancelled(nodes, trial).boxed(),
        ),
        check_with(
            "states/timeout",
            "a trial ends as Timeout when its time is up",
            simplest.clone(),
            |nodes, trial| timeout(nodes, trial).boxed(),
        ),
        check_with(
            "states/many",
            "fifty trials follow each other, each forgotten after its outcome",
            simplest.clone(),
            |nodes, trial| many(nodes, trial).boxed(),
        ),
    ]
}

fn server(trial: &Trial) -> TrialRequest {
    trial.request(&trial.stacks[1], Side::Server)
}

fn text(request: &TrialRequest) -> String {
    serde_json::to_string(request).unwrap_or_default()
}

async fn put(
    node: &Node,
    id: &str,
    request: &TrialRequest,
    status: u16,
) -> Result<crate::call::Answer, String> {
    let path = format!("/v1/trials/{id}");
    let answer = call(node, "PUT", &path, Some(&text(request))).await;
    expect(answer, &format!("PUT {path}"), status)
}

async fn accepted(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    let request = server(&trial);
    let checked = async {
        put(node, "a", &request, 201).await?;
        put(node, "a", &request, 200).await?;
        let other = TrialRequest {
            timeout_seconds: request.timeout_seconds + 1.0,
            ..request.clone()
        };
        put(node, "a", &other, 409).await?;
        let busy = put(node, "b", &request, 423).await?;
        if busy.json()["trial"] != "a" {
            return Err(format!(
                "a problem of 423 must name the trial that keeps the node busy, not {:?}",
                busy.body
            ));
        }
        Ok(())
    }
    .await;
    forget(node, "a").await;
    Ok(checked?)
}

async fn order(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let [client, server] = nodes.several([Participant::Tested, Participant::Second]).await?;
    let checked = async {
        let addresses = trial.listen(server).await?;
        trial.dial(client, addresses).await?;
        let state = async |wait: f64, after: &str| {
            let path = format!("/v1/trials/a?wait={wait}&after={after}");
            let answer = expect(
                call(client, "GET", &path, None).await,
                &format!("GET {path}"),
                200,
            )?;
            let state = answer.json()["state"].as_str().unwrap_or_default().to_owned();
            Ok::<_, String>(state)
        };
        let begun = Instant::now();
        let waiting = state(0.5, "ready").await?;
        if waiting != "ready" || begun.elapsed() < Duration::from_millis(400) {
            return Err(format!(
                "a client waits for its start, and a call for a later state: it is {waiting} after {:?}",
                begun.elapsed()
            ));
        }
        expect(
            call(client, "GET", "/v1/trials/a?after=never", None).await,
            "GET with an unknown state",
            400,
        )?;
        trial.start(client).await?;
        let begun = Instant::now();
        let running = state(10.0, "ready").await?;
        let finished = state(10.0, "running").await?;
        if !["running", "finished"].contains(&running.as_str()) || finished != "finished" {
            return Err(format!(
                "after the start: expected running, then finished, not {running}, {finished}"
            ));
        }
        if begun.elapsed() > Duration::from_secs(9) {
            return Err(format!(
                "a wait must end when the state changes, not after {:?}",
                begun.elapsed()
            ));
        }
        Ok(())
    }
    .await;
    forget(client, "a").await;
    forget(server, "a").await;
    Ok(checked?)
}

async fn start(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let [client, server] = nodes.several([Participant::Tested, Participant::Second]).await?;
    let checked = async {
        let addresses = trial.listen(server).await?;
        trial.dial(client, addresses).await?;
        let at = trial.start_in(client, Duration::from_millis(500)).await?;
        let started = trial.outcome(client).await?.measured.started_nanoseconds;
        // Only an early start is the node's fault for certain: a busy machine is late.
        let late = started.and_then(|started| started.checked_sub(at));
        match late {
            Some(late) if late < 1_000_000_000 => Ok(()),
            _ => Err(format!(
                "the requested start is {at}, and startedNanoseconds is {started:?}"
            )),
        }
    }
    .await;
    forget(client, "a").await;
    forget(server, "a").await;
    Ok(checked?)
}

async fn repeated(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let [client, server] = nodes.several([Participant::Tested, Participant::Second]).await?;
    let checked = async {
        let addresses = trial.listen(server).await?;
        trial.dial(client, addresses).await?;
        let at_nanoseconds = trial.start(client).await?;
        let text = |at_nanoseconds: u64| serde_json::to_string(&Start { at_nanoseconds }).unwrap_or_default();
        for at in [at_nanoseconds, at_nanoseconds + 1] {
            let answer = call(client, "PUT", "/v1/trials/a/start", Some(&text(at))).await;
            expect(answer, "another PUT /v1/trials/a/start", 204)?;
        }
        trial.outcome(client).await?;
        for _ in 0..2 {
            let answer = call(server, "PUT", "/v1/trials/a/finish", None).await;
            expect(answer, "PUT /v1/trials/a/finish", 204)?;
        }
        trial.outcome(server).await?;
        expect(
            call(client, "DELETE", "/v1/trials/a", None).await,
            "DELETE of an ended trial",
            204,
        )?;
        expect(
            call(client, "DELETE", "/v1/trials/a", None).await,
            "DELETE of a forgotten trial",
            404,
        )?;
        expect(
            call(client, "GET", "/v1/trials/a", None).await,
            "GET of a forgotten trial",
            404,
        )?;
        Ok::<_, String>(())
    }
    .await;
    forget(client, "a").await;
    forget(server, "a").await;
    Ok(checked?)
}

/// Cancels, and expects the outcome within some seconds.
async fn cancel(node: &Node, trial: &Trial, in_state: &str) -> Result<(), String> {
    expect(
        call(node, "DELETE", &format!("/v1/trials/{}", trial.id), None).await,
        "DELETE of a trial in progress",
        204,
    )?;
    let begun = Instant::now();
    let outcome = trial.outcome(node).await?;
    let reason = outcome.failure.map(|failure| failure.reason);
    if reason != Some(Reason::Cancelled) || begun.elapsed() > Duration::from_secs(6) {
        return Err(format!(
            "a trial that is {in_state} must end as Cancelled within 6 s: it ended as {reason:?} after {:?}",
            begun.elapsed()
        ));
    }
    forget(node, &trial.id).await;
    Ok(())
}

async fn cancelled(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let [client, server] = nodes.several([Participant::Tested, Participant::Second]).await?;
    let checked = async {
        let addresses = trial.listen(server).await?;
        cancel(server, &trial, "ready as a server").await?;
        // Nobody listens there any more, and still it must end.
        let _ = trial.dial(client, addresses).await;
        forget(client, "a").await;
        let addresses = trial.listen(server).await?;
        trial.dial(client, addresses).await?;
        cancel(client, &trial, "ready as a client").await?;
        let addresses = server
            .client
            .status("a")
            .await
            .map_err(|error| error.describe())?
            .addresses;
        let long = Trial {
            parameters: super::ping(u32::MAX),
            ..trial.clone()
        };
        long.dial(client, addresses).await?;
        long.start(client).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel(client, &long, "running").await?;
        let next = Trial {
            id: "b".to_owned(),
            ..trial.clone()
        };
        forget(server, "a").await;
        let outcomes = next.run(client, server).await?;
        match outcomes.client.failure {
            Some(failure) => Err(format!(
                "the next trial failed: {}: {}",
                failure.reason, failure.message
            )),
            None => Ok(()),
        }
    }
    .await;
    forget(client, "a").await;
    forget(server, "a").await;
    Ok(checked?)
}

async fn timeout(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    let request = TrialRequest {
        timeout_seconds: 0.5,
        ..server(&trial)
    };
    put(node, "a", &request, 201).await?;
    let begun = Instant::now();
    let outcome = trial.outcome(node).await;
    forget(node, "a").await;
    let reason = outcome?.failure.map(|failure| failure.reason);
    if reason != Some(Reason::Timeout) || begun.elapsed() > Duration::from_secs(5) {
        return Err(format!(
            "expected Timeout after 0.5 s, not {reason:?} after {:?}",
            begun.elapsed()
        )
        .into());
    }
    Ok(())
}

async fn many(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let [client, server] = nodes.several([Participant::Tested, Participant::Second]).await?;
    let mut after_ten = None;
    for i in 0..50 {
        let next = Trial {
            id: format!("many-{i}"),
            ..trial.clone()
        };
        let outcomes = next.run(client, server).await?;
        if let Some(failure) = outcomes.client.failure.or(outcomes.server.failure) {
            return Err(format!("trial {i} failed: {}: {}", failure.reason, failure.message).into());
        }
        if i == 10 {
            after_ten = client.running.open_files();
        }
    }
    let status = client.client.status("many-0").await;
    if !matches!(status, Err(perfrun_conductor::client::Error::NotFound)) {
        return Err(format!("a forgotten trial is still known: {status:?}").into());
    }
    match (after_ten, client.running.open_files()) {
        (Some(before), Some(now)) if now > before + 20 => {
            Err(format!("the node has {now} open files after 50 trials, and had {before} after ten").into())
        }
        (Some(_), Some(_)) => Ok(()),
        _ => Err(NotPassed::Skipped(
            "50 trials ended well; the open files of the node, which the check is about, cannot be counted from here"
                .to_owned(),
        )),
    }
}
