//! Opening files of results, which may come from elsewhere and may be compressed.
//!
//! A name in a folder may lead to a device that never ends, or to a FIFO that never begins. So only regular
//! files are opened.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use rustix::fs::{Mode, OFlags};

/// Most bytes of a text that is read as a whole.
const TEXT_BYTES: u64 = 32 << 20;

/// The bytes of a regular file, decompressed if its name says that it is compressed.
pub(super) fn open(file: &Path) -> io::Result<Box<dyn Read>> {
    // Opening a device may already do something.
    check(&fs::metadata(file)?)?;
    // Another file may have taken its place.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    check(&opened.metadata()?)?;
    let bytes: Box<dyn Read> = match file.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(MultiGzDecoder::new(opened)),
        false => Box::new(opened),
    };
    Ok(bytes)
}

/// The text of a regular file of at most 32 MiB.
pub(crate) fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = open(file)?.take(TEXT_BYTES + 1).read_to_string(&mut text)?;
    match read as u64 > TEXT_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

fn check(metadata: &Metadata) -> io::Result<()> {
    match (metadata.is_file(), metadata.is_dir()) {
        (true, _) => Ok(()),
        (false, true) => Err(io::ErrorKind::IsADirectory.into()),
        (false, false) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it is not a regular file",
        )),
    }
}
