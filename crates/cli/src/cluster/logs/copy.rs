//! Copies the log of one pod to standard output, line by line.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write, stdout},
    time::Duration,
};

use futures::{AsyncBufReadExt, AsyncRead, io::BufReader};
use jiff::Timestamp;
use kube::api::LogParams;
use perfrun_api::pod::NODE_CONTAINER;
use perfrun_contract::text::plain;
use tokio::time::sleep;

use super::{
    super::{
        access::Cluster,
        error::{Call, Error},
    },
    source::{LogSource, sources},
};
use crate::output::write_line_to_stderr;

/// The pause before a log is opened again after its connection broke.
const PAUSE: Duration = Duration::from_secs(1);

/// A log to copy.
pub(super) struct Copy {
    pub cluster: Cluster,
    pub source: LogSource,
    /// Text before each line. `None` if there are no other logs.
    pub prefix: Option<String>,
}

impl Copy {
    /// Copies the log so far.
    pub(super) async fn copy_so_far(&self) -> anyhow::Result<()> {
        let params = LogParams {
            container: Some(NODE_CONTAINER.to_owned()),
            ..LogParams::default()
        };
        let log = match self.open(&params).await {
            Ok(log) => log,
            // The pod may still be pulling its image, or has been deleted. Other pods have their logs.
            Err(error @ (Error::Rejected { .. } | Error::NotFound { .. })) => {
                write_line_to_stderr(format_args!("perfrun: {}: {error}", self.source.label));
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

    /// Copies until the container has ended. Continues at the last line when the connection breaks.
    pub(super) async fn copy_until_end(self) -> anyhow::Result<()> {
        let mut last: Option<Timestamp> = None;
        loop {
            // Checked first, so that lines logged before the end are not missed.
            let is_last = self.has_ended().await;
            let params = LogParams {
                container: Some(NODE_CONTAINER.to_owned()),
                follow: true,
                timestamps: true,
                since_time: last,
                ..LogParams::default()
            };
            match self.open(&params).await {
                Ok(log) => self.copy_from(log, &mut last).await?,
                Err(Error::NotFound { .. }) => return Ok(()),
                Err(error) => tracing::debug!(%error, pod = self.source.pod, "failed to open a log"),
            }
            if is_last {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }

    /// Copies the lines after the last one copied, until the log ends or the connection breaks.
    async fn copy_from(&self, log: impl AsyncRead + Unpin, last: &mut Option<Timestamp>) -> io::Result<()> {
        let mut lines = Lines::of(log);
        let before = *last;
        while let Ok(Some(line)) = lines.next().await {
            let (at, text) = stamped(&line);
            // `since_time` has a resolution of one second.
            if at.is_some() && at <= before {
                continue;
            }
            *last = at.or(*last);
            self.write(text)?;
        }
        Ok(())
    }

    async fn open(&self, params: &LogParams) -> Result<impl AsyncRead + use<>, Error> {
        let call = Call::of("get", "pods/log", &self.source.pod);
        let pods = self.cluster.pods();
        let opened = pods.log_stream(&self.source.pod, params);
        Ok(Box::pin(self.cluster.call(&call, opened).await?))
    }

    async fn has_ended(&self) -> bool {
        let call = Call::of("get", "pods", &self.source.pod);
        let pods = self.cluster.pods();
        match self.cluster.call(&call, pods.get(&self.source.pod)).await {
            Ok(pod) => sources(&[pod]).iter().all(|source| source.has_ended),
            Err(error) => error.is_missing(),
        }
    }

    /// Writes a whole line, so that lines of several nodes do not mix.
    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut out = stdout().lock();
        let line = shown(line, out.is_terminal());
        out.write_all(self.prefix.as_deref().unwrap_or_default().as_bytes())?;
        out.write_all(&line)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

/// What is written of a line: any program may have logged it, and must not control a terminal. Files and
/// pipes get its bytes.
fn shown(line: &[u8], on_terminal: bool) -> Cow<'_, [u8]> {
    match on_terminal {
        true => plain(&String::from_utf8_lossy(line)).into_bytes().into(),
        false => line.into(),
    }
}

/// Lines of bytes: the log of a node need not be valid UTF-8.
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

/// The time at which a line was logged, and its text.
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
    fn a_log_cannot_control_the_terminal_and_is_exact_elsewhere() {
        let line = b"\x1b]52;c;AA\x07 \xff";
        assert_eq!(&*shown(line, false), line);
        assert_eq!(&*shown(line, true), " ]52;c;AA  \u{fffd}".as_bytes());
    }

    #[test]
    fn timestamps_are_removed() {
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
