//! `cargo xtask image`: container images that hold one static program and nothing else.
//!
//! Cargo builds the program with everything that is already built, and the Dockerfile copies it into an empty
//! image: nothing is pulled, and nothing runs in the build. The result is an archive that `docker load`,
//! `kind`, `k3d` and containerd read.
//!
//! The program contains a list of what it was built from, which scanners of images find. The same list is
//! beside the archive, as CycloneDX.
//!
//! With `--dev` the image holds the program that tests run on this machine, with its shared libraries. A
//! static program would need most of its dependencies built again, because features that other members of the
//! workspace enable would not count.

mod contents;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::{
    files::{self, copy},
    go, install,
    patch::{self, Patch},
    pinned,
    shell::{self, Profile, Workspace},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which image to build
    image: Image,
    /// Use the dev profile: built sooner, but every number measured with it is flagged
    #[arg(long)]
    dev: bool,
    /// Tag of the image [default: the version, or `dev` with --dev, followed by what was patched]
    #[arg(long)]
    tag: Option<String>,
    /// Archive to write [default: target/images/IMAGE-TAG.tar]
    #[arg(long, value_name = "FILE.tar")]
    output: Option<PathBuf>,
    /// Build with another version of a dependency: the folder of a crate, or a Git repository as URL,
    /// URL?branch=NAME, URL?tag=NAME or URL?rev=COMMIT
    #[arg(long, value_name = "CRATE=PATH|GIT")]
    patch: Vec<Patch>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Image {
    /// The benchmark node
    Node,
    /// The benchmark node of go-libp2p
    NodeGo,
    /// The operator
    Operator,
}

impl Image {
    fn program(self) -> &'static str {
        match self {
            Self::Node => "perfrun-node",
            Self::NodeGo => go::PROGRAM,
            Self::Operator => "perfrun-operator",
        }
    }

    fn repository(self) -> String {
        format!("perfrun.invalid/{}", self.file_stem())
    }

