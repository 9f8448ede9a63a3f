//! Several runs, compared: what `perfrun compare` prints.

use perfrun_contract::{
    compare::{Judged, Verdict},
    plan::Plan,
    reported_run::ReportedRun,
};
use perfrun_judge::{
    Sentence,
    runs::{self, Basis, RUNS_MIN, Run},
    sentences, summary,
};

use crate::{
    markdown,
    table::{Kind, Table},
    tables::{IS_SAME_PROGRAM, ReportContent, comparisons, environment},
    terminal::{self, TerminalOptions},
};

/// Runs to compare, those of each side from the first to the last.
#[derive(Clone, Copy, Debug)]
pub struct ComparedRuns<'a> {
    /// Runs of the baseline.
    pub baselines: &'a [ReportedRun<'a>],
    /// Runs of the candidate.
    pub candidates: &'a [ReportedRun<'a>],
}

impl<'a> ComparedRuns<'a> {
    /// The plan that the runs share: see [`runs::shared`].
    pub fn shared_plan(self) -> Plan {
        runs::shared(&[runs_of(self.baselines), runs_of(self.candidates)].concat())
    }

    /// The runs of the baseline, and then those of the candidate.
    pub(crate) fn all(self) -> Vec<&'a ReportedRun<'a>> {
        self.baselines.iter().chain(self.candidates).collect()
    }
}

/// Several runs, and what they say together.
#[derive(Debug)]
pub struct RunsComparison<'a> {
    /// What the findings are based on.
    pub basis: Basis,
    /// The runs.
    pub runs: ComparedRuns<'a>,
    /// The plan that they share.
    pub plan: Plan,
    /// What was found.
    pub judged: Judged,
    /// Whether all of them ran one program with the same settings, so that nothing should differ.
    pub is_same_program: bool,
    /// Whether the runs differ in something else than their programs, which the reader has accepted.
    pub has_allowed_differences: bool,
}

impl<'a> RunsComparison<'a> {
    /// Compares runs that share a plan in the way that this basis says. Of [`Basis::TwoRuns`] the last of
    /// each side counts, and of [`Basis::EarlierRuns`] the last candidate.
    pub fn new(basis: Basis, plan: Plan, runs: ComparedRuns<'a>) -> Self {
        let (a, b) = (runs_of(runs.baselines), runs_of(runs.candidates));
        let judged = match (basis, a.last(), b.last()) {
            (Basis::TwoRuns, Some(a), Some(b)) => runs::of_two(&plan, *a, *b),
            (Basis::EarlierRuns, _, Some(new)) => runs::of_history(&plan, &a, *new),
            _ => runs::of_pairs(&plan, &a, &b),
        };
        Self {
            basis,
            runs,
            plan,
            judged,
            is_same_program: false,
            has_allowed_differences: false,
        }
    }

    /// The findings in tables, as Markdown.
    pub fn markdown(&self) -> String {
        markdown::text_of(&self.content())
    }

    /// The findings in tables, for a terminal of this width. The last line has the verdict and this ending.
    pub fn terminal(&self, width: usize, ending: String) -> String {
        let options = TerminalOptions {
            width,
            ending: vec![ending],
            ..TerminalOptions::default()
        };
        terminal::text_of(&self.content(), &options)
    }

    /// The verdict, and how many comparisons have which finding.
    fn outcome(&self) -> String {
        let (verdict, found) = (runs::verdict(&self.judged), &self.judged.comparisons);
        format!("{verdict} · {}", comparisons::counted(found))
    }

    /// A sentence for each finding, and what to know about all of them.
    pub fn sentences(&self) -> Vec<Sentence> {
        let [first, last] = self.about_all();
        let found = sentences(&self.plan, &self.judged, self.basis);
        first.into_iter().chain(found).chain(last).collect()
    }

    /// What the comparison found, to stand beside the table of comparisons, which has the numbers.
    fn summary(&self) -> Vec<String> {
        let [first, last] = self
            .about_all()
            .map(|sentence| sentence.map(|sentence| sentence.text));
        let found = summary(&self.plan, &self.judged, self.basis);
        first.into_iter().chain(found).chain(last).collect()
    }

    /// What to know about all findings: before them, and after them.
    fn about_all(&self) -> [Option<Sentence>; 2] {
        [
            (self.is_same_program && !self.has_allowed_differences)
                .then(|| Sentence::new(Verdict::Pass, IS_SAME_PROGRAM.to_owned())),
            (self.basis == Basis::TwoRuns).then(|| {
                let text = format!(
                    "Two runs cannot decide: {}. Compare within one run (perfrun run FILE --candidate PATH), or at least {RUNS_MIN} \
                     runs of each side (perfrun compare --base DIR... --candidate DIR...).",
                    match comparisons::has_intervals(&self.judged) {
                        true => "the intervals leave out how the machine differs between runs",
                        false => "no difference has an interval, and one would leave out how the machine differs between runs",
                    }
                );
                Sentence::new(Verdict::Inconclusive, text)
            }),
        ]
    }

    fn content(&self) -> ReportContent {
        let candidate = self.runs.candidates.last();
        ReportContent {
            title: candidate.map_or_else(String::new, |run| format!("{}, compared", run.name)),
            warnings: vec![],
            outcome: self.outcome(),
            findings: self.summary(),
            measurements: comparisons::comparisons(
                &self.plan,
                |id| self.plan.cell(id),
                &self.judged,
                self.basis,
            )
            .into_iter()
            .collect(),
            has_all_in_first: false,
            problems: vec![self.table()],
            environment: candidate.map_or_else(Table::default, environment::table),
            ip_families: None,
            method: method(self.basis).to_owned(),
            intervals: "",
            congestion: None,
        }
    }

    fn table(&self) -> Table {
        let row = |side: &'static str| {
            move |run: &ReportedRun<'_>| {
                let counts = run.tally.counts();
                vec![
                    side.into(),
                    run.name.into(),
                    format!("{:.0}", run.started).into(),
                    environment::builds(run).unwrap_or_default().into(),
                    format!("{} of {}", counts.completed, counts.needed()).into(),
                ]
            }
        };
        let rows = self.runs.baselines.iter().map(row("baseline"));
        let rows = rows.chain(self.runs.candidates.iter().map(row("candidate")));
        let others = ["run", "started", "build", "trials completed"];
        Table::new(Kind::Prose, &["side"], others, rows).called("Runs", "")
    }
}

fn runs_of<'a>(reported_runs: &[ReportedRun<'a>]) -> Vec<Run<'a>> {
    let run = |reported_run: &ReportedRun<'a>| Run {
        plan: reported_run.plan,
        records: reported_run.trials,
    };
    reported_runs.iter().map(run).collect()
}

fn method(basis: Basis) -> &'static str {
    match basis {
        Basis::Trials => "Pairs of neighbouring trials of one run are compared.",
        Basis::TwoRuns => "The medians of one run are compared with those of another.",
        Basis::PairsOfRuns => {
            "Runs of both sides are compared in pairs, in order of time, by their medians (signed-rank test)."
        }
        Basis::EarlierRuns => {
            "The medians of the new run are compared with what those of earlier runs predict (Student's distribution of their \
             logarithms)."
        }
    }
}
