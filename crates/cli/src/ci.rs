//! Findings as systems for continuous integration read them.

use perfrun_conformance::NotPassed::{Failed, Skipped};
use perfrun_contract::compare::Verdict;
use perfrun_judge::Sentence;
use perfrun_report::Check;

use crate::{args::Inconclusive, junit, output::write_line_to_stderr};

/// JUnit's XML with a test case for each check.
pub fn junit(run: &str, checks: &[Check], inconclusive: Inconclusive) -> anyhow::Result<String> {
    let case = |check: &Check| {
        let evidence = check.evidence.clone();
        let outcome = match (check.verdict, inconclusive) {
            (Verdict::Pass, _) => Ok(()),
            (Verdict::Inconclusive | Verdict::Newer(_), Inconclusive::Pass) => Err(Skipped(evidence)),
            (Verdict::Inconclusive | Verdict::Newer(_) | Verdict::Fail, _) => Err(Failed(evidence)),
        };
        junit::case("perfrun.compare", &check.name, &outcome)
    };
    junit::report("perfrun compare", run, checks.iter().map(case))
}

/// Writes sentences to standard error as workflow commands of GitHub Actions, which shows them beside the
/// workflow, each finding once. Standard output is for the job's summary.
pub fn annotate(run: &str, sentences: impl IntoIterator<Item = Sentence>, inconclusive: Inconclusive) {
    for sentence in sentences {
        if !sentence.is_repeated {
            write_line_to_stderr(command(run, &sentence, inconclusive));
        }
    }
}

/// A command in the syntax of GitHub's runner (`actions/toolkit`, packages/core/src/command.ts).
fn command(run: &str, sentence: &Sentence, inconclusive: Inconclusive) -> String {
    let level = match (sentence.verdict, inconclusive) {
        (Verdict::Fail, _) => "error",
        (Verdict::Inconclusive | Verdict::Newer(_), Inconclusive::Fail) => "warning",
        _ => "notice",
    };
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let run = escaped(run).replace(':', "%3A").replace(',', "%2C");
    format!("::{level} title=perfrun {run}::{}", escaped(&sentence.text))
}

#[cfg(test)]
mod tests {
    use perfrun_contract::newer::NewerName;

    use super::*;

    fn check(name: &str, verdict: Verdict) -> Check {
        Check {
            name: name.to_owned(),
            verdict,
            evidence: format!("{name} <evidence>"),
        }
    }

    #[test]
    fn an_inconclusive_check_is_a_failure_or_skipped_as_configured() {
        let checks = [
            check("holds", Verdict::Pass),
            check("open", Verdict::Inconclusive),
            check("broken", Verdict::Fail),
            check("doubtful", Verdict::Newer(NewerName::new("Doubtful").unwrap())),
        ];
        let xml = junit("a", &checks, Inconclusive::Fail).unwrap();
        assert!(
            xml.contains(r#"tests="4""#) && xml.contains(r#"failures="3""#),
            "{xml}"
        );
        let xml = junit("a", &checks, Inconclusive::Pass).unwrap();
        assert!(
            xml.contains(r#"failures="1""#) && xml.contains("<skipped"),
            "{xml}"
        );
        assert!(xml.contains("broken &lt;evidence&gt;"), "{xml}");
    }

    #[test]
    fn no_text_can_become_a_command_or_a_property() {
        let sentence = |verdict| Sentence::new(verdict, "5 %\n::error::all, lost\r".to_owned());
        assert_eq!(
            command("a:b,file=c%", &sentence(Verdict::Fail), Inconclusive::Fail),
            "::error title=perfrun a%3Ab%2Cfile=c%25::5 %25%0A::error::all, lost%0D"
        );
        let newer = NewerName::new("Doubtful").unwrap();
        for (verdict, inconclusive, level) in [
            (Verdict::Inconclusive, Inconclusive::Fail, "::warning "),
            (Verdict::Inconclusive, Inconclusive::Pass, "::notice "),
            (Verdict::Newer(newer), Inconclusive::Fail, "::warning "),
            (Verdict::Newer(newer), Inconclusive::Pass, "::notice "),
            (Verdict::Pass, Inconclusive::Fail, "::notice "),
        ] {
            assert!(command("a", &sentence(verdict), inconclusive).starts_with(level));
        }
    }
}
