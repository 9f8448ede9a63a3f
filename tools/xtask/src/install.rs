//! Packages and tools that building and checking need beyond Rust and a C compiler, and their installation.
//!
//! A C compiler is not in the list: without a compiler this program could not have been linked. aws-lc-sys
//! and ring need nothing else, because they bring their assembly generated and do not call cmake. OpenSSL,
//! which litep2p's WebRTC builds from source, needs perl and make.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{self, Command},
};

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
const PIP: &[Tool] = &[tool("pip3", "python3-pip", "the checks of the Helm chart")];
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

const CARGO_AUDITABLE: &str = "0.7.7";
const CARGO_DENY: &str = "0.20.2";
const AUDITABLE2CDX: &str = "0.1.0";
const CYCLONEDX_GOMOD: &str = "1.10.0";
/// The version of helm that `cargo xtask test` installs the chart with, and the previous major version, which
/// is still in use.
const HELM: &[&str] = &["4.3.1", "3.22.0"];
const KUBERNETES_VALIDATE: &str = "1.37.0";
/// Later ones need a module that is not published.
const VALE: &str = "3.22.0";
const ACTIONLINT: &str = "1.7.12";
/// Checks Go for mistakes that vet does not find.
const STATICCHECK: &str = "0.8.2";
/// Finds advisories about modules of Go.
const GOVULNCHECK: &str = "1.9.0";
/// Later ones need a later Rust.
const ZIZMOR: &str = "1.25.0";
/// rust-libp2p's published benchmark.
const LIBP2P_PERF: &str = "0.3.0";
const TYPOS: &str = "1.52.0";
const MDBOOK: &str = "0.5.4";

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

/// The pinned cargo-deny.
pub(crate) fn cargo_deny(workspace: &Workspace) -> Result<PathBuf> {
    cargo_install(workspace, "cargo-deny", CARGO_DENY, "cargo-deny")
}

/// The pinned cargo-auditable, which writes into a program of Rust what it was built from.
pub(crate) fn cargo_auditable(workspace: &Workspace) -> Result<PathBuf> {
    cargo_install(workspace, "cargo-auditable", CARGO_AUDITABLE, "cargo-auditable")
}

/// The pinned program that prints what cargo-auditable has written, as CycloneDX.
pub(crate) fn auditable2cdx(workspace: &Workspace) -> Result<PathBuf> {
    cargo_install(workspace, "auditable2cdx", AUDITABLE2CDX, "auditable2cdx")
}

/// The pinned program that prints what a program of Go was built from, as CycloneDX.
pub(crate) fn cyclonedx_gomod(workspace: &Workspace) -> Result<PathBuf> {
    let package = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod";
    go_install(workspace, package, CYCLONEDX_GOMOD, Cgo::Off)
}

/// The pinned typos.
pub(crate) fn typos(workspace: &Workspace) -> Result<PathBuf> {
    cargo_install(workspace, "typos-cli", TYPOS, "typos")
}

/// The pinned zizmor.
pub(crate) fn zizmor(workspace: &Workspace) -> Result<PathBuf> {
    cargo_install(workspace, "zizmor", ZIZMOR, "zizmor")
}

/// The pinned mdBook, without its server.
pub(crate) fn mdbook(workspace: &Workspace) -> Result<PathBuf> {
    let options = ["--locked", "--no-default-features", "--features", "search"];
    cargo_install_with(workspace, "mdbook", MDBOOK, "mdbook", &options, &QUICKLY)
}

/// rust-libp2p's perf with the profile of its authors, because it is measured. Its Cargo.lock has a release
/// of `time` that the pinned Rust does not compile, so cargo chooses the dependencies.
pub(crate) fn libp2p_perf(workspace: &Workspace) -> Result<PathBuf> {
    cargo_install_with(workspace, "libp2p-perf", LIBP2P_PERF, "perf", &[], &[])
}

/// A profile that builds a program quickly. The own profiles of programs take minutes to save seconds: fat
/// LTO in one unit, for programs that run twice.
const QUICKLY: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
];

/// A program of a crate, built once for this user and quickly.
fn cargo_install(workspace: &Workspace, package: &str, version: &str, program: &str) -> Result<PathBuf> {
    cargo_install_with(workspace, package, version, program, &["--locked"], &QUICKLY)
}

fn cargo_install_with(
    workspace: &Workspace,
    package: &str,
    version: &str,
    program: &str,
    options: &[&str],
    profile: &[(&str, &str)],
) -> Result<PathBuf> {
    let name = format!("{package}-{version}");
    once(workspace, &name, &format!("bin/{program}"), |root| {
        let build = workspace.scratch()?.join(format!("{package}-build"));
        let mut install = workspace.cargo(["install", package, "--version", version]);
        install.arg("--root").arg(root).arg("--target-dir").arg(&build);
        install.args(options).envs(profile.iter().copied());
        shell::succeed(&mut install)?;
        fs::remove_dir_all(&build).with_context(|| format!("failed to remove {}", build.display()))
    })
}

/// Both helms, the current one first. Each is called `helm`, in a folder of its own.
pub(crate) fn helm(workspace: &Workspace) -> Result<[PathBuf; 2]> {
    let [current, earlier] = [0, 1].map(|index| {
        let version = HELM[index];
        let major = version.split('.').next().unwrap_or_default();
        go_install(
            workspace,
            &format!("helm.sh/helm/v{major}/cmd/helm"),
            version,
            Cgo::Off,
        )
    });
    Ok([current?, earlier?])
}

