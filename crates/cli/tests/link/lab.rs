//! Two network namespaces, a link between them, and perfrun.

use std::{
    fmt,
    io::{self, BufRead, BufReader},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    net::listen,
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

use perfrun_test_kit::{
    Need,
    namespaces::{self, Namespace, ip, path},
    skip,
};

/// Sends; its eth0 is impaired.
pub(crate) const NEAR: &str = "10.78.0.1";
/// The peer.
pub(crate) const FAR: &str = "10.78.0.2";

/// How often a measurement may be repeated before it counts as wrong: other work on the machine disturbs some
/// of them.
const ATTEMPTS: usize = 4;

/// Two links measured at the same time would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct Lab {
    near: Namespace,
    far: Namespace,
    /// Round trip while nothing is impaired.
    base: String,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    /// `None`, and recorded as skipped, if this machine cannot have one.
    pub(crate) fn new() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (near, far) = namespaces::pair("all of it").unwrap()?;
        let mut lab = Self {
            near,
            far,
            base: String::new(),
            _alone: alone,
        };
        if !std::path::Path::new("/dev/net/tun").exists() {
            skip(Need::Links, "all of it", "needs /dev/net/tun");
            return None;
        }
        namespaces::join((&lab.near, &[NEAR]), (&lab.far, &[FAR])).unwrap();
        lab.base = format!("{}us", round_trip(&lab.probe(&["--json"])).as_micros());
        Some(lab)
    }

    /// perfrun about the near end.
    pub(crate) fn perfrun(&self, arguments: &[&str]) -> Ended {
        perfrun(&[arguments, &["--netns", &path(&self.near)]].concat())
    }

    /// The JSON output of `perfrun link show` at the near end.
    pub(crate) fn show(&self) -> Value {
        let shown = self.perfrun(&["link", "show", "--json"]);
        assert!(shown.success, "{shown}");
        serde_json::from_str(&shown.stdout).unwrap()
    }

    /// Impairs in user space the packets from the near end to the far end.
    pub(crate) fn set(&self, options: &[&str]) -> Running {
        let fixed = ["link", "set", "--to", FAR, "--backend", "userspace", "--json"];
        let place = ["--netns", &path(&self.near)];
        Running::start(&[&fixed, options, &place].concat())
    }

    /// Measures from the near end to the far end.
    pub(crate) fn probe(&self, arguments: &[&str]) -> Ended {
        let far = path(&self.far);
        let fixed = ["link", "probe", "--to", FAR, "--to-netns", &far];
        self.perfrun(&[&fixed, arguments].concat())
    }

    /// Whether packets to the far end have this impairment.
    pub(crate) fn has_impairment(&self, forward: &str) -> bool {
        let arguments = ["--base", &self.base, "--forward", forward];
        (0..ATTEMPTS).any(|_| self.probe(&arguments).success)
    }

    /// Whether nothing delays packets to the far end.
    pub(crate) fn is_open(&self) -> bool {
        let probed = self.probe(&["--json"]);
        assert!(probed.success, "{probed}");
        round_trip(&probed) < Duration::from_millis(50)
    }

    /// Measures from the far end to the near end.
    pub(crate) fn probe_back(&self, arguments: &[&str]) -> Ended {
        let (near, far) = (path(&self.near), path(&self.far));
        let fixed = [
            "link",
            "probe",
            "--to",
            NEAR,
            "--to-netns",
            &near,
            "--netns",
            &far,
        ];
        perfrun(&[&fixed, arguments].concat())
    }

    /// A process in the near namespace, and a name that `ip netns` has for that; both end with this value.
    pub(crate) fn resident(&self) -> Resident {
        let sleeping = self
            .near
            .run(|| Command::new("sleep").arg("600").spawn().unwrap());
        let name = format!("perfrun-test-{}", sleeping.id());
        let resident = Resident { sleeping, name };
        let number = resident.sleeping.id().to_string();
        ip(&self.near, &["netns", "attach", &resident.name, &number]).unwrap();
        resident
    }

    /// perfrun about the near end, without the right to change anything there.
    pub(crate) fn perfrun_without_rights(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set=-net_admin", env!("CARGO_BIN_EXE_perfrun")])
            .args(arguments)
            .env_remove("RUST_LOG");
        Ended::of(&self.near.run(|| command.output().unwrap()))
    }

    /// An abstract socket at the near end whose other side sees another user, without any right.
    pub(crate) fn socket_of_a_stranger(&self, name: &str) -> UnixListener {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = self.near.run(|| UnixListener::bind_addr(&address).unwrap());
        let socket = listener.try_clone().unwrap();
        let mut stranger = Command::new("true");
        stranger.uid(65534);
        // SAFETY: this is one system call. The kernel shows the user that made the last one.
        unsafe { stranger.pre_exec(move || listen(&socket, 1).map_err(io::Error::from)) };
        assert!(stranger.status().unwrap().success());
        listener
    }

    /// Answers at the far end.
    pub(crate) fn serve(&self) -> Running {
        Running::start(&["link", "probe", "--serve", "--netns", &path(&self.far)])
    }
}

/// Measures until the result is right, up to a number of attempts.
pub(crate) fn eventually<T: fmt::Debug>(
    what: &str,
    mut measure: impl FnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) {
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let measured = measure();
        if is_right(&measured) {
            return;
        }
        seen.push(measured);
    }
    panic!("{what}: {seen:?}");
}

/// The median that a probe has measured.
pub(crate) fn round_trip(probed: &Ended) -> Duration {
    let found: Value = serde_json::from_str(&probed.stdout).unwrap();
    let nanoseconds = &found["measurement"]["roundTrip"]["p50Ns"];
    Duration::from_nanos(nanoseconds.as_u64().unwrap())
}

/// perfrun, to its end.
pub(crate) fn perfrun(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perfrun"));
    command.args(arguments).env_remove("RUST_LOG");
    Ended::of(&command.output().unwrap())
}

pub(crate) struct Ended {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            success: output.status.success(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "success: {}\n{}\n{}", self.success, self.stdout, self.stderr)
    }
}

/// perfrun in the foreground; killed with this value.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_perfrun"))
            .args(arguments)
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn next_object(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// True if it succeeded.
    pub(crate) fn ended(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that does nothing.
pub(crate) struct Resident {
    sleeping: Child,
    pub name: String,
}

impl Resident {
    pub(crate) fn id(&self) -> String {
        self.sleeping.id().to_string()
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.sleeping.kill();
        let _ = self.sleeping.wait();
        // There is none if it could not be made.
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}
