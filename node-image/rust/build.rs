//! Passes to the build of the node what only its build knows: versions of the stacks, which are in the lock
//! file, and the compiler.

use std::{env, fs, path::PathBuf, process::Command};

fn main() {
    let lock = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = fs::read_to_string(&lock).unwrap_or_default();
    let of = |name: &str, generation: &str| version(&text, name, generation).unwrap_or("unknown");
    let parts =
        |yamux: &str, quinn: &str| format!(" (yamux {}, quinn {})", of("yamux", yamux), of("quinn", quinn));
    let mut stacks = vec![
        format!("libp2p={}{}", of("libp2p", ""), parts("0.14.", "0.11.")),
        format!("litep2p={}{}", of("litep2p", ""), parts("0.13.", "0.9.")),
        format!("raw=kernel TCP, quinn {}", of("quinn", "0.11.")),
    ];
    if env::var_os("CARGO_FEATURE_COMMONWARE").is_some() {
        stacks.push(format!("commonware={}", of("commonware-p2p", "")));
    }
    println!("cargo::rustc-env=STACKS={}", stacks.join(";"));
    println!(
        "cargo::rustc-env=COMPILER={}",
        compiler().unwrap_or_else(|| "rustc".to_owned())
    );
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    println!("cargo::rustc-env=TARGET_FEATURES={features}");
}

/// The compiler with its version, e.g. `rustc 1.95.0 (0123abcde 2026-04-14)`.
fn compiler() -> Option<String> {
    let output = Command::new(env::var_os("RUSTC")?)
        .arg("--version")
        .output()
        .ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
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
