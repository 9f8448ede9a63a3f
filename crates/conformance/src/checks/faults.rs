//! What a node does when its peers, or it itself, come to an end.

use std::time::Duration;

use futures::FutureExt;
use perfrun_contract::node::Reason;
use tokio::time::{Instant, sleep, timeout};

use super::{check_with, ping};
use crate::{
    Check, NotPassed,
    call::{call, expect},
    nodes::{EXIT_TIMEOUT, Participant, TestNodes},
    trial::{Trial, forget},
};

pub(super) fn checks(simplest: &Result<Trial, String>) -> Vec<Check> {
    vec![
        check_with(
            "faults/peer-killed",
            "a client whose server dies fails within seconds, with a reason, and answers calls afterwards",
            simplest.clone(),
            |nodes, trial| peer_killed(nodes, trial).boxed(),
        ),
        check_with(
            "faults/nobody",
            "a client that can reach nobody fails as DialFailed or Timeout",
            simplest.clone(),
            |nodes, trial| nobody(nodes, trial).boxed(),
        ),
        check_with(
            "faults/stopped",
            "on SIGTERM a node ends its trial as Stopped, lets it be collected, and exits",
            simplest.clone(),
            |nodes, trial| stopped(nodes, trial).boxed(),
        ),
    ]
}

async fn peer_killed(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let trial = Trial {
        parameters: ping(u32::MAX),
        ..trial
    };
    let server = nodes.take(Participant::Second).await?;
    let client = nodes.node(Participant::Tested).await?;
    let addresses = trial.listen(&server).await?;
    trial.dial(client, addresses).await?;
    trial.start(client).await?;
    sleep(Duration::from_millis(200)).await;
    server.running.kill().await;
    let begun = Instant::now();
    let outcome = trial.outcome(client).await;
    forget(client, "a").await;
    let reason = outcome?.failure.map(|failure| failure.reason);
    let is_expected = matches!(
        reason,
        Some(Reason::StreamFailed | Reason::TooFewBytes | Reason::Timeout)
    );
    if !is_expected || begun.elapsed() > Duration::from_secs(15) {
        return Err(format!(
            "expected StreamFailed, TooFewBytes or Timeout within 15 s, not {reason:?} after {:?}",
            begun.elapsed()
        )
        .into());
    }
    expect(
        call(client, "GET", "/v1/clock", None).await,
        "GET /v1/clock after the failure",
        200,
    )?;
    Ok(())
}

async fn nobody(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let [client, server] = nodes.several([Participant::Tested, Participant::Second]).await?;
    let addresses = trial.listen(server).await;
    forget(server, "a").await;
    let addresses = addresses?;
    let dialled = trial.dial(client, addresses).await;
    forget(client, "a").await;
    match dialled {
        Err(why) if why.contains("DialFailed") || why.contains("Timeout") => Ok(()),
        Err(why) => Err(format!("expected DialFailed or Timeout: {why}").into()),
        Ok(()) => Err("a client became ready although its server had ended"
            .to_owned()
            .into()),
    }
}

async fn stopped(nodes: &mut TestNodes, trial: Trial) -> Result<(), NotPassed> {
    let node = nodes.take(Participant::Tested).await?;
    trial.listen(&node).await?;
    let collect = trial.outcome(&node);
    let stop = node.running.stop(EXIT_TIMEOUT);
    let begun = Instant::now();
    let (outcome, exit) = tokio::join!(collect, timeout(EXIT_TIMEOUT * 2, stop));
    let reason = outcome?.failure.map(|failure| failure.reason);
    if reason != Some(Reason::Stopped) {
        return Err(format!("expected Stopped, not {reason:?}").into());
    }
    match exit {
        Ok(true) => Ok(()),
        _ => Err(format!(
            "the node did not exit within {EXIT_TIMEOUT:?} after SIGTERM, but after {:?}",
            begun.elapsed()
        )
        .into()),
    }
}
