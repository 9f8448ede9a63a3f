//! Options that compare programs, and expect something of the comparison, without an edit of the document.

use std::path::PathBuf;

use clap::Args;
use perfrun_api::{
    compare::Expect,
    document::{self, BASE, CANDIDATE, ComparedSides},
    nearest::did_you_mean,
};
use perfrun_contract::{metric::Metric, quantity::InvalidPercent};

use super::NodeArg;

const HEADING: &str = "Comparison";

/// What is compared and expected besides what the document says.
#[derive(Args, Clone, Debug, Default)]
pub struct ComparisonOptions {
    /// Is my build faster? Compare this build of perfrun-node with the default one, or with --base, trial by
    /// trial, over at least 20 iterations. The document names one stack in its matrix, or one besides raw,
    /// and has no `compare`. For example:
    /// `perfrun run examples/candidate.yaml --candidate ../next/target/release/perfrun-node`
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    pub candidate: Option<PathBuf>,
    /// Compare the candidate with this program, not with the default one. For example:
    /// `perfrun run FILE --base main/perfrun-node --candidate next/perfrun-node`
    #[arg(long, value_name = "PATH", requires = "candidate", help_heading = HEADING)]
    pub base: Option<PathBuf>,
    /// Compare each stack of the matrix with itself, up to four, in place of what the document compares. raw
    /// is compared only if the matrix has no other stack. What differs is noise: it shows what this machine
    /// cannot tell apart, over at least 20 iterations. For example:
    /// `perfrun run examples/quickstart.yaml --aa`
    #[arg(long, conflicts_with_all = ["base", "candidate"], help_heading = HEADING)]
    pub aa: bool,
    /// Expect that the candidate of each comparison is worse by at most this share, as `maxRegression` of a
    /// document does. `perfrun run` then exits with 0, 3 or 4. Without an expectation its exit status does
    /// not depend on what is found. May be repeated. For example: `--max-regression uploadGoodput=10%`
    #[arg(long, value_name = "METRIC=SHARE", value_parser = max_regression, help_heading = HEADING)]
    pub max_regression: Vec<Expect>,
}

impl ComparisonOptions {
    /// What the options make of a document.
    pub fn of_document(&self) -> document::ComparisonOverride {
        let programs = self.candidate.as_ref().map(|_| ComparedSides::Programs);
        document::ComparisonOverride {
            compared: if self.aa {
                Some(ComparedSides::Itself)
            } else {
                programs
            },
            expect: self.max_regression.clone(),
        }
    }

    /// The programs of the two variants.
    pub fn programs(&self) -> Vec<NodeArg> {
        let given = [
            (BASE, &self.base, "--base"),
            (CANDIDATE, &self.candidate, "--candidate"),
        ];
        let program = |(variant, path, option): (&str, &Option<PathBuf>, _)| {
            Some(NodeArg {
                variant: Some(variant.to_owned()),
                path: path.clone()?,
                option,
            })
        };
        given.into_iter().filter_map(program).collect()
    }
}

/// How much worse a metric of a candidate may be: `uploadGoodput=10%`.
fn max_regression(text: &str) -> Result<Expect, String> {
    let (name, share) = text
        .split_once('=')
        .ok_or("name a metric and a share, for example uploadGoodput=10%")?;
    let metric = Metric::judged().find(|metric| metric.as_ref() == name);
    let metric = metric.ok_or_else(|| {
        let names: Vec<String> = Metric::judged().map(|metric| metric.to_string()).collect();
        format!(
            "{name:?} is not a metric of which a higher or a lower value is better{}\nThose metrics are: {}",
            did_you_mean(name, names.iter().map(String::as_str)),
            names.join(", ")
        )
    })?;
    let share = share
        .parse()
        .map_err(|wrong: InvalidPercent| format!("{metric}: {wrong}"))?;
    Ok(Expect {
        metric,
        cells: None,
        max_regression: Some(share),
        min: None,
        max: None,
        min_share_of_raw: None,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{
        super::{Cli, Command},
        *,
    };

    #[test]
    fn options_say_what_is_compared_and_expected() {
        for (line, compared, expected) in [
            ("--aa", Some(ComparedSides::Itself), 0),
            ("--candidate next", Some(ComparedSides::Programs), 0),
            (
                "--max-regression roundTripP50=10% --max-regression roundTripP99=20%",
                None,
                2,
            ),
        ] {
            let words = ["perfrun", "plan", "a.yaml"].into_iter().chain(line.split(' '));
            let Command::Plan(plan) = Cli::parse_from(words).command else {
                panic!("{line}")
            };
            let comparison = plan.comparison.of_document();
            assert_eq!(
                (comparison.compared, comparison.expect.len()),
                (compared, expected),
                "{line}"
            );
        }
    }

    #[test]
    fn a_regression_has_a_metric_and_a_share() {
        let expected = max_regression("uploadGoodput=10%").unwrap();
        assert_eq!(expected.metric, Metric::UploadGoodput);
        assert_eq!(expected.max_regression, "10%".parse().ok());
    }

    #[test]
    fn an_invalid_regression_is_refused_with_valid_metrics_or_shares() {
        let refusal = |text: &str| max_regression(text).unwrap_err();
        assert!(refusal("uploadGoodput").contains("for example uploadGoodput=10%"));
        for metric in ["goodput", "clientCpuCores", "newer"] {
            let refused = refusal(&format!("{metric}=10%"));
            assert!(
                refused.contains(&format!("{metric:?} is not a metric")),
                "{refused}"
            );
            assert!(
                refused.contains("uploadGoodput, uploadSeconds, downloadGoodput"),
                "{refused}"
            );
            assert!(!refused.contains(", clientCpuCores"), "{refused}");
        }
        let share = refusal("uploadGoodput=10");
        assert!(
            share.starts_with("uploadGoodput: \"10\" is not a percentage"),
            "{share}"
        );
    }
}
