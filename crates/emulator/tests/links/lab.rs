//! Two network namespaces and a link between them.

use std::{net::IpAddr, process::Command};

use parking_lot::{Mutex, MutexGuard};
use perfrun_emulator::{Emulator, Options, awake::AwakeCpus};
use perfrun_link::{Ability, Backend, Impairment, OutgoingLinks};
use perfrun_test_kit::{
    Need,
    namespaces::{self, Namespace, ip},
    skip, uml,
};

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
        let (near, far) = namespaces::pair(&backend.to_string()).unwrap()?;
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
        for namespace in [&near, &far] {
            ip(namespace, &["link", "set", "lo", "up"]).unwrap();
        }
        namespaces::join((&near, &[NEAR]), (&far, &[FAR, FAR_UNIMPAIRED])).unwrap();
        let v6 = |namespace: &Namespace, address| {
            let arguments = ["-6", "address", "add", address, "dev", "eth0", "nodad"];
            ip(namespace, &arguments).is_ok()
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
        let links = ip(&self.near, &["-o", "link"]).unwrap();
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
