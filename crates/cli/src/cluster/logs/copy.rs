//! The log of one pod, line by line, to standard output.

use std::io::{self, Write, stderr, stdout};
use std::time::Duration;

use futures::{AsyncBufReadExt, AsyncRead, io::BufReader};
use jiff::Timestamp;
use kube::api::LogParams;
use tokio::time::sleep;

use super::{
    super::{
        access::Cluster,
        error::{Act, Error},
    },
    source::{CONTAINER, Source, sources},
};

/// Before a log that broke off is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// A log to copy.
pub struct Copy {
    /// Where.
    pub cluster: Cluster,
    /// Whose.
    pub source: Source,
    /// What begins each line, if there are other logs.
    pub prefix: Option<String>,
}

impl Copy {
    /// Copies what there is.
    pub async fn once(&self) -> anyhow::Result<()> {
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            ..LogParams::default()
        };
        let log = match self.open(&params).await {
            Ok(log) => log,
            // Its image may still be pulled, or it is gone since it was listed. The others have their logs.
            Err(error @ (Error::Accept { .. } | Error::Find { .. })) => {
                let _ = writeln!(stderr(), "perfrun: {}: {error}", self.source.label);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let mut lines = Lines::of(log);
        while let Some(line) = lines.next().await? {
            self.write(&line)?;
        }
        Ok(())
    }

    /// Copies until the container has ended; goes on where it was when the connection breaks.
    pub async fn until_it_ends(self) -> anyhow::Result<()> {
        let mut last: Option<Timestamp> = None;
        loop {
            // Asked first, so that what was logged before the end is not missed.
            let is_last = self.has_ended().await;
            let params = LogParams {
                container: Some(CONTAINER.to_owned()),
                follow: true,
                timestamps: true,
                since_time: last,
                ..LogParams::default()
            };
            match self.open(&params).await {
                Ok(log) => self.copy_from(log, &mut last).await?,
                Err(Error::Find { .. }) => return Ok(()),
                Err(error) => tracing::debug!(%error, pod = self.source.pod, "failed to open a log"),
            }
            if is_last {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }

    /// Copies what is newer than the last line that was copied, until the log ends or breaks off.
    async fn copy_from(&self, log: impl AsyncRead + Unpin, last: &mut Option<Timestamp>) -> io::Result<()> {
        let mut lines = Lines::of(log);
        let before = *last;
        while let Ok(Some(line)) = lines.next().await {
            let (at, text) = stamped(&line);
            // `since` is by the second only.
            if at.is_some() && at <= before {
                continue;
            }
            *last = at.or(*last);
            self.write(text)?;
        }
        Ok(())
    }

    async fn open(&self, params: &LogParams) -> Result<impl AsyncRead + use<>, Error> {
        let act = Act {
            verb: "get",
            resource: "pods/log",
            name: Some(&self.source.pod),
        };
        let pods = self.cluster.pods();
        let opened = pods.log_stream(&self.source.pod, params);
        Ok(Box::pin(self.cluster.call(&act, opened).await?))
    }

    async fn has_ended(&self) -> bool {
        let act = Act {
            verb: "get",
            resource: "pods",
            name: Some(&self.source.pod),
        };
        let pods = self.cluster.pods();
        match self.cluster.call(&act, pods.get(&self.source.pod)).await {
            Ok(pod) => sources(&[pod]).iter().all(|source| source.has_ended),
            Err(error) => error.is_missing(),
        }
    }

    /// A line as a whole, so that those of several nodes do not mix.
    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut out = stdout().lock();
        out.write_all(self.prefix.as_deref().unwrap_or_default().as_bytes())?;
        out.write_all(line)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

/// Lines of bytes: what nodes log need not be text.
struct Lines<R> {
    log: BufReader<R>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn of(log: R) -> Self {
        Self {
            log: BufReader::new(log),
        }
    }

    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = vec![];
        if self.log.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(Some(line))
    }
}

/// A line and when it was logged.
fn stamped(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let mut parts = line.splitn(2, |byte| *byte == b' ');
    let stamp = parts.next().and_then(|stamp| std::str::from_utf8(stamp).ok());
    match stamp.and_then(|stamp| stamp.parse().ok()) {
        Some(at) => (Some(at), parts.next().unwrap_or_default()),
        None => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_taken_off() {
        let at = "2026-01-01T12:00:00.123456789Z".parse().ok();
        assert_eq!(
            stamped(b"2026-01-01T12:00:00.123456789Z a b"),
            (at, b"a b".as_slice())
        );
        assert_eq!(stamped(b"2026-01-01T12:00:00.123456789Z"), (at, b"".as_slice()));
        assert_eq!(stamped(b"\xff no stamp"), (None, b"\xff no stamp".as_slice()));
    }

    #[tokio::test]
    async fn lines_are_bytes_and_the_last_need_not_end() {
        let mut lines = Lines::of(&b"one\n\n\xfftwo"[..]);
        assert_eq!(lines.next().await.unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(lines.next().await.unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(lines.next().await.unwrap().as_deref(), Some(&b"\xfftwo"[..]));
        assert_eq!(lines.next().await.unwrap(), None);
    }
}
