//! The identity of this program.

use std::{
    env,
    fs::File,
    future::ready,
    io::{self, Read},
};

use aws_lc_rs::digest::{Context, SHA256};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use perfrun_contract::node::variables;
use tokio::task::spawn_blocking;

/// How much is read in one call, in bytes.
const CHUNK: usize = 1 << 18;

/// The SHA-256 digest of the running program, in hexadecimal. `None` if it cannot be read.
pub(crate) type Digest = Shared<BoxFuture<'static, Option<String>>>;

/// The digest that the starter of this process knows. Without one, begins to read the program, once: callers
/// that give up do not stop it.
pub(crate) fn program_digest() -> Digest {
    if let Ok(known) = env::var(variables::PROGRAM_SHA256) {
        return ready(Some(known)).boxed().shared();
    }
    let read = spawn_blocking(sha256);
    let digest = async {
        read.await
            .ok()?
            .inspect_err(|error| tracing::warn!(%error, "the digest of the program is unknown"))
            .ok()
    };
    digest.boxed().shared()
}

/// Reading it takes about 0.6 s for each GiB. The kernel shows the running file even if another took its
/// place.
fn sha256() -> io::Result<String> {
    digest(File::open("/proc/self/exe")?)
}

fn digest(mut from: impl Read) -> io::Result<String> {
    let mut digest = Context::new(&SHA256);
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => digest.update(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let bytes = digest.finish();
    Ok(bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_all_bytes() {
        // FIPS 180-2, appendix B.1 and B.3.
        assert_eq!(
            digest(&b"abc"[..]).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            digest(io::repeat(b'a').take(1_000_000)).unwrap(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    #[test]
    fn the_running_program_has_a_digest() {
        assert_eq!(sha256().unwrap().len(), 64);
    }
}
