//! Files that appear complete or not at all.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::AsRawFd,
    path::Path,
};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};

/// Writes a file, replacing any file of the same name.
///
/// The data go to a file without a name, which disappears with this process. It gets its name at the end.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let Ok(mut file) = unnamed(folder) else {
        return write_beside(path, bytes);
    };
    file.write_all(bytes)?;
    match link(&file, path) {
        Err(rustix::io::Errno::EXIST) => {
            let beside = beside(path);
            // A process that was killed before its last step may have left one behind.
            let _ = fs::remove_file(&beside);
            link(&file, &beside)?;
            fs::rename(&beside, path)
        }
        linked => Ok(linked?),
    }
}

/// For file systems without unnamed files: writes a file beside the target and renames it at the end.
fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn beside(path: &Path) -> std::path::PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

fn unnamed(folder: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::from_raw_mode(0o644)).map(File::from)
}

fn link(file: &File, path: &Path) -> rustix::io::Result<()> {
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, source, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Reserves space on the file system of a folder, in a file without a name. Dropping the file releases it.
/// `None` if the file system cannot reserve space.
pub(super) fn reserve(folder: &Path, bytes: u64) -> io::Result<Option<File>> {
    let Ok(file) = unnamed(folder) else {
        return Ok(None);
    };
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(1)) {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(Some(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_and_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        for text in ["one", "another"] {
            write(&file, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        write_beside(&file, b"third").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "third");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn more_than_the_disk_has_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(reserve(folder.path(), 1 << 20).unwrap());
        assert!(reserve(folder.path(), 1 << 62).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
