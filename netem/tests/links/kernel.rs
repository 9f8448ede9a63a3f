//! The back end of kernels that have netem. Where this one has not, `uml` brings one that has.

use perfrun_link::Backend;

use crate::suite;

suite::tests!(Backend::Kernel);

#[test]
fn a_killed_emulator_leaves_the_link_impaired_and_is_succeeded() {
    suite::a_killed_emulator_is_succeeded(Backend::Kernel, false);
}

#[test]
fn both_back_ends_give_the_same() {
    suite::both_back_ends_give_the_same();
}
