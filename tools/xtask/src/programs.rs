//! Programs of the lab that distributions do not have, or have only in old versions. They are built from Go
//! modules, once for each user.
//!
//! `tools/xtask/{kubernetes,coredns,prometheus}` are Go modules of ours that pin Kubernetes, CoreDNS and
//! Prometheus with their dependencies. The others are programs of modules that can be built unchanged.

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    files::create_folder,
    install, pinned,
    shell::{self, Workspace},
    step,
};

const KUBERNETES: &str = "1.36.3";
const CONTAINERD: &str = "2.4.2";
const COREDNS: &str = "1.15.0";

/// The version in our go.mod, which counts Prometheus 3 as version 0.
const PROMETHEUS: &str = "0.315.0";

/// The version of tools/xtask/kubernetes/pause. Increase it with each change there.
const PAUSE: &str = "1";

/// Programs that are built, and replaced, together.
struct Group {
    /// The name of the group, which names its folder in the cache together with the version.
    name: &'static str,
    version: &'static str,
    programs: &'static [&'static str],
    /// The prefix that makes a package of a program's name. `@version` follows the name unless `module` is
    /// set.
    packages: &'static str,
    /// The folder of our Go module that pins the programs, if there is one.
    module: Option<&'static str>,
    /// Go build tags: the features that are built in or left out.
    tags: &'static str,
}

const GROUPS: [Group; 4] = [
    Group {
        name: "pause",
        version: PAUSE,
        programs: &["pause"],
        packages: "perfrun.io/lab/",
        module: Some("tools/xtask/kubernetes"),
        tags: "",
    },
    Group {
        name: "containerd",
        version: CONTAINERD,
        programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
        packages: "github.com/containerd/containerd/v2/cmd/",
        module: None,
        tags: "",
    },
    Group {
        name: "coredns",
        version: COREDNS,
        programs: &["coredns"],
        packages: "perfrun.io/lab/",
        module: Some("tools/xtask/coredns"),
        tags: "",
    },
    Group {
        name: "kubernetes",
        version: KUBERNETES,
        programs: &[
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ],
        packages: "k8s.io/kubernetes/cmd/",
        module: Some("tools/xtask/kubernetes"),
        tags: "",
    },
];

/// The Prometheus that tests of metrics start. Debian's has no service discovery for pods.
const PROMETHEUS_GROUP: Group = Group {
    name: "prometheus",
    version: PROMETHEUS,
    programs: &["prometheus"],
    packages: "github.com/prometheus/prometheus/cmd/",
    module: Some("tools/xtask/prometheus"),
    tags: "netgo,remove_all_sd,enable_kubernetes_sd",
};

/// The programs of a cluster. Missing ones are built.
pub(crate) fn of_cluster(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    built(workspace, &GROUPS)
}

/// Prometheus. It is built if it is missing.
pub(crate) fn prometheus(workspace: &Workspace) -> Result<PathBuf> {
    let built = built(workspace, &[PROMETHEUS_GROUP])?;
    built.into_iter().next().context("it is one program")
}

fn built(workspace: &Workspace, groups: &[Group]) -> Result<Vec<PathBuf>> {
    let cache = pinned::writable_cache(workspace)?.join("lab");
    create_folder(&cache)?;
    let missing: Vec<_> = groups
        .iter()
        .filter(|group| !group.folder(&cache).exists())
        .collect();
    if !missing.is_empty() {
        build(workspace, &cache, &missing)?;
    }
    Ok(groups
        .iter()
        .flat_map(|group| {
            let folder = group.folder(&cache);
            group.programs.iter().map(move |program| folder.join(program))
        })
        .collect())
}

fn build(workspace: &Workspace, cache: &Path, groups: &[&Group]) -> Result<()> {
    install::go()?;
    let total: usize = groups.iter().map(|group| group.programs.len()).sum();
    println!(
        "==> building {} into {}; this happens once, some minutes on two cores",
        groups
            .iter()
            .map(|group| group.name)
            .collect::<Vec<_>>()
            .join(", "),
        cache.display()
    );
    let _lock = lock(cache)?;

    let start = Instant::now();
    let mut count = 0;
    for group in groups {
        let partial = cache.join(format!("{}-{}.partial", group.name, group.version));
        create_folder(&partial)?;
        for program in group.programs {
            count += 1;
            let built = partial.join(program);
            // Built by a command that was interrupted, or by the one that held the lock.
            if built.exists() || group.folder(cache).exists() {
                continue;
            }
            let new = partial.join("new");
            create_folder(&new)?;
            let title = format!("({count} of {total}) {program} {}", group.version);
            compile(&mut group.command(workspace, program, &new), &title)?;
            rename(&new.join(program), &built)?;
            fs::remove_dir_all(&new).with_context(|| format!("failed to remove {}", new.display()))?;
        }
        if group.folder(cache).exists() {
            let _ = fs::remove_dir_all(&partial);
        } else {
            rename(&partial, &group.folder(cache))?;
        }
    }
    println!("==> built in {}", step::short_text(start.elapsed()));
    Ok(())
}

