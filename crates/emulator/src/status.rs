//! The state of a link that is impaired in user space, published to other processes.
//!
//! The process listens in the link's network namespace on an abstract socket, `perfrun-link-INTERFACE`. Each
//! connection receives one [`LinkState`] as JSON. Nothing is read from it, so that no other process can
//! change anything. Any user of the namespace may take the name first: readers believe only root and their
//! own user.

use std::{
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::Arc,
    thread,
    time::Duration,
};

use perfrun_link::LinkState;
use rustix::{
    net::{Shutdown, sockopt::socket_peercred},
    process::{Uid, geteuid},
};

/// How long either side waits for the other.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// More bytes than any state has.
const LENGTH_MAX: u64 = 1 << 20;

/// Publishes the state until it is dropped.
#[derive(Debug)]
pub struct Status(Arc<UnixListener>);

impl Status {
    /// Publishes the state of an interface of the calling thread's network namespace, from a thread of its
    /// own. `state` reads it from the [`Emulator`](crate::Emulator); if it returns `None`, connections are
    /// closed without a reply.
    pub fn serve(
        interface: &str,
        mut state: impl FnMut() -> Option<LinkState> + Send + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(UnixListener::bind_addr(&address(interface)?)?);
        let listening = Arc::clone(&listener);
        thread::Builder::new()
            .name("netem-status".to_owned())
            .spawn(move || {
                // The loop ends when `Status` is dropped.
                while let Ok((stream, _)) = listening.accept() {
                    // A client that has stopped waiting does not need the reply.
                    let _ = answer(stream, state());
                }
            })?;
        Ok(Self(listener))
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        // Wakes the thread. It may be replying, and is not waited for.
        let _ = rustix::net::shutdown(&*self.0, Shutdown::Both);
    }
}

/// The state that the emulator of an interface in the calling thread's network namespace publishes, and its
/// process. `None` for the process if it is not visible from here.
pub(crate) fn fetch(interface: &str) -> io::Result<(LinkState, Option<u32>)> {
    let stream = UnixStream::connect_addr(&address(interface)?)?;
    let peer = socket_peercred(&stream)?;
    if !is_believed(peer.uid) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    let mut text = Vec::new();
    (&stream).take(LENGTH_MAX).read_to_end(&mut text)?;
    let process = u32::try_from(peer.pid.as_raw_nonzero().get()).ok();
    Ok((serde_json::from_slice(&text)?, process))
}

fn is_believed(user: Uid) -> bool {
    user.is_root() || user == geteuid()
}

fn answer(mut stream: UnixStream, state: Option<LinkState>) -> io::Result<()> {
    stream.set_write_timeout(Some(PEER_TIMEOUT))?;
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
    use perfrun_link::{ActiveBackend, Mode, OutgoingLinks};

    use super::*;

    fn state() -> LinkState {
        LinkState {
            link: OutgoingLinks::default(),
            backend: ActiveBackend::Userspace,
            mode: Mode::SuperPackets,
            traffic: Vec::new(),
            worker: None,
        }
    }

    #[test]
    fn the_state_is_published_until_it_is_dropped() {
        let interface = format!("test{}", std::process::id());
        let status = Status::serve(&interface, || Some(state())).unwrap();
        for _ in 0..3 {
            assert_eq!(fetch(&interface).unwrap(), (state(), Some(std::process::id())));
        }
        let taken = Status::serve(&interface, || None).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(status);
        let ended = std::time::Instant::now();
        while Status::serve(&interface, || None).is_err() {
            assert!(ended.elapsed() < PEER_TIMEOUT);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn only_root_and_this_user_are_believed() {
        assert!(is_believed(Uid::ROOT) && is_believed(geteuid()));
        assert!(!is_believed(Uid::from_raw(geteuid().as_raw() + 1)));
    }

    #[test]
    fn an_emulator_that_has_ended_leaves_no_published_state() {
        let interface = format!("gone{}", std::process::id());
        let _status = Status::serve(&interface, || None).unwrap();
        assert!(fetch(&interface).is_err());
        assert!(fetch("nobody").is_err());
    }
}
