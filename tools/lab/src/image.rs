//! Images: the one for the sandboxes of pods, and loading images into nodes.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::{
    paths::{self, CONTAINERD_SOCKET},
    process::Process,
};

pub(crate) const PAUSE: &str = "localhost/perfrun-lab/pause:1";

/// Puts a statically linked program into an archive in the format of `docker save`.
///
/// The archive is three files. Tools that build images would need their own setup.
pub(crate) fn write_pause(program: &Path, archive: &Path) -> Result<()> {
    let folder = archive.with_extension("d");
    let layer = folder.join("layer");
    paths::create_folder(&layer)?;
    let pause = layer.join("pause");
    fs::copy(program, &pause).with_context(|| format!("failed to copy {}", program.display()))?;
    fs::set_permissions(&pause, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("failed to make {} executable", pause.display()))?;
    tar(&folder.join("layer.tar"), &layer, &["pause"])?;

    let digest = sha256(&folder.join("layer.tar"))?;
    let config = json!({
        "architecture": architecture()?,
        "os": "linux",
        "config": { "Entrypoint": ["/pause"], "User": "65535:65535" },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        "history": [{ "created_by": "perfrun" }],
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"] }]);
    paths::write(&folder.join("config.json"), &config.to_string())?;
    paths::write(&folder.join("manifest.json"), &manifest.to_string())?;
    tar(archive, &folder, &["manifest.json", "config.json", "layer.tar"])?;
    fs::remove_dir_all(&folder).with_context(|| format!("failed to remove {}", folder.display()))
}

/// Imports an archive into the containerd of the node that `holder` holds.
pub(crate) fn load(ctr: &Path, holder: Process, archive: &Path) -> Result<()> {
    // The socket is in the machine's own /run. This is its path as seen from the host.
    let socket = format!("/proc/{}/root{CONTAINERD_SOCKET}", holder.pid);
    let mut import = Command::new(ctr);
    import.args(["--address", &socket, "--namespace", "k8s.io", "images", "import"]);
    let output = import
        .arg(archive)
        .output()
        .context("failed to start ctr; `cargo xtask lab down` and `up` build and link it again")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!(
            "failed to load {}: {}; is it a docker-archive or OCI archive, and is the node's containerd running \
             (`cargo xtask lab status`)?",
            archive.display(),
            error.trim()
        );
    }
    Ok(())
}

fn tar(archive: &Path, folder: &Path, files: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    tar.arg("--file").arg(archive).arg("--directory").arg(folder);
    let status = tar
        .args(files)
        .status()
        .context("failed to start `tar`; install it")?;
    if !status.success() {
        bail!(
            "failed to write {} ({status}); the output of tar is above",
            archive.display()
        );
    }
    Ok(())
}

fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum")
        .arg(file)
        .output()
        .context("failed to start `sha256sum`; install coreutils")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().next() {
        Some(digest) if output.status.success() => Ok(digest.to_owned()),
        _ => bail!("`sha256sum {}` failed", file.display()),
    }
}

/// The architecture as image formats and Go name it.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("unable to make an image for {other}; the lab runs on x86_64 and aarch64"),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::write_pause;

    #[test]
    fn the_archive_names_its_parts_and_nothing_else_is_left() {
        let folder = std::env::temp_dir().join(format!("lab-image-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let archive = folder.join("pause.tar");
        write_pause("/bin/true".as_ref(), &archive).unwrap();
        let list = Command::new("tar").arg("-tf").arg(&archive).output().unwrap();
        assert_eq!(
            String::from_utf8(list.stdout).unwrap(),
            "manifest.json\nconfig.json\nlayer.tar\n"
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
