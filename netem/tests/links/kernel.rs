//! The back end of kernels that have netem. Where this one has not, `uml` brings one that has.

use perfrun_netem::Backend;

use crate::suite;

macro_rules! hold {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                suite::$name(Backend::Kernel);
            }
        )*
    };
}

hold!(
    round_trips_are_as_long_as_the_delay,
    jitter_spreads_as_it_should,
    loss_is_the_share_that_was_set,
    losses_come_in_bursts_if_asked_to,
    rates_are_as_set,
    copies_errors_and_overtaking_are_as_set,
    nothing_is_lost_that_was_not_to_be,
    others_are_not_impaired,
    neighbours_are_found_at_once,
    changing_a_link_loses_nothing,
    what_is_removed_leaves_nothing,
    the_probe_tells_what_is_from_what_is_not,
);

#[test]
fn a_killed_emulator_leaves_the_link_impaired_and_is_succeeded() {
    suite::a_killed_emulator_is_succeeded(Backend::Kernel, false);
}

#[test]
fn both_back_ends_give_the_same() {
    suite::both_back_ends_give_the_same();
}
