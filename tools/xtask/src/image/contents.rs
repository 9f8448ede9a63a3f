//! What an image consists of: a CycloneDX document beside its archive, from the very program in the image.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::Image;
use crate::{
    pinned,
    shell::{self, Workspace},
};

/// The document beside an archive.
pub(super) fn file(archive: &Path) -> PathBuf {
    archive.with_added_extension("cdx.json")
}

/// Writes the document from what the program says of itself: Go lists its modules, and cargo-auditable its
/// crates. Fails if the program does not.
pub(super) fn write(workspace: &Workspace, image: Image, program: &Path, archive: &Path) -> Result<()> {
    let mut listing = match image {
        Image::NodeGo => {
            let mut listing = workspace.command(pinned::CYCLONEDX_GOMOD.install(workspace)?);
            listing.args(["bin", "-json"]);
            listing
        }
        Image::Node | Image::Operator => workspace.command(pinned::AUDITABLE2CDX.install(workspace)?),
    };
    let document = shell::output(listing.arg(program))?;
    let file = file(archive);
    fs::write(&file, document).with_context(|| format!("failed to write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_beside_the_archive() {
        let archive = Path::new("target/images/node-0.1.0.tar");
        assert_eq!(file(archive), Path::new("target/images/node-0.1.0.tar.cdx.json"));
    }
}
