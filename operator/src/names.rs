//! Names of a run's objects. Each has the name of the run and five digits of its UID, so that the remains of
//! a deleted run never collide with a new run of the same name.

use perfrun_api::cluster::PartKind;
use sha2::{Digest, Sha256};

/// The longest name: that of a label's value, and of a pod's host name.
const LENGTH_MAX: usize = 63;
/// The largest incarnation of a node that has a name.
pub(crate) const INCARNATIONS_MAX: u32 = 999;
/// The longest suffix of a name: a node of a control whose variant has the longest name, and its incarnation.
/// `client6c99-` is not longer.
const SUFFIX_MAX: usize = "client-99c-".len() + 40 + "-999".len();
const ID_LENGTH: usize = 5;

// At least one character of the run's name is always left.
const _: () = assert!(1 + "-".len() + ID_LENGTH + "-".len() + SUFFIX_MAX <= LENGTH_MAX);

/// The name of a pod.
pub(crate) fn pod(run: &str, uid: &str, node: &str, incarnation: u32) -> String {
    child(run, uid, &format!("{node}-{incarnation}"))
}

/// The name of the Secret with the run's token.
pub(crate) fn token(run: &str, uid: &str) -> String {
    child(run, uid, "token")
}

/// The name of the Secret with the token of the pod that keeps results.
pub(crate) fn store_token(run: &str, uid: &str) -> String {
    child(run, uid, "store-token")
}

/// The name of the run's NetworkPolicy.
pub(crate) fn policy(run: &str, uid: &str) -> String {
    child(run, uid, "control")
}

/// The name of a part of the run's results.
pub(crate) fn part(run: &str, uid: &str, kind: PartKind, number: usize) -> String {
    child(run, uid, &kind.suffix(number))
}

/// The number of the part with this name. `None` if [`part`] did not make the name.
pub(crate) fn part_number(run: &str, uid: &str, kind: PartKind, name: &str) -> Option<usize> {
    let number = name.rsplit('-').next()?.parse().ok()?;
    (part(run, uid, kind, number) == name).then_some(number)
}

fn child(run: &str, uid: &str, suffix: &str) -> String {
    debug_assert!(suffix.len() <= SUFFIX_MAX, "{suffix}");
    let digest = Sha256::digest(uid.as_bytes());
    let id: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = &id[..ID_LENGTH];
    let room = LENGTH_MAX - "--".len() - id.len() - suffix.len();
    // Names of runs are ASCII, checked by the API server.
    let run: String = run.chars().take(room).collect();
    format!("{run}-{id}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_the_run_and_the_node() {
        assert_eq!(pod("tcp", "uid-1", "server-0", 1), "tcp-4a49a-server-0-1");
    }

    #[test]
    fn the_longest_names_fit() {
        for place in ["client-99c", "client6c99"] {
            let node = format!("{place}-{}", "v".repeat(40));
            let name = pod(&"r".repeat(63), "uid-1", &node, INCARNATIONS_MAX);
            assert_eq!(name.len(), LENGTH_MAX);
            assert!(name.ends_with("-999") && name.starts_with("r-"), "{name}");
        }
    }

    #[test]
    fn parts_are_numbered() {
        let name = part("tcp", "uid-1", PartKind::Trials, 12);
        assert_eq!(name, "tcp-4a49a-trials-12");
        assert_eq!(part_number("tcp", "uid-1", PartKind::Trials, &name), Some(12));
        assert_eq!(part_number("tcp", "uid-1", PartKind::Results, &name), None);
        assert_eq!(part_number("tcp", "uid-2", PartKind::Trials, &name), None);
    }

    #[test]
    fn runs_of_the_same_name_have_objects_of_different_names() {
        assert_ne!(token("tcp", "uid-1"), token("tcp", "uid-2"));
    }
}
