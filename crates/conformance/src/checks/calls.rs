//! Each call, its statuses, and the token.

use std::time::Duration;

use futures::FutureExt;
use perfrun_contract::node::CONTRACT;
use tokio::time::{Instant, sleep};

use super::check;
use crate::{
    Check, NotPassed,
    call::{call, expect, expect_problem, with_headers},
    nodes::{Participant, TestNodes},
};

pub(super) fn checks() -> Vec<Check> {
    vec![
        check(
            "calls/info",
            "a node names this version of the contract, and what its stacks can do",
            |nodes| info(nodes).boxed(),
        ),
        check(
            "calls/clock",
            "a node's clock runs like any other and never steps back",
            |nodes| clock(nodes).boxed(),
        ),
        check(
            "calls/unknown",
            "an unknown path is 404, and another method 405, with a problem",
            |nodes| unknown(nodes).boxed(),
        ),
        check(
            "calls/health",
            "health, readiness and metrics need no token",
            |nodes| health(nodes).boxed(),
        ),
        check(
            "token/required",
            "a call without the token learns nothing, not even whether a path exists",
            |nodes| token(nodes).boxed(),
        ),
        check(
            "token/headers",
            "either of two headers may carry the token",
            |nodes| headers(nodes).boxed(),
        ),
        check(
            "token/epoch",
            "a call with a smaller epoch than one before is 412, and one with something else there 400",
            |nodes| epoch(nodes).boxed(),
        ),
    ]
}

async fn info(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let info = &nodes.node(Participant::Tested).await?.info;
    if info.contract != CONTRACT {
        return Err(format!(
            "contract is {}, and this perfrun speaks {CONTRACT}",
            info.contract
        )
        .into());
    }
    if info.stacks.is_empty() {
        return Err("stacks is empty".to_owned().into());
    }
    for stack in info.stacks.keys() {
        let Some(capabilities) = info.capabilities.get(stack) else {
            return Err(format!("capabilities has no entry for the stack {stack}").into());
        };
        let lists = [
            &capabilities.workloads,
            &capabilities.protocols,
            &capabilities.roles,
        ];
        if capabilities.wire.is_empty()
            || capabilities.transports.is_empty()
            || lists.iter().any(|list| list.is_empty())
        {
            return Err(format!(
                "the capabilities of {stack} need a wire, transports, workloads, protocols and roles"
            )
            .into());
        }
    }
    Ok(())
}

async fn clock(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    let read = async || {
        let before = Instant::now();
        let shown = node
            .client
            .clock()
            .await
            .map_err(|error| error.describe())?
            .nanoseconds;
        // The reading is between the two.
        Ok::<_, String>((before, Instant::now(), shown))
    };
    let (first, mut last) = (read().await?, read().await?);
    for _ in 0..20 {
        let next = read().await?;
        if next.2 < last.2 {
            return Err(format!("the clock stepped back, from {} to {}", last.2, next.2).into());
        }
        last = next;
        sleep(Duration::from_millis(10)).await;
    }
    let shown = Duration::from_nanos(last.2 - first.2);
    let (least, most) = (last.0 - first.1, last.1 - first.0);
    if shown < least.mul_f64(0.99) || shown > most.mul_f64(1.01) {
        return Err(format!("the clock showed {shown:?} in a time of {least:?} to {most:?}").into());
    }
    Ok(())
}

async fn unknown(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    for (method, path, status) in [
        ("GET", "/v1/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/v1/trials/none", 404),
        ("DELETE", "/v1/trials/none", 404),
        ("PUT", "/v1/trials/none/finish", 404),
        ("POST", "/v1/info", 405),
        ("PUT", "/v1/clock", 405),
        ("POST", "/v1/trials/none", 405),
    ] {
        expect_problem(
            call(node, method, path, None).await,
            &format!("{method} {path}"),
            status,
        )?;
    }
    Ok(())
}

async fn health(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    for path in ["/healthz", "/readyz", "/metrics"] {
        expect(
            with_headers(node, "GET", path, &[], None).await,
            &format!("GET {path} without a token"),
            200,
        )?;
    }
    Ok(())
}

async fn token(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    let token = node.running.token();
    let almost = format!("Authorization: Bearer {}", &token[..token.len() - 1]);
    let longer = format!("X-Perfrun-Token: {token}x");
    let bare = format!("Authorization: {token}");
    for headers in [
        &[][..],
        &["Authorization: Bearer wrong"],
        &[&almost],
        &[&longer],
        &[&bare],
    ] {
        for (method, path) in [
            ("GET", "/v1/info"),
            ("GET", "/v1/nothing"),
            ("DELETE", "/v1/trials/a"),
            ("PUT", "/v1/trials/a"),
        ] {
            let what = format!("{method} {path} with another token");
            expect(with_headers(node, method, path, headers, None).await, &what, 401)?;
        }
    }
    Ok(())
}

async fn headers(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    let token = node.running.token();
    let own = format!("X-Perfrun-Token: {token}");
    let bearer = format!("Authorization: Bearer {token}");
    for headers in [
        &[own.as_str()][..],
        &[&bearer],
        &["Authorization: Bearer of-a-proxy", &own],
        &[&bearer, "X-Perfrun-Token: wrong"],
    ] {
        expect(
            with_headers(node, "GET", "/v1/info", headers, None).await,
            "GET /v1/info with the token",
            200,
        )?;
    }
    Ok(())
}

async fn epoch(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    // This node refuses conductors without an epoch from now on.
    let node = nodes.take(Participant::Tested).await?;
    let bearer = format!("Authorization: Bearer {}", node.running.token());
    let epoch = |epoch| format!("X-Perfrun-Epoch: {epoch}");
    for (given, method, path, status) in [
        (None, "GET", "/v1/info", 200),
        (Some("7"), "GET", "/v1/info", 200),
        (Some("7"), "GET", "/v1/clock", 200),
        (Some("6"), "GET", "/v1/clock", 412),
        (Some("6"), "DELETE", "/v1/trials/none", 412),
        (None, "PUT", "/v1/trials/none/finish", 412),
        (Some("seven"), "GET", "/v1/clock", 400),
        (Some("9223372036854775808"), "GET", "/v1/clock", 400),
        (Some("9223372036854775807"), "GET", "/v1/clock", 200),
    ] {
        let headers: Vec<String> = [bearer.clone()].into_iter().chain(given.map(epoch)).collect();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let what = format!("{method} {path} with the epoch {}", given.unwrap_or("left out"));
        let answer = with_headers(&node, method, path, &headers, None).await;
        if status >= 400 {
            expect_problem(answer, &what, status)?;
        } else {
            expect(answer, &what, status)?;
        }
    }
    node.running.kill().await;
    Ok(())
}
