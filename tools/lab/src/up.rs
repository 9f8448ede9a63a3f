//! `up` and `start`: from nothing, or from a stopped part, to a working one.

use std::{
    collections::VecDeque,
    fs,
    io::Write,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    cgroup, control_plane, dns, image, interrupt,
    lab::{Lab, counted},
    machine, network, node,
    part::Part,
    paths::{self, LIB},
    pki::Authority,
    realtime,
    record::Record,
    subnet::{API_PORT, Subnet},
};

const PROGRAM_TIMEOUT: Duration = Duration::from_secs(120);
const NODES_TIMEOUT: Duration = Duration::from_secs(180);
const TICK: Duration = Duration::from_millis(100);

/// The number of lines of a program's log that a failure shows.
const TAIL: usize = 20;

impl Lab {
    /// Creates the lab, whose folder does not exist yet.
    pub(crate) fn create(&mut self, nodes: u8, dual_stack: bool, programs: &[PathBuf]) -> Result<()> {
        let others = Record::others(&self.paths)?;
        let subnet = choose_subnet(&others)?.with_dual_stack(dual_stack);
        let real_time_limit = realtime::limit(&others)?;
        paths::create_folder(self.paths.root())?;
        let record = Record::new(subnet, nodes, real_time_limit)?;
        record.save(&self.paths)?;
        self.record = Some(record);
        if real_time_limit.is_some() {
            realtime::lift();
        }
        println!(
            "==> lab {:?}: a control plane and {} in 10.{}.0.0/16",
            self.name.to_string(),
            counted(nodes),
            subnet.number()
        );
        link(programs, &self.paths.bin())?;
        image::write_pause(&self.paths.bin().join("pause"), &self.paths.pause_image())?;
        let authority = Authority::new()?;
        control_plane::configure(&self.paths, subnet, &authority)?;
        for number in 1..=nodes {
            node::configure(&self.paths, &self.name, subnet, number, &authority)?;
        }

        for machine in self.machines()? {
            self.start_machine(machine)?;
        }
        self.start_program(Part::Etcd)?;
        self.start_program(Part::ApiServer)?;
        for number in 1..=nodes {
            self.start_program(Part::Containerd(number))?;
        }
        self.await_part(Part::ApiServer)?;
        for part in [Part::ControllerManager, Part::Scheduler, Part::Dns] {
            self.start_program(part)?;
        }
        for number in 1..=nodes {
            self.await_part(Part::Containerd(number))?;
            self.start_program(Part::Kubelet(number))?;
            self.start_program(Part::Proxy(number))?;
        }
        self.install_dns()?;
        for number in 1..=nodes {
            self.await_part(Part::Kubelet(number))?;
        }
        self.await_part(Part::ControllerManager)?;
        self.await_part(Part::Dns)?;
        self.change(|record| record.ready = true)
    }

    /// Starts a part that was stopped or has exited, and waits until it works.
    pub(crate) fn start(&mut self, part: Part) -> Result<()> {
        self.check_exists(part)?;
        // The controller manager and the scheduler end when they cannot continue. On a real control plane,
        // the kubelet starts them again.
        let mut ended = self.record()?.dead();
        ended.retain(|other| matches!(other, Part::ControllerManager | Part::Scheduler) && *other != part);
        // They come last: the part may be the API server, without which they end again.
        self.change(|record| record.processes.retain(|other, _| !ended.contains(other)))?;
        self.start_part(part)?;
        ended.into_iter().try_for_each(|other| self.start_part(other))
    }

    fn start_part(&mut self, part: Part) -> Result<()> {
        if self.record()?.running(part).is_some() {
            println!("{part} is running already");
            return Ok(());
        }
        let machine = part.machine();
        if part == machine {
            self.start_machine(part)?;
        } else if self.record()?.running(machine).is_none() {
            bail!(
                "unable to start {part}: {machine} is stopped; `cargo xtask lab start {machine}` starts all of it"
            );
        }
        let programs = match part {
            Part::Node(number) => Part::on_node(number).to_vec(),
            program => vec![program],
        };
        for program in programs {
            self.start_program(program)?;
            self.await_part(program)?;
        }
        println!("{part} is back");
        Ok(())
    }

