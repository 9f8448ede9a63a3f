//! The program that cargo starts in place of rustc for the workspace's own crates. It compiles, lints and
//! documents in one build, and reads crates with features once more without them, as the demo builds them.
//!
//! `cargo clippy` and `cargo doc` only check dependencies and cannot reuse those that a build has compiled:
//! each of them would compile some five hundred crates again. clippy-driver is rustc with more lints, so it
//! compiles as well. rustdoc reads the same source with the same dependencies. Its pages are not used, but it
//! finds broken links.
//!
//! Cargo starts `COMPILER RUSTC ARGUMENT…`, as for every `RUSTC_WORKSPACE_WRAPPER`.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};

use crate::{files, shell};

/// Lints of the workspace only warn, so that unfinished code compiles. In this compiler a warning is an
/// error.
const DENY_WARNINGS: [&str; 2] = ["-D", "warnings"];

/// Compiles with further options of rustc.
pub(crate) fn rustc(arguments: &[OsString], options: &[&str]) -> Result<ExitCode> {
    let (rustc, arguments) = arguments.split_first().context("cargo names rustc first")?;
    let status = shell::status(Command::new(rustc).args(arguments).args(options))?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Compiles and lints, then reads the documentation.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let (rustc, arguments) = arguments.split_first().context("cargo names rustc first")?;
    let mut clippy = Command::new("clippy-driver");
    clippy.arg(rustc).args(arguments);
    let text: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
    // Cargo also starts the compiler to ask for its capabilities, without a source file.
    let text = text.filter(|text| text.iter().any(|argument| argument.ends_with(".rs")));
    if text.is_some() {
        clippy.args(DENY_WARNINGS);
    }
    if !shell::status(&mut clippy)?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let Some(documented) = text.as_deref().and_then(documented) else {
        return Ok(ExitCode::SUCCESS);
    };
    let scratch = env::current_exe().context("failed to find the path of the compiler itself")?;
    let mut rustdoc = Command::new("rustdoc");
    rustdoc.args(&documented).args(DENY_WARNINGS);
    if documented.contains(&"bin") {
        // A program has no public items.
        rustdoc.arg("--document-private-items");
    }
    rustdoc.arg("--out-dir").arg(scratch.with_file_name("doc"));
    if !shell::status(&mut rustdoc)?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let manifest =
        Path::new(&env::var_os("CARGO_MANIFEST_DIR").context("cargo names the folder")?).join("Cargo.toml");
    let Some(bare) = without_features(&documented, &files::read(&manifest)?) else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut check = Command::new(rustc);
    check.args(&bare).args(DENY_WARNINGS).arg("--emit=metadata");
    check
        .arg("--out-dir")
        .arg(scratch.with_file_name("without-features"));
    ensure!(
        shell::status(&mut check)?.success(),
        "the errors above are those of a build without features, as that of `cargo xtask demo`"
    );
    Ok(ExitCode::SUCCESS)
}

/// Arguments with which rustc reads a crate without its features and their dependencies. `None` if the crate
/// has none. Messages do not name what is written, which cargo would take for its own.
fn without_features(documented: &[&str], manifest: &str) -> Option<Vec<String>> {
    let is_optional = |name: &str| manifest.contains(&format!("\"dep:{}\"", name.replace('_', "-")));
    let mut kept: Vec<String> = vec![];
    let mut has_features = false;
    for &argument in documented {
        let after = kept.last().map_or("", String::as_str);
        let is_left_out = match after {
            "--cfg" => argument.starts_with("feature="),
            "--extern" => is_optional(argument.split('=').next().unwrap_or_default()),
            _ => false,
        };
        if is_left_out {
            has_features |= after == "--cfg";
            kept.pop();
        } else {
            kept.push(argument.replace(",artifacts", ""));
        }
    }
    has_features.then_some(kept)
}

/// Selects the arguments of rustc that rustdoc needs: the source, its dependencies, and the format of
/// messages. `None` for tests and build scripts, which are not documented.
fn documented<'a>(rustc: &[&'a str]) -> Option<Vec<&'a str>> {
    const WITH_VALUE: &[&str] = &[
        "--crate-name",
        "--crate-type",
        "--cfg",
        "--check-cfg",
        "--extern",
        "-L",
    ];
    const COMPLETE: &[&str] = &["--edition=", "--error-format=", "--json=", "--diagnostic-width="];
    let mut kept = vec![];
    let mut rest = rustc.iter();
    while let Some(&argument) = rest.next() {
        if matches!(argument, "--test" | "build.rs") || argument.ends_with("/build.rs") {
            return None;
        }
        if WITH_VALUE.contains(&argument) {
            kept.extend([argument, *rest.next()?]);
        } else if COMPLETE.iter().any(|start| argument.starts_with(start)) || argument.ends_with(".rs") {
            kept.push(argument);
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::{documented, without_features};

    const LIBRARY: &str = "--crate-name perfrun_link --edition=2024 crates/link/src/lib.rs --error-format=json \
        --json=diagnostic-rendered-ansi,artifacts --crate-type lib --emit=dep-info,metadata,link -C embed-bitcode=no \
        --warn=clippy::all --check-cfg cfg(docsrs,test) -C metadata=0123 --out-dir /target/debug/deps \
        -L dependency=/target/debug/deps --extern serde=/target/debug/deps/libserde.rmeta";

    fn kept(rustc: &str) -> Option<String> {
        let rustc: Vec<_> = rustc.split_whitespace().collect();
        documented(&rustc).map(|kept| kept.join(" "))
    }

    #[test]
    fn rustdoc_gets_the_source_and_its_dependencies() {
        let expected = "--crate-name perfrun_link --edition=2024 crates/link/src/lib.rs --error-format=json \
            --json=diagnostic-rendered-ansi,artifacts --crate-type lib --check-cfg cfg(docsrs,test) \
            -L dependency=/target/debug/deps --extern serde=/target/debug/deps/libserde.rmeta";
        assert_eq!(kept(LIBRARY).unwrap(), expected);
    }

    #[test]
    fn tests_and_build_scripts_are_not_documented() {
        assert_eq!(kept(&format!("{LIBRARY} --test")), None);
        assert_eq!(
            kept(&LIBRARY.replace("crates/link/src/lib.rs", "crates/link/build.rs")),
            None
        );
    }

    #[test]
    fn features_are_left_out_with_their_dependencies() {
        let manifest = r#"web = ["dep:hyper-util"]"#;
        let with = "--crate-name a --edition=2024 a/src/lib.rs --json=diagnostic-short,artifacts --cfg tokio \
            --cfg feature=\"web\" --extern hyper=/a.rmeta --extern hyper_util=/b.rmeta";
        let kept = |rustc: &str| {
            let rustc: Vec<_> = rustc.split_whitespace().collect();
            without_features(&rustc, manifest).map(|kept| kept.join(" "))
        };
        let expected = "--crate-name a --edition=2024 a/src/lib.rs --json=diagnostic-short --cfg tokio \
            --extern hyper=/a.rmeta";
        assert_eq!(kept(with).unwrap(), expected);
        assert_eq!(kept(expected), None);
    }
}
