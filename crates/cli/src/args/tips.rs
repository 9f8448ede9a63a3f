//! Tips below errors about a command line: what the user may have meant.

use std::ffi::OsString;

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use perfrun_api::document::{BASE, CANDIDATE};

use super::program;

/// Adds tips of perfrun to those of clap, and removes one that does not help.
pub(super) fn add(error: &mut clap::Error, command: &clap::Command, given: &[OsString]) {
    let mut tips = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => vec![],
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            // It names half of a command line, to pass a file that is called like an option.
            tips.retain(|tip| !tip.to_string().starts_with("to pass "));
            tips.extend(equals_signs(command, given));
        }
        ErrorKind::InvalidSubcommand => tips.extend(results(error, given)),
        ErrorKind::ArgumentConflict => tips.extend(programs_of_resumed(given)),
        _ => {}
    }
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// An argument too many may be the value of an option like `--ui`, whose value is optional and needs an
/// equals sign.
fn equals_signs(command: &clap::Command, given: &[OsString]) -> impl Iterator<Item = StyledStr> {
    let options = command.get_subcommands().flat_map(clap::Command::get_arguments);
    options
        .filter(|option| option.is_require_equals_set())
        .filter_map(|option| Some(format!("--{}", option.get_long()?)))
        .filter(move |option| given.iter().any(|given| given == option.as_str()))
        .map(|option| format!("a value of '{option}' follows an equals sign: '{option}=VALUE'").into())
}

/// A resumed run has variants already, whose programs have another option.
fn programs_of_resumed(given: &[OsString]) -> impl Iterator<Item = StyledStr> {
    let has = move |option: &str| {
        let mut words = given.iter().filter_map(|word| word.to_str());
        words.any(|word| word.split('=').next() == Some(option))
    };
    let is_resumed = has("--resume");
    [BASE, CANDIDATE]
        .into_iter()
        .filter(move |variant| is_resumed && has(&format!("--{variant}")))
        .map(|variant| {
            format!("to name the program of the {variant} of a resumed run, use '--node {variant}=PATH'")
                .into()
        })
}

/// What follows `get` may be the name of a run.
fn results(error: &clap::Error, given: &[OsString]) -> Option<StyledStr> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let mut pairs = given.windows(2);
    let is_of_get = pairs.any(|words| words[0] == "get" && words[1] == name.as_str());
    let is_misspelt = error.get(ContextKind::SuggestedSubcommand).is_some();
    let tip = || {
        format!(
            "to print the results of a run, use '{} get results {name}'",
            program()
        )
    };
    (is_of_get && !is_misspelt).then(|| tip().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    fn refused(line: &str) -> String {
        let mut command = Cli::described("perfrun");
        let given: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let mut error = command.try_get_matches_from_mut(&given).unwrap_err();
        add(&mut error, &command, &given);
        error.to_string()
    }

    #[test]
    fn a_value_behind_an_option_that_wants_an_equals_sign_is_explained() {
        let tip = "a value of '--ui' follows an equals sign: '--ui=VALUE'";
        for line in [
            "perfrun run a.yaml --ui 127.0.0.1:8000",
            "perfrun run --ui 127.0.0.1:8000 a.yaml",
        ] {
            assert!(refused(line).contains(tip), "{}", refused(line));
        }
        assert!(!refused("perfrun run a.yaml b.yaml").contains("equals sign"));
        let seed = refused("perfrun run a.yaml --seed abc");
        assert!(seed.contains("a whole number, from 0 to"), "{seed}");
        let address = refused("perfrun run a.yaml --metrics-listen :9400");
        assert!(address.contains("for example 127.0.0.1:9400"), "{address}");
    }

    #[test]
    fn a_candidate_of_a_resumed_run_is_named_by_another_option() {
        for line in [
            "perfrun run --resume results/RUN --candidate next",
            "perfrun run --candidate=next --resume=results/RUN",
        ] {
            let text = refused(line);
            assert!(text.contains("use '--node candidate=PATH'"), "{text}");
            assert!(!text.contains("--node base="), "{text}");
        }
        let other = refused("perfrun run a.yaml --aa --candidate next");
        assert!(!other.contains("--node"), "{other}");
    }

    #[test]
    fn an_unknown_option_is_not_taken_for_a_value() {
        for line in ["perfrun report results --format json", "perfrun run a.yaml -x"] {
            let text = refused(line);
            assert!(text.contains("unexpected argument"), "{text}");
            assert!(!text.contains("as a value") && !text.contains("\n\n\n"), "{text}");
        }
        let similar = refused("perfrun report results --outptu json");
        assert!(
            similar.contains("a similar argument exists: '--output'"),
            "{similar}"
        );
    }

    #[test]
    fn the_name_of_a_run_behind_get_is_understood() {
        let text = refused("perfrun get quickstart");
        assert!(text.contains("use 'perfrun get results quickstart'"), "{text}");
        let misspelt = refused("perfrun get resultz");
        assert!(
            misspelt.contains("a similar subcommand exists: 'results'"),
            "{misspelt}"
        );
        assert!(!misspelt.contains("get results resultz"), "{misspelt}");
        assert!(!refused("perfrun quickstart").contains("get results"));
    }
}
