//! What commands write to standard output and to standard error, and the runtime of those that wait.

use std::{
    borrow::Cow,
    fmt::Display,
    future::Future,
    io::{self, IsTerminal, Write},
};

use anyhow::Context;
use perfrun_contract::text::plain;

/// Runs a command that waits for the network or for signals.
pub fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("failed to start the async runtime")?;
    runtime.block_on(command)
}

/// Writes a line to standard error, as [plain] text: what nodes and their peers say cannot control the
/// terminal. If standard error is closed, nobody reads the line, and the command continues.
pub fn write_line_to_stderr(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", plain(&text.to_string()));
}

/// Writes to standard output, as [plain] text if that is a terminal. A reader that closes the pipe early,
/// such as `head`, is not an error.
pub(crate) fn write_to_stdout(text: &str) -> anyhow::Result<()> {
    let text = match io::stdout().is_terminal() {
        true => Cow::Owned(plain(text)),
        false => Cow::Borrowed(text),
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("failed to print"),
    }
}

/// Columns of the terminal on standard output. Otherwise a width that fits most places where people paste
/// text.
pub(crate) fn terminal_width() -> usize {
    const ELSEWHERE: usize = 120;
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    match columns {
        0 => ELSEWHERE, // not a terminal, or one that does not know its width
        columns => columns.max(60),
    }
}
