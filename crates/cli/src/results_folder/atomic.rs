//! Files that appear complete or not at all, and are still there after a power cut.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::fd::AsRawFd,
    path::Path,
};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};

/// Writes a file, replacing any file of the same name.
///
/// The data go to a file without a name, which disappears with this process. It gets its name when the data
/// are on the disk; otherwise a power cut could leave the name of an empty file. Then the name goes to the
/// disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match unnamed(folder_of(path)) {
        Ok(file) => write_unnamed(file, path, bytes),
        Err(_) => write_beside(path, bytes),
    }?;
    sync_folder_of(path)
}

/// Puts the name of a file or folder on the disk.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    match File::open(folder_of(path))?.sync_all() {
        // Some file systems have nothing to sync for a folder.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().unwrap_or(Path::new(""));
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

fn write_unnamed(mut file: File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()?;
    match link(&file, path) {
        Err(rustix::io::Errno::EXIST) => {
            let draft = draft_path(path);
            // A process that was killed before its last step may have left one behind.
            let _ = fs::remove_file(&draft);
            link(&file, &draft)?;
            fs::rename(&draft, path)
        }
        linked => Ok(linked?),
    }
}

/// For file systems without unnamed files: writes a file beside the target and renames it at the end.
fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = draft_path(path);
    let written = File::create(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&draft, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// The path beside a file at which its new content is written before it replaces the file.
fn draft_path(path: &Path) -> std::path::PathBuf {
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
    use std::thread;

    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
        c_long, sock_filter, sock_fprog,
    };

    use super::*;

    /// Makes a system call of this thread fail from now on, as on a broken disk.
    fn forbid(call: c_long) {
        let step = |code: u32, jf: u8, k: u32| sock_filter {
            code: code as u16,
            jt: 0,
            jf,
            k,
        };
        let mut filter = [
            // The number of the call is first in what the filter sees.
            step(BPF_LD | BPF_W | BPF_ABS, 0, 0),
            step(BPF_JMP | BPF_JEQ | BPF_K, 1, u32::try_from(call).unwrap()),
            step(BPF_RET | BPF_K, 0, SECCOMP_RET_ERRNO | libc::EIO as u32),
            step(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW),
        ];
        let program = sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the kernel copies the program, which is valid during the call. Both calls concern this
        // thread.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                )
        };
        assert_eq!(installed, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_write_succeeds_only_if_data_and_name_are_on_the_disk() {
        type Write = fn(&Path, &[u8]) -> io::Result<()>;
        let without = |call: c_long, write: Write| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("results.json");
            let written = thread::scope(|scope| {
                let forbidden = || {
                    forbid(call);
                    write(&file, b"text")
                };
                scope.spawn(forbidden).join().unwrap()
            });
            (written.is_ok(), file.exists())
        };
        for write in [write as Write, write_beside] {
            assert_eq!(without(libc::SYS_fdatasync, write), (false, false), "data");
        }
        assert!(!without(libc::SYS_fsync, write).0, "name");
        assert_eq!(without(libc::SYS_sync, write), (true, true), "neither");
    }

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
    fn a_reservation_that_the_disk_cannot_hold_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(reserve(folder.path(), 1 << 20).unwrap());
        assert!(reserve(folder.path(), 1 << 62).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
