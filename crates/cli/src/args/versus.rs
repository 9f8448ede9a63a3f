//! Options that compare programs, and expect something of the comparison, without an edit of the document.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use perfrun_api::nearest::did_you_mean;
use perfrun_contract::{
    metric::Metric,
    quantity::{InvalidPercent, Percent},
};

const HEADING: &str = "Comparison";

/// What is compared and expected besides what the document says.
#[derive(Args, Clone, Debug, Default)]
pub struct Versus {
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
    #[arg(long, value_name = "METRIC=SHARE", help_heading = HEADING)]
    pub max_regression: Vec<MaxRegression>,
}

/// How much worse a metric of a candidate may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaxRegression {
    pub metric: Metric,
    pub share: Percent,
}

impl FromStr for MaxRegression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
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
        Ok(Self { metric, share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regression_has_a_metric_and_a_share() {
        let expected = MaxRegression {
            metric: Metric::UploadGoodput,
            share: "10%".parse().unwrap(),
        };
        assert_eq!("uploadGoodput=10%".parse(), Ok(expected));
    }

    #[test]
    fn an_invalid_regression_is_refused_with_valid_metrics_or_shares() {
        let refusal = |text: &str| text.parse::<MaxRegression>().unwrap_err();
        assert!(refusal("uploadGoodput").contains("for example uploadGoodput=10%"));
        for metric in ["goodput", "clientCpuCores", "newer"] {
            let said = refusal(&format!("{metric}=10%"));
            assert!(said.contains(&format!("{metric:?} is not a metric")), "{said}");
            assert!(
                said.contains("uploadGoodput, uploadSeconds, downloadGoodput"),
                "{said}"
            );
            assert!(!said.contains(", clientCpuCores"), "{said}");
        }
        let share = refusal("uploadGoodput=10");
        assert!(
            share.starts_with("uploadGoodput: \"10\" is not a percentage"),
            "{share}"
        );
    }
}
