//! Single HTTP/1.1 calls on a connection of their own. A client library would not send wrong ones.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::nodes::Node;

/// How long an answer may take, beside the wait that the call requests.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer that is read. A node that sends more floods its caller.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// An answer: its status and its body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON; null if it is something else.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// A call to a node, with its token.
pub(crate) async fn call(
    node: &Node,
    method: &str,
    path: &str,
    body: Option<&str>,
) -> Result<Answer, String> {
    let token = format!("Authorization: Bearer {}", node.running.token());
    with_headers(node, method, path, &[&token], body).await
}

/// A call with these headers and no others but those that HTTP needs.
pub(crate) async fn with_headers(
    node: &Node,
    method: &str,
    path: &str,
    headers: &[&str],
    body: Option<&str>,
) -> Result<Answer, String> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n");
    for header in headers {
        let _ = write!(head, "{header}\r\n");
    }
    if let Some(body) = body {
        let _ = write!(
            head,
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
    }
    head += "\r\n";
    let bytes = [head.as_bytes(), body.unwrap_or_default().as_bytes()].concat();
    let answer = raw(node.running.control_addr(), &bytes).await;
    answer.map_err(|error| format!("{method} {path}: {error}"))
}

/// Sends bytes, and reads the answer until the node closes the connection.
async fn raw(to: SocketAddr, bytes: &[u8]) -> Result<Answer, String> {
    let exchange = async {
        let mut stream = TcpStream::connect(to).await?;
        // A node may refuse, and close, before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = vec![];
        let read = (&mut stream)
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut answer)
            .await;
        match read {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    };
    let answer = match timeout(ANSWER_TIMEOUT, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(format!("no answer: {error}")),
        Err(_) => return Err(format!("no complete answer within {ANSWER_TIMEOUT:?}")),
    };
    if answer.len() as u64 == ANSWER_BYTES_MAX {
        return Err(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the answer is not HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok(Answer {
        status: status.ok_or("the answer has no status")?,
        body: if is_chunked {
            unchunked(body)
        } else {
            body.to_owned()
        },
    })
}

/// The text of a chunked body.
fn unchunked(mut rest: &str) -> String {
    let mut text = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = after.get(..size).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        text += chunk;
        rest = after[size..].trim_start_matches("\r\n");
    }
    text
}

/// Opens a connection, sends some bytes, and leaves it open.
pub(crate) async fn leave_open(node: &Node, bytes: &[u8]) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(node.running.control_addr())
        .await
        .map_err(|error| format!("failed to connect: {error}"))?;
    let _ = stream.write_all(bytes).await;
    Ok(stream)
}

/// Fails unless an answer has a status.
pub(crate) fn expect(answer: Result<Answer, String>, what: &str, status: u16) -> Result<Answer, String> {
    let answer = answer?;
    if answer.status == status {
        return Ok(answer);
    }
    let body: String = answer.body.chars().take(300).collect();
    Err(format!(
        "{what}: expected status {status}, not {}: {body}",
        answer.status
    ))
}

/// Fails unless an answer has a status, and a problem as its body.
pub(crate) fn expect_problem(answer: Result<Answer, String>, what: &str, status: u16) -> Result<(), String> {
    let answer = expect(answer, what, status)?;
    if answer.json()["message"].as_str().is_none_or(str::is_empty) {
        let body = answer.body;
        return Err(format!(
            "{what}: the body must be a Problem with a message, not {body:?}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::unchunked;

    #[test]
    fn chunks_are_joined() {
        assert_eq!(unchunked("4\r\nab\r\n\r\n3\r\ncde\r\n0\r\n\r\n"), "ab\r\ncde");
        assert_eq!(unchunked("0\r\n\r\n"), "");
        assert_eq!(unchunked(""), "");
    }
}
