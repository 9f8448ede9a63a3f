//! Files of results that may be compressed.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use perfrun_api::cluster::RESULTS_BYTES;

/// The bytes of a file, decompressed if its name says that it is compressed. A file from elsewhere may
/// decompress to a thousand times its size, so that what is too large for results ends early.
pub(crate) fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file.extension().is_none_or(|extension| extension != "gz") {
        return fs::read(file);
    }
    let mut bytes = vec![];
    MultiGzDecoder::new(File::open(file)?)
        .take(RESULTS_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
