//! A kernel with netem for machines without: Debian's user-mode-linux.
pub fn init() {}
