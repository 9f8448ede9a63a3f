//! Names of a run's objects besides the parts of its results, see [`object_name`].

use perfrun_api::cluster::{SUFFIX_MAX, object_name};

/// The largest incarnation of a node that has a name.
pub(crate) const INCARNATIONS_MAX: u32 = 999;

// A node of a control whose variant has the longest name, and its incarnation. `client6c99-` is not longer.
const _: () = assert!("client-99c-".len() + 40 + "-999".len() <= SUFFIX_MAX);

/// The name of a pod.
pub(crate) fn pod(run: &str, uid: &str, node: &str, incarnation: u32) -> String {
    object_name(run, uid, &format!("{node}-{incarnation}"))
}

/// The name of the Secret with the run's token.
pub(crate) fn token(run: &str, uid: &str) -> String {
    object_name(run, uid, "token")
}

/// The name of the Secret with the token of the pod that keeps results.
pub(crate) fn store_token(run: &str, uid: &str) -> String {
    object_name(run, uid, "store-token")
}

/// The name of the run's NetworkPolicy.
pub(crate) fn network_policy(run: &str, uid: &str) -> String {
    object_name(run, uid, "control")
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
            assert_eq!(name.len(), 63);
            assert!(name.ends_with("-999") && name.starts_with("r-"), "{name}");
        }
    }

    #[test]
    fn runs_of_the_same_name_have_objects_of_different_names() {
        assert_ne!(token("tcp", "uid-1"), token("tcp", "uid-2"));
    }
}