    fn dockerfile(self) -> &'static str {
        match self {
            Self::Node => "node-image/rust/Dockerfile",
            Self::NodeGo => "node-image/go-libp2p/Dockerfile",
            Self::Operator => "operator/Dockerfile",
        }
    }

    fn file_stem(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::NodeGo => "node-go",
            Self::Operator => "operator",
        }
    }
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let profile = if args.dev { Profile::Dev } else { Profile::Release };
    let tag = args
        .tag
        .clone()
        .unwrap_or_else(|| default_tag(profile, &args.patch));
    ensure!(
        is_tag(&tag),
        "unable to tag an image as {tag:?}: a tag is up to 128 letters, digits, '_', '.' and '-', and begins \
         with none of the last two; pass another one with --tag"
    );
    let output = match &args.output {
        Some(file) => env::current_dir()
            .context("failed to find the current folder")?
            .join(file),
        None => default_output(workspace, args.image, &tag)?,
    };

    install::packages(workspace, install::BUILD)?;
    println!("==> building {}", args.image.program());
    let reference = write(workspace, args.image, profile, &args.patch, &tag, &output)?;

    let size = fs::metadata(&output).map_or(0, |file| file.len());
    println!(
        "==> {reference} is in {} ({} MiB)",
        output.display(),
        size.div_ceil(1 << 20)
    );
    let contents = contents::file(&output);
    if contents.exists() {
        println!("==> what it consists of is in {}", contents.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds an image with its default tag and returns the path of its archive.
pub(crate) fn build(workspace: &Workspace, image: Image, profile: Profile) -> Result<PathBuf> {
    let tag = tag(profile);
    let output = default_output(workspace, image, tag)?;
    write(workspace, image, profile, &[], tag, &output)?;
    Ok(output)
}

fn write(
    workspace: &Workspace,
    image: Image,
    profile: Profile,
    patches: &[Patch],
    tag: &str,
    output: &Path,
) -> Result<String> {
    let builder = Builder::find(workspace)?;
    // One of an earlier build would describe another program.
    let _ = fs::remove_file(contents::file(output));
    let reference = format!("{}:{tag}", image.repository());
    let name = image.program();
    let copied = || {
        let context = empty(workspace, name)?;
        copy(&workspace.program(profile, name), &context.join(name))?;
        anyhow::Ok(context)
    };
    let is_own = matches!(profile, Profile::Dev) && patches.is_empty();
    let (stage, context) = if image == Image::NodeGo {
        ensure!(
            patches.is_empty(),
            "--patch names a crate, and {name} is a Go module: use replace in its go.mod"
        );
        go::build(workspace, profile)?;
        (None, copied()?)
    } else if is_own {
        workspace.build(profile, &[name])?;
        let context = copied()?;
        copy_libraries(workspace, &context.join(name), &context)?;
        (Some("with-libraries"), context)
    } else {
        (None, static_program(workspace, image, profile, patches)?)
    };
    let recipe = Recipe {
        reference,
        dockerfile: image.dockerfile(),
        stage,
        context: &context,
    };
    archive(workspace, builder, &recipe, output)?;
    if !is_own {
        contents::write(workspace, image, &context.join(name), output)?;
    }
    Ok(recipe.reference)
}

/// Builds an image of the installed iperf3 with its shared libraries, and returns the path of its archive.
pub(crate) fn iperf3(workspace: &Workspace) -> Result<PathBuf> {
    let reference = concat!("perfrun/iperf3:", env!("CARGO_PKG_VERSION"));
    let program = Path::new("/usr/bin/iperf3");
    of_program(
        workspace,
        reference,
        "tools/bench/iperf3.Dockerfile",
        [program, program],
    )
}

/// The image of the hostile node.
pub(crate) const HOSTILE: &str = "perfrun.invalid/hostile-node:dev";

/// Builds the image of the hostile node, and returns the path of its archive.
pub(crate) fn hostile_node(workspace: &Workspace) -> Result<PathBuf> {
    const NAME: &str = "perfrun-hostile-node";
    workspace.build(Profile::Dev, &[NAME])?;
    let program = workspace.program(Profile::Dev, NAME);
    let inside = Path::new("/").join(NAME);
    of_program(
        workspace,
        HOSTILE,
        "tools/e2e/hostile-node.Dockerfile",
        [&program, &inside],
    )
}

/// Builds an image of a program of this machine with its shared libraries. The second path is that in the
/// image.
fn of_program(
    workspace: &Workspace,
    reference: &str,
    dockerfile: &'static str,
    [program, path]: [&Path; 2],
) -> Result<PathBuf> {
    let name = path
        .file_name()
        .context("a program has a name")?
        .to_string_lossy();
    let context = empty(workspace, &name)?;
    copy(program, &inside(&context, &path.to_string_lossy()))?;
    copy_libraries(workspace, program, &context)?;
    let output = workspace.images()?.join(format!("{name}.tar"));
    let recipe = Recipe {
        reference: reference.to_owned(),
        dockerfile,
        stage: None,
        context: &context,
    };
    archive(workspace, Builder::find(workspace)?, &recipe, &output)?;
    Ok(output)
}

/// An empty folder for the files of an image.
fn empty(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let folder = workspace.scratch()?.join("context").join(name);
    files::empty(&folder)?;
    Ok(folder)
}

/// The path in the image's folder of a file of this machine.
fn inside(context: &Path, file: &str) -> PathBuf {
    context.join(file.trim_start_matches('/'))
}

/// Copies the shared libraries of a program to the paths where the program looks for them.
fn copy_libraries(workspace: &Workspace, program: &Path, context: &Path) -> Result<()> {
    // `ldd` prints a line for each library: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
    let libraries = shell::output(workspace.command("ldd").arg(program))?;
    libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .try_for_each(|file| copy(Path::new(file), &inside(context, file)))
}

fn default_output(workspace: &Workspace, image: Image, tag: &str) -> Result<PathBuf> {
    Ok(workspace
        .images()?
        .join(format!("{}-{tag}.tar", image.file_stem())))
}

/// The tag of an image without patched dependencies.
pub(crate) fn tag(profile: Profile) -> &'static str {
    match profile {
        Profile::Dev => "dev",
        Profile::Release => env!("CARGO_PKG_VERSION"),
    }
}

fn default_tag(profile: Profile, patches: &[Patch]) -> String {
    patches.iter().fold(tag(profile).to_owned(), |tag, patch| {
        format!("{tag}-{}", patch.label())
    })
}

fn is_tag(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(is_part) && !text.starts_with(['.', '-'])
}

/// Builds a program that needs no shared library and no loader, so that an empty image can hold it. Returns
/// the folder of the program. Only the program is linked differently; all its dependencies are those of the
/// ordinary build.
fn static_program(
    workspace: &Workspace,
    image: Image,
    profile: Profile,
    patches: &[Patch],
) -> Result<PathBuf> {
    let name = image.program();
    // It is also the compiler of the workspace, as RUSTC_WORKSPACE_WRAPPER.
    let mut cargo = workspace.command(pinned::CARGO_AUDITABLE.install(workspace)?);
    cargo.args(["auditable", "rustc", "--package", name, "--bin", name]);
    cargo.args(["--profile", profile.name()]);
    cargo.args(["--", "-Ctarget-feature=+crt-static"]);
    let folder = patch::build_apart(workspace, &mut cargo, "static", patches)?.join(profile.folder());

    let program = folder.join(name);
    let bytes = fs::read(&program).with_context(|| format!("failed to read {}", program.display()))?;
    ensure!(
        needs_no_loader(&bytes),
        "{} was not linked statically; is this a Linux with glibc and its static library (libc6-dev on Debian)?",
        program.display()
    );
    Ok(folder)
}

/// Whether a 64-bit little-endian ELF file names no interpreter, the program that loads shared libraries.
fn needs_no_loader(elf: &[u8]) -> bool {
    const INTERPRETER: &[u8] = &3_u32.to_le_bytes();
    let number = |at: usize, length: usize| {
        let bytes = elf.get(at..at.checked_add(length)?)?;
        let number = bytes
            .iter()
            .rev()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).ok()
    };
    let headers = || {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let types = (0..count).map(|index| elf.get(start + index * size..start + index * size + 4));
        types.collect::<Option<Vec<_>>>()
    };
    elf.starts_with(b"\x7fELF\x02\x01")
        && headers().is_some_and(|types| !types.is_empty() && !types.contains(&INTERPRETER))
}

