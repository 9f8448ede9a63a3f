//! Two network namespaces and a link between them.

use std::{
    fs::File,
    io::{self, ErrorKind},
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    process::{Command, Output},
    thread,
};

use parking_lot::{Mutex, MutexGuard};
use perfrun_emulator::{Emulator, Options, awake::AwakeCpus};
use perfrun_link::{Ability, Backend, Impairment, OutgoingLinks};
use perfrun_test_kit::{Need, skip, uml};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// Randomness repeats itself, or a test would fail once in a hundred runs for no reason.
const SEED: u64 = 7;

/// The address of the sender, whose eth0 is impaired.
pub(crate) const NEAR: &str = "10.77.0.1";
/// The address of the peer.
pub(crate) const FAR: &str = "10.77.0.2";
pub(crate) const FAR_V6: &str = "fd77::2";
/// Another address of the peer's machine, which no link names.
pub(crate) const FAR_UNIMPAIRED: &str = "10.77.0.3";

/// Two links that are measured at the same time would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

/// While it is held, no other test measures.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

pub(crate) struct Lab {
    pub near: Namespace,
    pub far: Namespace,
    pub has_v6: bool,
    backend: Backend,
    _awake: Option<AwakeCpus>,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    /// Returns `None`, and logs a skip, where namespaces cannot be made or the backend does not work.
    pub(crate) fn new(backend: Backend) -> Option<Self> {
        let alone = alone();
        let namespaces = Namespace::new().and_then(|near| Ok((near, Namespace::new()?)));
        let (near, far) = match namespaces {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                skip(
                    Need::Root,
                    &backend.to_string(),
                    "needs root, to make network namespaces",
                );
                return None;
            }
            namespaces => namespaces.unwrap(),
        };
        let abilities = near.run(|| perfrun_emulator::abilities::detect("lo"));
        let ability = match backend {
            Backend::Kernel => abilities.kernel,
            Backend::Userspace | Backend::Auto => abilities.userspace,
        };
        if let Ability::Unavailable { reason, detail } = ability {
            // That kernel exists for these tests: if they were skipped there, netem would not be tested.
            assert!(
                backend != Backend::Kernel || !uml::is_here(),
                "no netem in user-mode-linux: {reason} ({detail})"
            );
            if backend == Backend::Kernel && uml::is_installed() {
                println!("not here, but in user-mode-linux: {reason} ({detail})");
            } else {
                skip(
                    match backend {
                        Backend::Kernel => Need::Netem,
                        Backend::Auto | Backend::Userspace => Need::Links,
                    },
                    &backend.to_string(),
                    &format!("{reason} ({detail})"),
                );
            }
            return None;
        }
        let peer = format!("/proc/{}/fd/{}", std::process::id(), far.0.as_raw_fd());
        near.ip(&[
            "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer,
        ]);
        for (namespace, addresses) in [(&near, &[NEAR][..]), (&far, &[FAR, FAR_UNIMPAIRED])] {
            for address in addresses {
                namespace.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"]);
            }
            namespace.ip(&["link", "set", "lo", "up"]);
            namespace.ip(&["link", "set", "eth0", "up"]);
        }
        let v6 = |namespace: &Namespace, address| {
            let arguments = ["-6", "address", "add", address, "dev", "eth0", "nodad"];
            namespace
                .try_ip(&arguments)
                .is_some_and(|output| output.status.success())
        };
        let has_v6 = v6(&near, "fd77::1/64") && v6(&far, "fd77::2/64");
        Some(Self {
            near,
            far,
            has_v6,
            backend,
            // User-mode-linux has one CPU, and gets less of it from a machine whose others are busy.
            _awake: (!uml::is_here()).then(AwakeCpus::keep),
            _alone: alone,
        })
    }

    pub(crate) fn emulator(&self, link: &OutgoingLinks) -> Emulator {
        let options = Options {
            backend: self.backend,
            seed: Some(SEED),
        };
        let started = self.near.run(|| Emulator::start("eth0", link, options));
        started.unwrap_or_else(|error| panic!("{}", error_reporter::Report::new(error)))
    }

    /// Runs tc in the near namespace; returns its output.
    pub(crate) fn tc(&self, arguments: &str) -> String {
        let mut tc = Command::new("tc");
        tc.args(arguments.split(' '));
        let output = self.near.run(|| tc.output()).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Everything that tc and ip show in the near namespace beyond its addresses.
    pub(crate) fn traces(&self) -> String {
        let mut traces: String = [
            "qdisc show",
            "filter show dev eth0 egress",
            "filter show dev eth0",
        ]
        .map(|arguments| self.tc(arguments))
        .concat();
        let links = self.near.ip(&["-o", "link"]);
        traces.push_str(
            &links
                .lines()
                .filter(|line| line.contains("netem"))
                .collect::<String>(),
        );
        traces
    }
}

/// A link to the peer, by both its addresses.
pub(crate) fn to_far(impairment: Impairment) -> OutgoingLinks {
    OutgoingLinks::to([FAR, FAR_V6].map(|peer| peer.parse().unwrap()), impairment).unwrap()
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A network namespace without a name, which ends with this value.
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    fn new() -> io::Result<Self> {
        let make = || {
            // SAFETY: only the network namespace changes; the file descriptor table stays shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
        };
        thread::scope(|scope| scope.spawn(make).join().unwrap())
    }

    /// Runs something on a thread in this namespace; sockets and processes that it makes stay in it.
    pub(crate) fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            act()
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        let output = self.try_ip(arguments).expect("`ip` of iproute2 is installed");
        assert!(
            output.status.success(),
            "ip {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn try_ip(&self, arguments: &[&str]) -> Option<Output> {
        self.run(|| Command::new("ip").args(arguments).output()).ok()
    }
}
