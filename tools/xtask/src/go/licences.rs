//! The licences of the modules in the program of Go. deny.toml lists those that crates may have, and modules
//! may have no others.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result};

use super::command;
use crate::{
    files,
    shell::{self, Workspace},
    step::Outcome,
};

/// Licences that single modules have and crates may not.
const EXCEPTIONS: &[(&str, &str)] = &[
    // It is for each file, and perfrun changes none.
    ("github.com/libp2p/go-yamux/v5", "MPL-2.0"),
];

/// Words of each licence, in lower case and with single blanks.
const WORDS: &[(&str, &[&str])] = &[
    ("Apache-2.0", &["apache license", "version 2.0"]),
    ("Apache-2.0", &["apache-2.0 software license"]),
    (
        "MIT",
        &["granted, free of charge, to any person obtaining a copy"],
    ),
    (
        "ISC",
        &["permission to use, copy, modify, and distribute this software"],
    ),
    (
        "ISC",
        &["permission to use, copy, modify, and/or distribute this software"],
    ),
    (
        "BSD-3-Clause",
        &[
            "redistribution and use in source and binary forms",
            "endorse or promote",
        ],
    ),
    (
        "BSD-2-Clause",
        &["redistribution and use in source and binary forms"],
    ),
    ("MPL-2.0", &["mozilla public license"]),
    ("GPL", &["gnu general public license"]),
    ("AGPL", &["gnu affero general public license"]),
];

/// The modules of the program, each with its folder.
const FORMAT: &str = "{{with .Module}}{{if .Version}}{{.Path}}\t{{.Dir}}{{end}}{{end}}";

/// Checks the modules that the program consists of.
pub(super) fn check(workspace: &Workspace) -> Result<Outcome> {
    let deny = files::read(&workspace.root.join("deny.toml"))?;
    let allowed = allowed(&deny);
    let listed = shell::output(&mut command(workspace, &["list", "-deps", "-f", FORMAT, "."]))?;
    let modules: BTreeSet<_> = listed.lines().filter_map(|line| line.split_once('\t')).collect();
    let mut problems = vec![];
    for (module, folder) in modules {
        let found = found(Path::new(folder)).with_context(|| format!("failed to read {folder}"))?;
        problems.extend(problem(module, &found, &allowed));
    }
    Ok(match problems.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!(
            "{}\nreplace the module, or extend tools/xtask/src/go/licences.rs and say why there",
            problems.join("\n")
        )),
    })
}

/// The licences that deny.toml allows all crates.
fn allowed(deny: &str) -> BTreeSet<&str> {
    let lines = deny.lines().skip_while(|line| *line != "allow = [").skip(1);
    lines
        .take_while(|line| *line != "]")
        .filter_map(|line| line.split('"').nth(1))
        .collect()
}

/// The licences in the folder of a module.
fn found(folder: &Path) -> Result<BTreeSet<&'static str>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_licence = ["licence", "license", "copying"]
            .iter()
            .any(|start| name.starts_with(start));
        if is_licence && entry.file_type()?.is_file() {
            found.extend(licence(&String::from_utf8_lossy(&fs::read(entry.path())?)));
        }
    }
    Ok(found)
}

/// The licence of a text.
fn licence(text: &str) -> Option<&'static str> {
    let words: Vec<_> = text.split_whitespace().collect();
    let text = words.join(" ").to_lowercase();
    let is_in_text = |words: &[&str]| words.iter().all(|words| text.contains(words));
    let mut known = WORDS.iter();
    known
        .find(|(_, words)| is_in_text(words))
        .map(|(licence, _)| *licence)
}

fn problem(module: &str, found: &BTreeSet<&str>, allowed: &BTreeSet<&str>) -> Option<String> {
    if found.is_empty() {
        return Some(format!("{module} has no file with a licence that is known"));
    }
    let is_exception = |licence: &str| EXCEPTIONS.contains(&(module, licence));
    let mut refused = found
        .iter()
        .filter(|licence| !allowed.contains(*licence) && !is_exception(licence));
    refused
        .next()
        .map(|licence| format!("{module} has the licence {licence}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = include_str!("../../../../deny.toml");

    #[test]
    fn a_module_has_only_licences_that_crates_may_have_or_an_exception() {
        let allowed = allowed(DENY);
        let problem = |module, licences: &[&'static str]| {
            problem(module, &licences.iter().copied().collect(), &allowed)
        };
        assert_eq!(problem("a", &["MIT"]), None);
        assert_eq!(problem("a", &["Apache-2.0", "MIT"]), None);
        assert_eq!(problem("github.com/libp2p/go-yamux/v5", &["MPL-2.0"]), None);
        for refused in [&["GPL"][..], &["MIT", "MPL-2.0"], &[]] {
            assert!(problem("a", refused).is_some(), "{refused:?}");
        }
    }

    #[test]
    fn licences_are_known_by_their_words() {
        let two_clauses = "Redistribution and use in source and\n   binary forms, with or without";
        let three_clauses = format!("{two_clauses}: may be used to endorse or promote");
        for (text, expected) in [
            ("Apache License\n  Version 2.0, January 2004", Some("Apache-2.0")),
            (
                "granted, free of charge, to any person\n obtaining a copy",
                Some("MIT"),
            ),
            (two_clauses, Some("BSD-2-Clause")),
            (three_clauses.as_str(), Some("BSD-3-Clause")),
            ("All rights reserved.", None),
        ] {
            assert_eq!(licence(text), expected, "{text}");
        }
    }

    #[test]
    fn licences_are_found_in_the_files_of_a_module() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "LICENSE-MIT",
            "granted, free of charge, to any person obtaining a copy",
        );
        write("COPYING", "GNU GENERAL PUBLIC LICENSE");
        write("README.md", "Mozilla Public License");
        assert_eq!(found(folder.path()).unwrap(), ["GPL", "MIT"].into());
    }
}
