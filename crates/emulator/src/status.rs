//! Telling other processes how a link is doing that is impaired in user space.
//!
//! In the link's own network namespace a socket without a file is listened on, `perfrun-link-INTERFACE`. Whoever connects
//! gets one [`State`] as JSON and is not listened to: there is nothing to ask for, and nobody can change anything.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use perfrun_link::State;
use rustix::net::Shutdown;

/// Nobody waits longer for the other.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than any link has to say.
const LENGTH_MAX: u64 = 64 << 20;

/// Answers as long as this value lives.
#[derive(Debug)]
pub struct Status(Arc<UnixListener>);

impl Status {
    /// Answers for an interface of the calling thread's network namespace, from a thread of its own. The state is that of
    /// the [`Emulator`](crate::Emulator); without one, whoever asks is sent away.
    pub fn serve(
        interface: &str,
        mut state: impl FnMut() -> Option<State> + Send + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(UnixListener::bind_addr(&address(interface)?)?);
        let listening = Arc::clone(&listener);
        thread::Builder::new()
            .name("netem-status".to_owned())
            .spawn(move || {
                // It ends when the other end of the value is dropped.
                while let Ok((stream, _)) = listening.accept() {
                    // Whoever does not wait for the answer does not need it.
                    let _ = answer(stream, state());
                }
            })?;
        Ok(Self(listener))
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        // Wakes the thread, which may be answering, and is not waited for.
        let _ = rustix::net::shutdown(&*self.0, Shutdown::Both);
    }
}

/// What the emulator of an interface in the calling thread's network namespace says, and its process, if that can be seen
/// from here.
pub(crate) fn ask(interface: &str) -> io::Result<(State, Option<u32>)> {
    let stream = UnixStream::connect_addr(&address(interface)?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    (&stream).take(LENGTH_MAX).read_to_end(&mut text)?;
    let process = rustix::net::sockopt::socket_peercred(&stream)
        .ok()
        .and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok());
    Ok((serde_json::from_slice(&text)?, process))
}

fn answer(mut stream: UnixStream, state: Option<State>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    match state {
        Some(state) => stream.write_all(&serde_json::to_vec(&state)?),
        None => Ok(()),
    }
}

fn address(interface: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("perfrun-link-{interface}"))
}

#[cfg(test)]
mod tests {
    use perfrun_link::{Kind, Link, Mode};

    use super::*;

    fn state() -> State {
        State {
            link: Link::default(),
            backend: Kind::Userspace,
            mode: Mode::SuperPackets,
            traffic: Vec::new(),
            worker: None,
        }
    }

    #[test]
    fn whoever_asks_is_told_until_it_ends() {
        let interface = format!("test{}", std::process::id());
        let status = Status::serve(&interface, || Some(state())).unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&interface).unwrap(), (state(), Some(std::process::id())));
        }
        let taken = Status::serve(&interface, || None).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(status);
        let ended = std::time::Instant::now();
        while Status::serve(&interface, || None).is_err() {
            assert!(ended.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_emulator_that_has_ended_has_nothing_to_say() {
        let interface = format!("gone{}", std::process::id());
        let _status = Status::serve(&interface, || None).unwrap();
        assert!(ask(&interface).is_err());
        assert!(ask("nobody").is_err());
    }
}
