//! Packages that building and checking need beyond Rust and a C compiler, and their installation.
//!
//! A C compiler is not in the list: without a compiler this program could not have been linked. aws-lc-sys
//! and ring need nothing else, because they bring their assembly generated and do not call cmake. OpenSSL,
//! which litep2p's WebRTC builds from source, needs perl and make.

use std::{env, path::Path, process::Command};

use anyhow::{Context, Result, bail};

use crate::shell::{self, Workspace};

pub(crate) struct Tool {
    program: &'static str,
    /// An environment variable that names the program when it is not on PATH.
    variable: Option<&'static str>,
    /// Folders outside of PATH where the program may be.
    folders: &'static [&'static str],
    package: &'static str,
    used_by: &'static str,
}

/// A tool whose program is on PATH.
const fn tool(program: &'static str, package: &'static str, used_by: &'static str) -> Tool {
    Tool {
        program,
        variable: None,
        folders: &[],
        package,
        used_by,
    }
}

const PROTOC: Tool = Tool {
    variable: Some("PROTOC"),
    ..tool("protoc", "protobuf-compiler", "litep2p's build script")
};
const PERL: Tool = tool("perl", "perl", "OpenSSL's configuration, for litep2p's WebRTC");
const MAKE: Tool = tool("make", "make", "the build of OpenSSL, for litep2p's WebRTC");
const IPERF3: Tool = tool("iperf3", "iperf3", "the raw TCP benchmark, as the reference");

const PING: Tool = tool("ping", "iputils-ping", "the tests of impaired links, as a judge");

const BUILDAH: Tool = tool("buildah", "buildah", "`cargo xtask image`");

/// Packages that the build of the demo needs.
pub(crate) const DEMO: &[Tool] = &[PROTOC];
/// Packages that the build of the workspace needs.
pub(crate) const BUILD: &[Tool] = &[PROTOC, PERL, MAKE];
/// Packages that benchmarks need.
pub(crate) const BENCH: &[Tool] = &[PROTOC, PERL, MAKE, IPERF3];
/// Packages that tests use. A test that needs a missing one is skipped by name.
const TEST: &[Tool] = &[
    PING,
    IPERF3,
    tool(
        "linux.uml",
        "user-mode-linux",
        "the tests of impaired links, as a kernel that has netem",
    ),
    tool(
        "prometheus",
        "prometheus",
        "the tests of metrics, dashboards and alerts",
    ),
];
/// The profiler. The list is separate because Debian's relatives name the package differently.
pub(crate) const PERF: &[Tool] = &[tool("perf", "linux-perf", "the tests of `perfrun run --profile`")];
/// The browser of the tests of pages. The list is separate because not every relative of Debian has the
/// package.
pub(crate) const BROWSER: &[Tool] = &[tool(
    "chromedriver",
    "chromium-driver",
    "the tests of pages, with the browser that it brings",
)];
/// Packages that build images.
pub(crate) const IMAGE: &[Tool] = &[BUILDAH];
/// Packages that install kubernetes-validate.
pub(crate) const PIP: &[Tool] = &[tool("pip3", "python3-pip", "the checks of the Helm chart")];
/// Packages that the lab needs, besides Go.
pub(crate) const LAB: &[Tool] = &[
    tool("ip", "iproute2", "the lab, for its links and routes"),
    tool("iptables", "iptables", "kube-proxy in the lab"),
    tool("conntrack", "conntrack", "kube-proxy in the lab"),
    tool("runc", "runc", "containerd in the lab"),
    tool("etcd", "etcd-server", "the API server in the lab"),
    Tool {
        folders: CNI_FOLDERS,
        ..tool("ptp", "containernetworking-plugins", "containerd in the lab")
    },
];

/// Folders where distributions install the CNI plugins.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"];

/// Installs missing packages as root on Debian and its relatives. Elsewhere it fails and prints the command
/// to run.
pub(crate) fn packages(workspace: &Workspace, tools: &[Tool]) -> Result<()> {
    let missing = missing(tools, is_present);
    if missing.is_empty() {
        return Ok(());
    }
    if !shell::is_root() || !shell::on_path("apt-get") {
        bail!(instruction(&missing));
    }

    let packages = missing.iter().map(|tool| tool.package);
    println!(
        "==> installing {}",
        packages.clone().collect::<Vec<_>>().join(" ")
    );
    let mut install = apt_get(workspace);
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(packages);
    if !shell::status(&mut install)?.success() {
        println!("==> that failed, perhaps because the package lists are missing or old; fetching them");
        shell::succeed(apt_get(workspace).arg("update"))?;
        shell::succeed(&mut install)?;
    }
    match missing.into_iter().find(|tool| !is_present(tool)) {
        Some(tool) => bail!(
            "{} is installed but `{}` is still not on PATH",
            tool.package,
            tool.program
        ),
        None => Ok(()),
    }
}