impl Group {
    fn folder(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name, self.version))
    }

    fn command(&self, workspace: &Workspace, program: &str, folder: &Path) -> Command {
        let package = format!("{}{program}", self.packages);
        let mut go = workspace.command("go");
        let flags = ["-trimpath", "-buildvcs=false", "-ldflags", &self.link_flags()];
        go.arg(if self.module.is_some() { "build" } else { "install" });
        go.args(["-tags", self.tags]);
        if let Some(module) = self.module {
            go.current_dir(workspace.root.join(module));
            go.args(flags).arg("-o").arg(folder).arg(package);
        } else {
            go.args(flags).env("GOBIN", folder);
            go.arg(format!("{package}@v{}", self.version));
        }
        go.env("CGO_ENABLED", "0");
        go
    }

    /// Linker flags that leave out tables for debuggers and set the version that the program reports.
    fn link_flags(&self) -> String {
        let version = self.version;
        let variables = match self.name {
            "kubernetes" => {
                let package = "k8s.io/component-base/version";
                let mut numbers = version.split('.');
                let mut next = || numbers.next().unwrap_or_default();
                format!(
                    " -X {package}.gitVersion=v{version} -X {package}.gitMajor={} -X {package}.gitMinor={}",
                    next(),
                    next()
                )
            }
            "containerd" => format!(" -X github.com/containerd/containerd/v2/version.Version={version}"),
            _ => String::new(),
        };
        format!("-s -w{variables}")
    }
}

/// Runs a compiler. On a terminal it shows the elapsed time.
fn compile(command: &mut Command, title: &str) -> Result<()> {
    let start = Instant::now();
    let is_watched = io::stdout().is_terminal();
    let status = shell::start(command)?.end(|mut child| {
        loop {
            if let Some(status) = child.try_wait().context("failed to wait for go")? {
                return anyhow::Ok(status);
            }
            if is_watched {
                print!("\r    {title:<45} {:>12}", step::short_text(start.elapsed()));
                let _ = io::stdout().flush();
            }
            thread::sleep(Duration::from_millis(200));
        }
    })?;
    let end = if is_watched { "\r" } else { "" };
    println!("{end}    {title:<45} {:>12}", step::short_text(start.elapsed()));
    if !status.success() {
        bail!(
            "`{}` failed ({status}); its output is above. Modules come from Go's module proxy: check \
             `go env GOPROXY` and the network, then run the same command again, which continues from here",
            shell::line(command)
        );
    }
    Ok(())
}

/// Keeps other processes from building the same programs until the returned file is dropped.
fn lock(folder: &Path) -> Result<File> {
    let folder = File::open(folder).with_context(|| format!("failed to open {}", folder.display()))?;
    folder.lock().context("failed to lock the cache of programs")?;
    Ok(folder)
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("failed to rename {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::{COREDNS, GROUPS, KUBERNETES, PROMETHEUS};

    const GO_MOD: &str = include_str!("../kubernetes/go.mod");

    #[test]
    fn the_module_pins_the_version_that_programs_report() {
        let pinned = GO_MOD
            .lines()
            .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"));
        assert_eq!(pinned.and_then(|rest| rest.split(' ').next()), Some(KUBERNETES));
        let (_, minor) = KUBERNETES.split_once('.').unwrap();
        let replacements = GO_MOD.lines().filter(|line| line.contains("=>"));
        for line in replacements {
            assert!(line.ends_with(&format!(" v0.{minor}")), "{line}");
        }
    }

    #[test]
    fn modules_pin_the_versions_that_name_the_cache() {
        let pinned = |module: &'static str, name: &str| {
            module.lines().find_map(|line| {
                let pinned = line.trim().trim_start_matches("require ").strip_prefix(name)?;
                pinned.strip_prefix(" v")?.split(' ').next()
            })
        };
        let prometheus = include_str!("../prometheus/go.mod");
        assert_eq!(
            pinned(prometheus, "github.com/prometheus/prometheus"),
            Some(PROMETHEUS)
        );
        let coredns = include_str!("../coredns/go.mod");
        assert_eq!(pinned(coredns, "github.com/coredns/coredns"), Some(COREDNS));
    }

    #[test]
    fn every_program_of_kubernetes_is_a_tool_of_the_module() {
        let kubernetes = GROUPS.iter().find(|group| group.name == "kubernetes").unwrap();
        for program in kubernetes.programs {
            let tool = format!("\t{}{program}\n", kubernetes.packages);
            assert!(GO_MOD.contains(&tool), "{program}");
        }
        let flags = kubernetes.link_flags();
        assert!(flags.contains(".gitMajor=1 "), "{flags}");
        assert!(flags.ends_with(".gitMinor=36"), "{flags}");
    }
}
