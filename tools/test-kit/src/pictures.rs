//! Pictures that tests make and pages show.

use std::{env, fs, path::Path};

use anyhow::{Context, Result, ensure};

/// The variable that names the folder of pictures. `cargo xtask pictures` sets it. Without it, none is kept.
pub const FOLDER: &str = "PERFRUN_PICTURES";

/// The most bytes that a picture may have.
pub const LIMIT: usize = 150 * 1024;

/// Keeps a picture, if [`FOLDER`] is set. `name` is its path there.
pub fn keep(name: &str, picture: &[u8]) -> Result<()> {
    let Some(folder) = env::var_os(FOLDER) else {
        return Ok(());
    };
    let size = picture.len();
    ensure!(
        size <= LIMIT,
        "{name} has {size} bytes, and a picture may have {LIMIT}"
    );
    let file = Path::new(&folder).join(name);
    let write = || {
        fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
        fs::write(&file, picture)
    };
    write().with_context(|| format!("failed to write {}", file.display()))
}
