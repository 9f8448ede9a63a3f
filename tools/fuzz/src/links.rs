//! What the kernel answers, and what arrives on an interface.

use perfrun_emulator::fuzzing;

pub(crate) fn netlink(bytes: &[u8]) {
    fuzzing::netlink(bytes);
}

pub(crate) fn frame(bytes: &[u8]) {
    fuzzing::frame(bytes);
}

pub(crate) fn probe(bytes: &[u8]) {
    fuzzing::probe(bytes);
}