fn missing(tools: &[Tool], is_present: impl Fn(&Tool) -> bool) -> Vec<&Tool> {
    tools.iter().filter(|tool| !is_present(tool)).collect()
}

fn is_present(tool: &Tool) -> bool {
    tool.variable
        .and_then(env::var_os)
        .is_some_and(|path| Path::new(&path).is_file())
        || tool
            .folders
            .iter()
            .any(|folder| Path::new(folder).join(tool.program).is_file())
        || shell::on_path(tool.program)
}

fn instruction(missing: &[&Tool]) -> String {
    let programs: Vec<_> = missing
        .iter()
        .map(|tool| format!("`{}` is missing; {} uses it", tool.program, tool.used_by))
        .collect();
    let packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    format!(
        "{}\n\nRun this, or what does the same on your distribution, and then this command again:\n\n    \
         sudo apt-get update && sudo apt-get install -y {}\n",
        programs.join("\n"),
        packages.join(" ")
    )
}

fn apt_get(workspace: &Workspace) -> Command {
    let mut command = workspace.command("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Installs the packages of the lab. The lab starts etcd itself, so the package's service is stopped.
pub(crate) fn lab(workspace: &Workspace) -> Result<()> {
    without_service(workspace, LAB, "etcd")
}

/// Installs the packages of tests. Each test starts its own Prometheus, so the package's service is stopped.
pub(crate) fn test(workspace: &Workspace) -> Result<()> {
    without_service(workspace, TEST, "prometheus")
}

/// Installs packages, and stops the service that one of them starts unless it was installed before.
fn without_service(workspace: &Workspace, tools: &[Tool], service: &str) -> Result<()> {
    let was_there = shell::on_path(service);
    packages(workspace, tools)?;
    if !was_there && shell::on_path("systemctl") && Path::new("/run/systemd/system").exists() {
        println!("==> stopping the {service} that its package started");
        let mut systemctl = workspace.command("systemctl");
        shell::succeed(systemctl.args(["disable", "--now", "--quiet", service]))?;
    }
    Ok(())
}

/// Checks that Go is installed. A distribution's Go is often too old to fetch the version that a module
/// requires, so none is installed here.
pub(crate) fn go() -> Result<()> {
    if !shell::on_path("go") {
        bail!(
            "`go` is missing; helm and the lab's programs are built with it. Install Go 1.26, or any from 1.21 on, which \
             fetches the one it needs, put it into PATH and run this command again"
        );
    }
    Ok(())
}

/// Installs rustfmt and clippy. rust-toolchain.toml names them, but not every rustup installs components
/// automatically.
pub(crate) fn components(workspace: &Workspace) -> Result<()> {
    let missing: Vec<_> = [("rustfmt", "fmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(_, subcommand)| !shell::works(&mut workspace.cargo([subcommand, "--version"])))
        .map(|(component, _)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("==> installing {}", missing.join(" "));
    shell::succeed(
        workspace
            .command("rustup")
            .args(["component", "add"])
            .args(&missing),
    )
    .with_context(|| {
        format!(
            "unable to check without {}; install them for this toolchain",
            missing.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{BENCH, BUILD, instruction, missing};

    #[test]
    fn only_absent_programs_are_installed() {
        let packages = |tools| -> Vec<_> {
            missing(tools, |tool| ["protoc", "make"].contains(&tool.program))
                .iter()
                .map(|tool| tool.package)
                .collect()
        };
        assert_eq!(packages(BUILD), ["perl"]);
        assert_eq!(packages(BENCH), ["perl", "iperf3"]);
    }

    #[test]
    fn the_instruction_can_be_pasted() {
        let text = instruction(&missing(BENCH, |_| false));
        assert!(
            text.contains("`protoc` is missing; litep2p's build script uses it"),
            "{text}"
        );
        assert!(text.contains(
            "\n    sudo apt-get update && sudo apt-get install -y protobuf-compiler perl make iperf3\n"
        ));
    }
}
