//! Passes the versions of the stacks to the build of the node. Only the lock file has them.

use std::{env, fs, path::PathBuf};

fn main() {
    let lock = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = fs::read_to_string(&lock).unwrap_or_default();
    for (variable, name, generation) in [
        ("LIBP2P_VERSION", "libp2p", ""),
        ("LITEP2P_VERSION", "litep2p", ""),
        ("QUINN_VERSION", "quinn", "0.11."),
        ("COMMONWARE_VERSION", "commonware-p2p", ""),
        ("LIBP2P_YAMUX_VERSION", "yamux", "0.14."),
        ("LITEP2P_YAMUX_VERSION", "yamux", "0.13."),
        ("LITEP2P_QUINN_VERSION", "quinn", "0.9."),
    ] {
        println!(
            "cargo::rustc-env={variable}={}",
            version(&text, name, generation).unwrap_or("unknown")
        );
    }
}

/// The version of a package that starts with `generation`, of which the lock file may have several.
fn version<'a>(lock: &'a str, name: &str, generation: &str) -> Option<&'a str> {
    lock.split("[[package]]").find_map(|package| {
        let field = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_prefix("= \"")?.strip_suffix('"')
        };
        field("version ").filter(|version| field("name ") == Some(name) && version.starts_with(generation))
    })
}
