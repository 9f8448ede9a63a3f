//! What the kernel answers, and what arrives on an interface.

use perfrun_emulator::foreign;

pub(crate) fn netlink(bytes: &[u8]) {
    foreign::netlink(bytes);
}

pub(crate) fn frame(bytes: &[u8]) {
    foreign::frame(bytes);
}

pub(crate) fn probe(bytes: &[u8]) {
    foreign::probe(bytes);
}