    fn start_machine(&mut self, part: Part) -> Result<()> {
        if part.node().is_some() {
            cgroup::create(&self.name, part)?;
        }
        let held = machine::create(part, &self.paths)?;
        let holder = held.process;
        self.change(|record| record.started(part, holder))?;
        if let Err(error) = machine::begin(held) {
            return Err(error.context(self.tail(part)));
        }
        let record = self.record()?;
        let (subnet, nodes) = (record.subnet, record.nodes);
        match part {
            Part::Node(number) => {
                let control_plane = self.holder(Part::ControlPlane)?;
                network::connect_node(control_plane, holder, subnet, number, nodes)
            }
            _ => network::connect_control_plane(holder, subnet, nodes),
        }
        .with_context(|| format!("failed to connect {part}"))
    }

    fn start_program(&mut self, part: Part) -> Result<()> {
        let subnet = self.record()?.subnet;
        let holder = self.holder(part.machine())?;
        let own = |program: &str| format!("{LIB}/bin/{program}");
        let (program, args) = match part {
            Part::Etcd => ("etcd".into(), control_plane::etcd()),
            Part::ApiServer => (own("kube-apiserver"), control_plane::api_server(subnet)),
            Part::ControllerManager => (
                own("kube-controller-manager"),
                control_plane::controller_manager(),
            ),
            Part::Scheduler => (own("kube-scheduler"), control_plane::scheduler()),
            Part::Dns => (own("coredns"), control_plane::dns()),
            Part::Containerd(_) => (own("containerd"), node::containerd()),
            Part::Kubelet(number) => (own("kubelet"), node::kubelet(subnet, number)),
            Part::Proxy(_) => (own("kube-proxy"), node::proxy()),
            Part::ControlPlane | Part::Node(_) => bail!("{part} is a machine, not a program"),
        };
        let held = machine::start(holder, &self.paths, part, &program, &args)?;
        let process = held.process;
        self.change(|record| record.started(part, process))?;
        held.release().with_context(|| format!("failed to start {part}"))
    }