/// The pinned Vale.
pub(crate) fn vale(workspace: &Workspace) -> Result<PathBuf> {
    go_install(workspace, "github.com/vale-cli/vale/v3/cmd/vale", VALE, Cgo::On)
}

/// The pinned actionlint.
pub(crate) fn actionlint(workspace: &Workspace) -> Result<PathBuf> {
    let package = "github.com/rhysd/actionlint/cmd/actionlint";
    go_install(workspace, package, ACTIONLINT, Cgo::Off)
}

/// The pinned staticcheck.
pub(crate) fn staticcheck(workspace: &Workspace) -> Result<PathBuf> {
    let package = "honnef.co/go/tools/cmd/staticcheck";
    go_install(workspace, package, STATICCHECK, Cgo::Off)
}

/// The pinned govulncheck.
pub(crate) fn govulncheck(workspace: &Workspace) -> Result<PathBuf> {
    let package = "golang.org/x/vuln/cmd/govulncheck";
    go_install(workspace, package, GOVULNCHECK, Cgo::Off)
}

/// Whether a program in Go contains C.
enum Cgo {
    On,
    Off,
}

/// A program in Go, named like its folder, built once for this user.
fn go_install(workspace: &Workspace, package: &str, version: &str, cgo: Cgo) -> Result<PathBuf> {
    let program = package.rsplit('/').next().unwrap_or(package);
    once(workspace, &format!("{program}-{version}"), program, |folder| {
        go()?;
        let mut install = workspace.command("go");
        install
            .args(["install", "-trimpath", "-ldflags=-s -w"])
            .arg(format!("{package}@v{version}"));
        install.env("CGO_ENABLED", if matches!(cgo, Cgo::On) { "1" } else { "0" });
        // Grammars of languages, which take a minute to optimise.
        shell::succeed(install.env("GOBIN", folder).env("CGO_CFLAGS", "-O0"))
    })
}

/// A command of the pinned kubernetes-validate, which brings the schemas of many Kubernetes versions.
pub(crate) fn kubernetes_validate(workspace: &Workspace) -> Result<Command> {
    let name = format!("kubernetes-validate-{KUBERNETES_VALIDATE}");
    let program = once(workspace, &name, "bin/kubernetes-validate", |folder| {
        packages(workspace, PIP)?;
        let package = format!("kubernetes-validate=={KUBERNETES_VALIDATE}");
        let mut install = workspace.command("pip3");
        install.args([
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--root-user-action=ignore",
            "--upgrade",
        ]);
        shell::succeed(install.arg("--target").arg(folder).arg(package))
    })?;
    let folder = program
        .ancestors()
        .nth(2)
        .context("it is in a folder of its own")?;
    let mut command = workspace.command(&program);
    command.env("PYTHONPATH", folder);
    Ok(command)
}

/// A program in a folder of the cache. `install` fills the folder if the program is missing.
fn once(
    workspace: &Workspace,
    name: &str,
    program: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folders: Vec<_> = caches(workspace)?.map(|cache| cache.join(name)).collect();
    if let Some(folder) = folders.iter().find(|folder| folder.join(program).is_file()) {
        return Ok(folder.join(program));
    }
    let folder = folders
        .iter()
        .find(|folder| is_writable(folder))
        .context(NO_CACHE)?;
    println!(
        "==> installing {name} into {}; this happens once",
        folder.display()
    );
    install(folder)?;
    Ok(folder.join(program))
}

const NO_CACHE: &str =
    "unable to write to ~/.cache and to target/; set XDG_CACHE_HOME to a folder that can be written to";

/// A folder for what takes long to build.
pub(crate) fn writable_cache(workspace: &Workspace) -> Result<PathBuf> {
    caches(workspace)?
        .find(|cache| is_writable(cache))
        .context(NO_CACHE)
}

/// The caches in order of preference: the user's, then the clone's.
fn caches(workspace: &Workspace) -> Result<impl Iterator<Item = PathBuf>> {
    Ok(cache_of_user().into_iter().chain([workspace.scratch()?]))
}

/// perfrun's folder in the user's cache. `None` without a home.
pub(crate) fn cache_of_user() -> Option<PathBuf> {
    user_cache(|name| env::var_os(name).map(PathBuf::from))
}

/// perfrun's folder in the user's cache, by the XDG rules: a relative path counts as unset.
fn user_cache(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let cache = variable("XDG_CACHE_HOME").and_then(absolute);
    cache
        .or_else(|| Some(variable("HOME").and_then(absolute)?.join(".cache")))
        .map(|cache| cache.join("perfrun"))
}

/// Tries to write: permissions, read-only mounts and full disks cannot be told apart in another way.
fn is_writable(folder: &Path) -> bool {
    // The name is unique because another xtask may probe at the same time.
    let probe = folder.join(format!(".writable-{}", process::id()));
    fs::create_dir_all(folder).is_ok() && File::create(&probe).is_ok() && fs::remove_file(&probe).is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{BENCH, BUILD, instruction, missing, user_cache};

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

    #[test]
    fn the_cache_follows_xdg_then_home() {
        let cache = |xdg: &str, home: &str| {
            let value = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
            user_cache(|name| value(if name == "HOME" { home } else { xdg }))
        };
        assert_eq!(
            cache("/var/cache/amy", "/home/amy"),
            Some("/var/cache/amy/perfrun".into())
        );
        assert_eq!(
            cache("relative", "/home/amy"),
            Some("/home/amy/.cache/perfrun".into())
        );
        assert_eq!(cache("", "/home/amy"), Some("/home/amy/.cache/perfrun".into()));
        assert_eq!(cache("", ""), None);
    }
}
