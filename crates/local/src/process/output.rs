//! The output of a node: lines of bounded length, and the last few of them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Lines kept for error messages.
const TAIL_LINES: usize = 200;

/// A line of a node's output.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// The text without its line break. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Whether the line was longer than the limit, and its rest is lost.
    pub cut: bool,
}

/// Reads until the end of the output. Keeps at most one line and one buffer in memory.
pub(super) async fn for_each_line<R: AsyncRead + Unpin>(
    mut reader: R,
    limit: usize,
    mut each: impl FnMut(Line),
) -> std::io::Result<()> {
    let mut lines = Lines {
        limit,
        pending: Vec::new(),
        cut: false,
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer).await? {
            0 => break,
            length => lines.feed(&buffer[..length], &mut each),
        }
    }
    lines.finish(&mut each);
    Ok(())
}

/// Splits a stream of bytes into lines.
struct Lines {
    limit: usize,
    pending: Vec<u8>,
    cut: bool,
}

impl Lines {
    fn feed(&mut self, mut bytes: &[u8], each: &mut impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.keep(&bytes[..end]);
            self.emit(each);
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn finish(&mut self, each: &mut impl FnMut(Line)) {
        if !self.pending.is_empty() {
            self.emit(each);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.limit - self.pending.len();
        self.cut |= bytes.len() > room;
        self.pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn emit(&mut self, each: &mut impl FnMut(Line)) {
        each(Line {
            text: String::from_utf8_lossy(&self.pending).into_owned(),
            cut: self.cut,
        });
        self.pending.clear();
        self.cut = false;
    }
}

/// The last lines of a log. The launcher adds lines, and [`super::NodeProcess`] reads them.
#[derive(Clone, Debug, Default)]
pub(super) struct LogTail(Arc<Mutex<VecDeque<String>>>);

impl LogTail {
    pub(super) fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines_of(input: &[u8], limit: usize) -> Vec<(String, bool)> {
        let mut seen = Vec::new();
        for_each_line(input, limit, |line| seen.push((line.text, line.cut)))
            .await
            .unwrap();
        seen
    }

    #[tokio::test]
    async fn lines_are_cut_at_the_limit_and_nowhere_else() {
        let whole = |text: &str| (text.to_owned(), false);
        let cut = |text: &str| (text.to_owned(), true);
        assert_eq!(lines_of(b"", 4).await, []);
        assert_eq!(lines_of(b"\n", 4).await, [whole("")]);
        assert_eq!(lines_of(b"abcd\nab", 4).await, [whole("abcd"), whole("ab")]);
        assert_eq!(lines_of(b"abcde\nf\n", 4).await, [cut("abcd"), whole("f")]);
        assert_eq!(lines_of(b"abcdefghijk", 4).await, [cut("abcd")]);
        assert_eq!(lines_of(b"a\xffb\n", 4).await, [whole("a\u{fffd}b")]);
    }

    #[test]
    fn lines_may_arrive_in_pieces() {
        let mut lines = Lines {
            limit: 5,
            pending: Vec::new(),
            cut: false,
        };
        let mut seen = Vec::new();
        for piece in [&b"ab"[..], b"cd", b"e", b"\nf", b"ghi", b"jk\n"] {
            lines.feed(piece, &mut |line: Line| seen.push((line.text, line.cut)));
        }
        assert_eq!(seen, [("abcde".to_owned(), false), ("fghij".to_owned(), true)]);
    }

    #[test]
    fn the_tail_keeps_the_newest_lines() {
        let tail = LogTail::default();
        for number in 0..TAIL_LINES + 3 {
            tail.push(number.to_string());
        }
        let lines = tail.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (TAIL_LINES, "3"));
    }
}
