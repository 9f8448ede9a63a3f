//! Names of a run's objects. Each has the name of the run and five digits of the digest of its UID. So the
//! remains of a deleted run hardly ever collide with a new run of the same name.

use sha2::{Digest, Sha256};

/// The longest name: that of a label's value, and of a pod's host name.
const LENGTH_MAX: usize = 63;
const ID_LENGTH: usize = 5;
/// The longest end of a name. At least one character of the run's name is always left.
pub const SUFFIX_MAX: usize = LENGTH_MAX - ID_LENGTH - "--".len() - 1;

/// The name of the object with this end of its name.
pub fn object_name(run: &str, uid: &str, suffix: &str) -> String {
    debug_assert!(suffix.len() <= SUFFIX_MAX, "{suffix}");
    let digest = Sha256::digest(uid.as_bytes());
    let id: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = &id[..ID_LENGTH];
    let room = LENGTH_MAX - "--".len() - id.len() - suffix.len();
    // Names of runs are ASCII, checked by the API server.
    let run: String = run.chars().take(room).collect();
    format!("{run}-{id}-{suffix}")
}