    /// Waits until a program works well enough for the parts that need it.
    fn await_part(&self, part: Part) -> Result<()> {
        let subnet = self.record()?.subnet;
        match part {
            Part::ApiServer => {
                let address = SocketAddr::from((subnet.control_plane(), API_PORT));
                self.until("the API server listens", PROGRAM_TIMEOUT, part, || {
                    Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
                })?;
                self.until("the API server is ready", PROGRAM_TIMEOUT, part, || {
                    Ok(self.kubectl(&["get", "--raw", "/readyz"]).is_ok())
                })
            }
            Part::Containerd(number) => {
                let holder = self.holder(Part::Node(number))?;
                let ctr = self.paths.bin().join("ctr");
                let mut problem = None;
                let what = format!("containerd of node-{number} takes the pause image");
                self.until(&what, PROGRAM_TIMEOUT, part, || {
                    problem = image::load(&ctr, holder, &self.paths.pause_image()).err();
                    Ok(problem.is_none())
                })
            }
            Part::Kubelet(number) => {
                let machine = Part::Node(number).to_string();
                // The controllers need some time to find a ready node fit for pods, too.
                let state = "jsonpath={.status.conditions[?(@.type=='Ready')].status}{.spec.taints}";
                // The API server's information may be from before the kubelet was stopped.
                let address = SocketAddr::from((subnet.node(number), node::KUBELET_PORT));
                self.until(&format!("{machine} is ready"), NODES_TIMEOUT, part, || {
                    if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
                        return Ok(false);
                    }
                    let state = self.kubectl(&["get", "node", &machine, "--output", state]);
                    Ok(state.is_ok_and(|state| state.trim() == "True"))
                })
            }
            // Pods cannot be created before their service account exists.
            Part::ControllerManager => self.until("accounts are made", PROGRAM_TIMEOUT, part, || {
                let account = ["get", "serviceaccount", "default", "--namespace", "default"];
                Ok(self.kubectl(&account).is_ok())
            }),
            Part::Dns => self.until("DNS knows services", PROGRAM_TIMEOUT, part, || {
                dns::answers(subnet)
            }),
            _ => Ok(()),
        }
    }

    fn until(
        &self,
        what: &str,
        limit: Duration,
        part: Part,
        mut is_done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            interrupt::check()?;
            if let Some(dead) = self.record()?.dead().first() {
                bail!("{dead} has ended\n{}", self.tail(*dead));
            }
            if is_done()? {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!(
                    "waited {} s in vain until {what}\n{}",
                    limit.as_secs(),
                    self.tail(part)
                );
            }
            thread::sleep(TICK);
        }
    }

    fn install_dns(&self) -> Result<()> {
        let objects = dns::objects(self.record()?.subnet).to_string();
        // The API server creates kube-system shortly after it is ready.
        self.until(
            "objects for DNS can be made",
            PROGRAM_TIMEOUT,
            Part::ApiServer,
            || {
                let mut kubectl = self.kubectl_command();
                kubectl.args(["apply", "--server-side", "--validate=false", "--filename", "-"]);
                let mut child = kubectl
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .context("failed to start kubectl")?;
                if let Some(mut input) = child.stdin.take() {
                    let _ = input.write_all(objects.as_bytes());
                }
                Ok(child.wait().context("failed to wait for kubectl")?.success())
            },
        )
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self
            .kubectl_command()
            .args(args)
            .stdin(Stdio::null())
            .output()
            .context("failed to start kubectl")?;
        if !output.status.success() {
            bail!(
                "`kubectl {}` failed: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn kubectl_command(&self) -> Command {
        let mut kubectl = Command::new(self.paths.bin().join("kubectl"));
        kubectl
            .arg("--kubeconfig")
            .arg(self.paths.kubeconfig())
            .arg("--cache-dir")
            .arg(self.paths.root().join("kubectl-cache"))
            .arg("--request-timeout=5s");
        kubectl
    }

    fn tail(&self, part: Part) -> String {
        let log = self.paths.log(part);
        format!("the end of the log of {part}:\n{}", tail(&log))
    }
}

fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut last = VecDeque::new();
    for line in text.lines() {
        if last.len() == TAIL {
            last.pop_front();
        }
        last.push_back(format!("    {line}"));
    }
    match last.is_empty() {
        true => "    (nothing)".into(),
        false => Vec::from(last).join("\n"),
    }
}

/// Links the programs into the lab's own folder, so that the lab does not break when the cache is emptied.
fn link(programs: &[PathBuf], bin: &Path) -> Result<()> {
    paths::create_folder(bin)?;
    for program in programs {
        let name = program.file_name().context("a program has a name")?;
        let link = bin.join(name);
        fs::hard_link(program, &link)
            .or_else(|_| fs::copy(program, &link).map(drop))
            .with_context(|| format!("failed to put {} into {}", program.display(), bin.display()))?;
    }
    Ok(())
}

fn choose_subnet(others: &[Record]) -> Result<Subnet> {
    let taken: Vec<_> = others.iter().map(|other| other.subnet).collect();
    let output = Command::new("ip")
        .args(["-4", "route", "show", "table", "all"])
        .output()
        .context("failed to start `ip`; install iproute2")?;
    if !output.status.success() {
        bail!(
            "`ip route` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Subnet::choose(&String::from_utf8_lossy(&output.stdout), &taken)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::tail;

    #[test]
    fn a_failure_shows_the_last_lines() {
        let file = env::temp_dir().join(format!("lab-tail-{}", process::id()));
        let lines: String = (1..=30).map(|line| format!("{line}\n")).collect();
        fs::write(&file, lines).unwrap();
        let shown = tail(&file);
        fs::remove_file(&file).unwrap();
        assert!(
            shown.starts_with("    11\n") && shown.ends_with("    30"),
            "{shown}"
        );
        assert_eq!(tail(&file), "    (nothing)");
    }
}
