//! The backend of kernels that have netem. Where this kernel has none, `uml` boots one that has.

use perfrun_link::Backend;

use crate::suite;

suite::tests!(Backend::Kernel);

#[test]
fn a_killed_emulator_leaves_the_link_impaired_and_is_succeeded() {
    suite::a_killed_emulator_is_succeeded(Backend::Kernel, false);
}

#[test]
fn an_interface_with_a_foreign_qdisc_is_left_to_the_other_backend() {
    suite::a_root_of_somebody_else_is_left_alone();
}

#[test]
fn both_backends_give_the_same() {
    suite::both_backends_give_the_same();
}
