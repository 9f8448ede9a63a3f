//! The secret that the control ports of nodes require.

use std::fmt;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Seek, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// 256 random bits in hexadecimal, new for each run. `Debug` does not show them.
#[derive(Clone, Eq, PartialEq)]
pub struct Token(Arc<str>);

impl Token {
    pub(super) fn random() -> Self {
        let secret: [u8; 32] = rand::random();
        let hex = secret.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}"); // writing to a String cannot fail
            hex
        });
        Self(hex.into())
    }

    /// The token for the header `Authorization: Bearer`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A read-only file in memory with the token. A child can open it by its number, any number of times.
    pub(super) fn to_file(&self) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Linux before 6.3 does not know the flag; some distributions require it since.
        let file = match memfd_create("perfrun-token", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create("perfrun-token", flags),
            created => created,
        }?;
        let mut file = File::from(file);
        file.write_all(self.0.as_bytes())?;
        file.rewind()?;
        fcntl_add_seals(
            &file,
            SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
        )?;
        Ok(file.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_stay_out_of_debug_output() {
        let (one, other) = (Token::random(), Token::random());
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), 64);
        assert_eq!(format!("{one:?}"), "Token(..)");
    }

    #[test]
    fn the_file_holds_the_token_and_takes_no_other() {
        let token = Token::random();
        let mut file = File::from(token.to_file().unwrap());
        assert_eq!(io::read_to_string(&file).unwrap(), token.as_str());
        file.write_all(b"x").unwrap_err();
    }
}
