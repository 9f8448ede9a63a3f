//! node-image
fn main() {}