/// The program that turns a Dockerfile into an image.
#[derive(Clone, Copy)]
enum Builder {
    Buildah,
    Docker,
}

/// Installs the program that turns a Dockerfile into an image, if it is missing.
pub(crate) fn install_builder(workspace: &Workspace) -> Result<()> {
    Builder::find(workspace).map(drop)
}

impl Builder {
    /// Buildah needs no daemon. Docker is used where only Docker is running.
    fn find(workspace: &Workspace) -> Result<Self> {
        if !shell::on_path("buildah") && shell::works(workspace.command("docker").arg("version")) {
            return Ok(Self::Docker);
        }
        install::packages(workspace, install::IMAGE)?;
        Ok(Self::Buildah)
    }
}

/// The parts of an image.
struct Recipe<'a> {
    reference: String,
    dockerfile: &'static str,
    /// The target stage of the Dockerfile. `None` for the last stage.
    stage: Option<&'static str>,
    /// The folder from which the Dockerfile copies.
    context: &'a Path,
}

/// Builds the image and writes it to `output`.
fn archive(workspace: &Workspace, builder: Builder, recipe: &Recipe<'_>, output: &Path) -> Result<()> {
    let reference = &recipe.reference;
    let mut build = match builder {
        Builder::Buildah => workspace.command("buildah"),
        Builder::Docker => workspace.command("docker"),
    };
    build.arg("build").arg("--quiet");
    if matches!(builder, Builder::Buildah) {
        build.args(["--isolation", "chroot"]); // works inside containers, too
    }
    build.arg("--file").arg(workspace.root.join(recipe.dockerfile));
    if let Some(stage) = recipe.stage {
        build.args(["--target", stage]);
    }
    build.args(["--build-arg", concat!("VERSION=", env!("CARGO_PKG_VERSION"))]);
    if let Some(revision) = workspace.revision(&[]) {
        build.arg("--build-arg").arg(format!("REVISION={revision}"));
    }
    let id = shell::output(build.arg(recipe.context))?;

    // The archive is written to another path and then renamed, because neither program replaces an archive in
    // one step.
    let partial = output.with_extension("tar.partial");
    files::create_folder(output.parent().context("an archive is in a folder")?)?;
    let _ = fs::remove_file(&partial);
    match builder {
        Builder::Buildah => {
            let to = format!("docker-archive:{}:{reference}", partial.display());
            shell::succeed(workspace.command("buildah").args(["push", "--quiet", &id, &to]))?;
            shell::succeed(
                workspace
                    .command("buildah")
                    .args(["rmi", &id])
                    .stdout(Stdio::null()),
            )?;
        }
        Builder::Docker => {
            shell::succeed(workspace.command("docker").args(["tag", &id, reference]))?;
            let mut save = workspace.command("docker");
            save.args(["save", "--output"]).arg(&partial).arg(reference);
            shell::succeed(&mut save)?;
        }
    }
    fs::rename(&partial, output).with_context(|| format!("failed to write {}", output.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, env, fs};

    use super::{Image, Profile, default_tag, is_tag, needs_no_loader};

    #[test]
    fn the_default_tag_names_the_profile_and_the_patches() {
        let patches = [
            "litep2p=https://example.org/litep2p?branch=new/yamux",
            "quinn=/src/Quinn Fork",
        ]
        .map(|text| text.parse().unwrap());
        assert_eq!(default_tag(Profile::Dev, &[]), "dev");
        assert_eq!(default_tag(Profile::Release, &[]), env!("CARGO_PKG_VERSION"));
        let tag = default_tag(Profile::Dev, &patches);
        assert_eq!(tag, "dev-litep2p-new-yamux-quinn-Quinn-Fork");
        assert!(is_tag(&tag));
    }

    #[test]
    fn the_chart_names_these_images() {
        let values = include_str!("../../../charts/perfrun/values.yaml");
        for image in [Image::Node, Image::NodeGo, Image::Operator] {
            let line = format!(" repository: {}\n", image.repository());
            assert!(values.contains(&line), "{line}");
        }
    }

    #[test]
    fn images_are_empty_or_begin_with_one_that_is_pinned() {
        let toolchain = include_str!("../../../rust-toolchain.toml");
        let version = toolchain.split('"').nth(1).unwrap();
        let pinned = |base: &str| {
            let digest = base.split_once("@sha256:").map_or("", |(_, digest)| digest);
            digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let mut rust = BTreeSet::new();
        for dockerfile in [
            include_str!("../../../operator/Dockerfile"),
            include_str!("../../../node-image/rust/Dockerfile"),
            include_str!("../../../node-image/go-libp2p/Dockerfile"),
            include_str!("../../../tools/bench/iperf3.Dockerfile"),
            include_str!("../../../tools/e2e/hostile-node.Dockerfile"),
        ] {
            let mut stages = vec!["scratch"];
            for line in dockerfile.lines() {
                match line.split_whitespace().collect::<Vec<_>>()[..] {
                    ["ARG", arg] if arg.starts_with("RUST=") => {
                        let base = arg.trim_start_matches("RUST=");
                        assert!(pinned(base), "{base}");
                        assert!(base.contains(&format!("rust:{version}-")), "{base}");
                        rust.insert(base);
                        stages.push("${RUST}");
                    }
                    ["FROM", base, ref named @ ..] => {
                        assert!(stages.contains(&base) || pinned(base), "{line}");
                        stages.extend(named.get(1));
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(rust.len(), 1, "{rust:?}");
    }

    #[test]
    fn tags_that_no_registry_takes_are_noticed() {
        for tag in ["", "-x", ".x", "a b", "a/b", "a:b", &"x".repeat(129)] {
            assert!(!is_tag(tag), "{tag}");
        }
        assert!(is_tag("_x"));
        assert!(is_tag(&"x".repeat(128)));
    }

    #[test]
    fn a_program_with_a_loader_is_distinguished_from_one_without() {
        let this = fs::read(env::current_exe().unwrap()).unwrap();
        assert!(!needs_no_loader(&this));

        // The header of an ELF file with one loadable segment.
        let mut elf = vec![0; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[32], elf[54], elf[56], elf[64]) = (64, 56, 1, 1);
        assert!(needs_no_loader(&elf));
        elf[64] = 3;
        assert!(!needs_no_loader(&elf));

        for broken in [&elf[..60], &elf[..64], b"#!/bin/sh", b""] {
            assert!(!needs_no_loader(broken));
        }
    }
}
