//! Programs in pinned versions, which distributions do not have. Each is built once for this user, in the
//! cache.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context, Result};

use crate::{
    install,
    shell::{self, Workspace},
};

/// A program, and how it is built.
pub(crate) struct Pinned {
    package: &'static str,
    version: &'static str,
    source: Source,
}

enum Source {
    /// A crate that is built quickly, with these options.
    Crate {
        program: &'static str,
        options: &'static [&'static str],
    },
    /// A crate that is built with the profile of its authors, because it is measured. Its Cargo.lock has a
    /// release of `time` that the pinned Rust does not compile, so cargo chooses the dependencies.
    MeasuredCrate { program: &'static str },
    /// A package of Go, with or without C. Its program has the name of its folder.
    Go { cgo: &'static str },
}

const fn of_crate(package: &'static str, version: &'static str, program: &'static str) -> Pinned {
    Pinned {
        package,
        version,
        source: Source::Crate {
            program,
            options: &["--locked"],
        },
    }
}

const fn of_go(package: &'static str, version: &'static str) -> Pinned {
    Pinned {
        package,
        version,
        source: Source::Go { cgo: "0" },
    }
}

pub(crate) const CARGO_DENY: Pinned = of_crate("cargo-deny", "0.20.2", "cargo-deny");
/// Writes into a program of Rust what it was built from.
pub(crate) const CARGO_AUDITABLE: Pinned = of_crate("cargo-auditable", "0.7.7", "cargo-auditable");
/// Prints what cargo-auditable has written, as CycloneDX.
pub(crate) const AUDITABLE2CDX: Pinned = of_crate("auditable2cdx", "0.1.0", "auditable2cdx");
pub(crate) const TYPOS: Pinned = of_crate("typos-cli", "1.52.0", "typos");
/// Later ones need a later Rust.
pub(crate) const ZIZMOR: Pinned = of_crate("zizmor", "1.25.0", "zizmor");
/// Without the server that it brings.
pub(crate) const MDBOOK: Pinned = Pinned {
    source: Source::Crate {
        program: "mdbook",
        options: &["--locked", "--no-default-features", "--features", "search"],
    },
    ..of_crate("mdbook", "0.5.4", "mdbook")
};
/// rust-libp2p's published benchmark.
pub(crate) const LIBP2P_PERF: Pinned = Pinned {
    package: "libp2p-perf",
    version: "0.3.0",
    source: Source::MeasuredCrate { program: "perf" },
};
/// Prints what a program of Go was built from, as CycloneDX.
pub(crate) const CYCLONEDX_GOMOD: Pinned = of_go(
    "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod",
    "1.10.0",
);
/// The helm that `cargo xtask test` installs the chart with, and the previous major version, which is still
/// in use.
const HELM: [Pinned; 2] = [
    of_go("helm.sh/helm/v4/cmd/helm", "4.3.1"),
    of_go("helm.sh/helm/v3/cmd/helm", "3.22.0"),
];
/// Later ones need a module that is not published.
pub(crate) const VALE: Pinned = Pinned {
    source: Source::Go { cgo: "1" },
    ..of_go("github.com/vale-cli/vale/v3/cmd/vale", "3.22.0")
};
pub(crate) const ACTIONLINT: Pinned = of_go("github.com/rhysd/actionlint/cmd/actionlint", "1.7.12");
/// Checks Go for mistakes that vet does not find.
pub(crate) const STATICCHECK: Pinned = of_go("honnef.co/go/tools/cmd/staticcheck", "0.8.2");
/// Finds advisories about modules of Go.
pub(crate) const GOVULNCHECK: Pinned = of_go("golang.org/x/vuln/cmd/govulncheck", "1.9.0");

const KUBERNETES_VALIDATE: &str = "1.37.0";

/// The profiles of crates take minutes to save seconds: fat LTO in one unit, for programs that run twice.
const QUICKLY: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
];

impl Pinned {
    /// The program, which is built if it is missing.
    pub(crate) fn install(&self, workspace: &Workspace) -> Result<PathBuf> {
        match self.source {
            Source::Crate { program, options } => self.cargo_install(workspace, program, options, &QUICKLY),
            Source::MeasuredCrate { program } => self.cargo_install(workspace, program, &[], &[]),
            Source::Go { cgo } => self.go_install(workspace, cgo),
        }
    }

    fn cargo_install(
        &self,
        workspace: &Workspace,
        program: &str,
        options: &[&str],
        profile: &[(&str, &str)],
    ) -> Result<PathBuf> {
        let Self { package, version, .. } = *self;
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

    fn go_install(&self, workspace: &Workspace, cgo: &str) -> Result<PathBuf> {
        let Self { package, version, .. } = *self;
        let program = package.rsplit('/').next().unwrap_or(package);
        once(workspace, &format!("{program}-{version}"), program, |folder| {
            install::go()?;
            let mut install = workspace.command("go");
            install
                .args(["install", "-trimpath", "-ldflags=-s -w"])
                .arg(format!("{package}@v{version}"));
            // Grammars of languages, which take a minute to optimise.
            install.env("CGO_ENABLED", cgo).env("CGO_CFLAGS", "-O0");
            shell::succeed(install.env("GOBIN", folder))
        })
    }
}

/// Both helms, the current one first. Each is called `helm`, in a folder of its own.
pub(crate) fn helm(workspace: &Workspace) -> Result<[PathBuf; 2]> {
    let [current, earlier] = HELM.map(|helm| helm.install(workspace));
    Ok([current?, earlier?])
}

/// A command of the pinned kubernetes-validate, which brings the schemas of many Kubernetes versions.
pub(crate) fn kubernetes_validate(workspace: &Workspace) -> Result<Command> {
    let name = format!("kubernetes-validate-{KUBERNETES_VALIDATE}");
    let program = once(workspace, &name, "bin/kubernetes-validate", |folder| {
        install::packages(workspace, install::PIP)?;
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
    use super::*;

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
