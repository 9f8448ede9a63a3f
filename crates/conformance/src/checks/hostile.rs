//! Callers that a node must survive.

use std::time::Duration;

use futures::{FutureExt, future::join_all};
use tokio::time::sleep;

use super::check;
use crate::{
    Check, NotPassed,
    call::{call, expect, expect_problem, leave_open},
    nodes::{Participant, TestNodes},
};

/// Above the largest body that a node reads.
const TOO_LARGE: usize = (4 << 20) + 1;

/// Connections that callers leave open. A node accepts at least 256.
const IDLE: usize = 200;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check(
            "hostile/bodies",
            "any other body than a request is 400 with a problem",
            |nodes| bodies(nodes).boxed(),
        ),
        check("hostile/large", "a body above 4 MiB is refused", |nodes| {
            large(nodes).boxed()
        }),
        check(
            "hostile/slow",
            "callers that send half a request, or nothing, block nobody",
            |nodes| slow(nodes).boxed(),
        ),
    ]
}

async fn bodies(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    for body in [
        "",
        "{",
        "null",
        "[]",
        "{}",
        "\"trial\"",
        "\u{0}",
        r#"{"stack": 1}"#,
        r#"{"stack": "no such stack", "transport": "tcp", "timeoutSeconds": 1, "side": "server", "parameters": {"workload": "ping", "count": 1, "intervalSeconds": 0}}"#,
    ] {
        let what = format!("PUT /v1/trials/a with {body:?}");
        expect_problem(call(node, "PUT", "/v1/trials/a", Some(body)).await, &what, 400)?;
    }
    let deep = "[".repeat(100_000);
    expect(
        call(node, "PUT", "/v1/trials/a", Some(&deep)).await,
        "PUT /v1/trials/a with 100000 brackets",
        400,
    )?;
    expect(
        call(node, "GET", "/v1/trials/a", None).await,
        "GET /v1/trials/a after refused requests",
        404,
    )?;
    Ok(())
}

async fn large(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    let body = " ".repeat(TOO_LARGE);
    // A node may close the connection before it has read everything, and then the answer may be lost.
    match call(node, "PUT", "/v1/trials/a", Some(&body)).await {
        Ok(answer) if answer.status != 400 && answer.status != 413 => {
            return Err(format!(
                "a body of {TOO_LARGE} bytes: expected status 400, not {}",
                answer.status
            )
            .into());
        }
        _ => {}
    }
    expect(
        call(node, "GET", "/v1/clock", None).await,
        "GET /v1/clock after a large body",
        200,
    )?;
    Ok(())
}

async fn slow(nodes: &mut TestNodes) -> Result<(), NotPassed> {
    let node = nodes.node(Participant::Tested).await?;
    let half: &[&[u8]] = &[
        b"",
        b"GET /v1/in",
        b"PUT /v1/trials/a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
    ];
    let open = join_all((0..IDLE).map(|i| leave_open(node, half[i % half.len()]))).await;
    let _open: Vec<_> = open.into_iter().collect::<Result<_, _>>()?;
    sleep(Duration::from_millis(100)).await;
    let what = format!("GET /v1/clock beside {IDLE} idle connections");
    expect(call(node, "GET", "/v1/clock", None).await, &what, 200)?;
    Ok(())
}
