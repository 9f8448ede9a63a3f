//! `perfrun compare`: results that were kept, of one run or of many.

use std::{
    collections::BTreeSet,
    mem,
    path::{Path, PathBuf},
    slice::from_ref,
};

use anyhow::{Context, bail, ensure};
use perfrun_api::{
    exit_status::{FAIL, INCOMPLETE, INCONCLUSIVE, INTERRUPTED, SUCCESS},
    memory_budget::{MemoryBudget, STRUCT_BYTES},
    results::{Results, are_of_one_program},
};
use perfrun_contract::{
    compare::{Comparison, Verdict},
    plan::{Cell, Plan},
    reported_run::ReportedRun,
};
use perfrun_judge::runs::{Basis, EARLIER_MIN, RUNS_MIN, verdict};
use perfrun_report::{
    TerminalOptions, checks,
    differences::{Field, differences, differences_table},
    runs::{ComparedRuns, RunsComparison},
};
use serde::Serialize;

use crate::{
    args::{self, Format, Inconclusive, InvalidCommandLine},
    ci, exit_status,
    output::{terminal_width, write_line_to_stderr, write_to_stdout},
    printing::{PrintedResults, rendered, resume_command, show_all_command},
    results_folder,
    words::{counted, named},
};

/// Compares the results of the arguments. Returns the exit status.
pub fn compare(args: &args::Compare) -> anyhow::Result<u8> {
    let memory = &mut args.output_options.size.memory();
    match (&args.history, args.results.as_slice()) {
        (Some(folder), [new]) => Sides::of_history(folder, new, memory)?.compare(args),
        (Some(_), _) => invalid("--history compares one run with earlier ones: name that run"),
        (None, [run]) => show_own_findings(run, args, memory),
        (None, [base, candidate]) => Sides::of(from_ref(base), from_ref(candidate), memory)?.compare(args),
        (None, []) => Sides::of(&args.base, &args.candidate, memory)?.compare(args),
        (None, several) => invalid(format!(
            "{} results: name those of each side with --base and --candidate",
            several.len()
        )),
    }
}

fn invalid<T>(problem: impl Into<String>) -> anyhow::Result<T> {
    Err(InvalidCommandLine(problem.into()).into())
}

/// Shows what a run found itself. Returns the exit status.
fn show_own_findings(run: &Path, args: &args::Compare, memory: &MemoryBudget) -> anyhow::Result<u8> {
    let results = results_folder::read_within(run, memory)?;
    ensure!(
        results.judged.is_some(),
        "{} compares nothing and expects nothing: name another run to compare it with",
        run.display()
    );
    let printed = PrintedResults {
        results: &results,
        profiles: &results_folder::read_profiles(run, &results.plan),
        verdict_of_whole_run: None,
    };
    // Without expectations, the findings decide.
    let verdict = results.verdict().or_else(|| results.judged.as_ref().map(verdict));
    let status = exit_status::of_run(results.conclusion().phase, verdict);
    let status = match (status, args.output_options.inconclusive) {
        (INCONCLUSIVE, Inconclusive::Pass) => SUCCESS,
        // It was the run that was stopped, and not this command.
        (INTERRUPTED, _) => INCOMPLETE,
        _ => status,
    };
    let options = TerminalOptions {
        show_all_command: show_all_command(run),
        resume_command: resume_command(run, &results),
        ending: vec![format!("exit {status}")],
        ..TerminalOptions::default()
    };
    write_to_stdout(&rendered(printed, args.output_options, options)?)?;
    Ok(status)
}

/// Results of a run.
struct KeptRun {
    path: PathBuf,
    results: Results,
}

impl KeptRun {
    /// Reads the results of one run of several. Only a report of one run shows samples and distributions.
    fn read(path: PathBuf, memory: &MemoryBudget) -> Result<Self, results_folder::Error> {
        let mut results = results_folder::read_within(&path, memory)?;
        let records = results.trials.iter_mut();
        for node in records.flat_map(|record| record.nodes.values_mut()) {
            let samples = mem::take(&mut node.measured.samples);
            memory.give_back(samples.len() as u64 * STRUCT_BYTES);
            node.measured.histograms.clear();
        }
        Ok(Self { path, results })
    }

    fn is_same_run(&self, other: &Self) -> bool {
        (&self.results.name, self.results.started) == (&other.results.name, other.results.started)
    }
}

/// The wanted ones of the runs that paths name, from the first to the last. They share the memory. Others
/// take none of it.
fn read(
    paths: &[PathBuf],
    memory: &mut MemoryBudget,
    is_wanted: impl Fn(&KeptRun) -> bool,
) -> Result<Vec<KeptRun>, results_folder::Error> {
    let mut kept = vec![];
    for path in paths {
        for path in results_folder::runs_in(path)? {
            let left = memory.clone();
            let run = KeptRun::read(path, &left).map_err(|error| match error {
                results_folder::Error::TooLarge { file } => results_folder::Error::AllTooLarge { file },
                error => error,
            })?;
            if is_wanted(&run) {
                kept.push(run);
                *memory = left;
            }
        }
    }
    kept.sort_by_key(|kept| kept.results.started);
    Ok(kept)
}

fn reported_runs(kept: &[KeptRun]) -> Vec<ReportedRun<'_>> {
    kept.iter().map(|kept| kept.results.reported_run()).collect()
}

/// Runs to compare, those of each side from the first to the last.
struct Sides {
    basis: Basis,
    baselines: Vec<KeptRun>,
    candidates: Vec<KeptRun>,
}

impl Sides {
    fn of(base: &[PathBuf], candidate: &[PathBuf], memory: &mut MemoryBudget) -> anyhow::Result<Self> {
        let mut sides = Self {
            basis: Basis::TwoRuns,
            baselines: read(base, memory, |_| true)?,
            candidates: read(candidate, memory, |_| true)?,
        };
        sides.check_that_no_run_is_repeated()?;
        let numbers = (sides.baselines.len(), sides.candidates.len());
        if numbers != (1, 1) {
            ensure!(
                numbers.0 == numbers.1 && numbers.0 >= RUNS_MIN,
                "{} of the baseline and {} of the candidate: name one of each, or as many of each and at least \
                 {RUNS_MIN}",
                counted(numbers.0, "run"),
                numbers.1
            );
            sides.check_alternation()?;
            sides.basis = Basis::PairsOfRuns;
        }
        Ok(sides)
    }

    fn of_history(folder: &Path, new: &Path, memory: &mut MemoryBudget) -> anyhow::Result<Self> {
        let candidate = KeptRun::read(new.to_owned(), memory)?;
        let Results { name, started, .. } = &candidate.results;
        let is_earlier = |kept: &KeptRun| kept.results.name == *name && kept.results.started < *started;
        let mut baselines = read(&[folder.to_owned()], memory, is_earlier)?;
        let cells: BTreeSet<&String> = cells_without_raw(&candidate.results)
            .map(|cell| &cell.id)
            .collect();
        let earlier = baselines.len();
        baselines.retain(|kept| cells_without_raw(&kept.results).any(|cell| cells.contains(&cell.id)));
        if baselines.len() < earlier {
            let others = counted(earlier - baselines.len(), "earlier run");
            write_line_to_stderr(format_args!(
                "perfrun: left out {others} without a cell of this one, for example of --aa or --candidate"
            ));
        }
        let sides = Self {
            basis: Basis::EarlierRuns,
            baselines,
            candidates: vec![candidate],
        };
        sides.check_that_no_run_is_repeated()?;
        let earlier = sides.baselines.len();
        ensure!(
            earlier >= EARLIER_MIN,
            "{} has {} of {}, and at least {EARLIER_MIN} are needed: keep the results of more runs, or \
             compare two programs within one run, by `perfrun run FILE --base PATH --candidate PATH`",
            folder.display(),
            counted(earlier, "earlier run"),
            sides.candidates[0].results.name
        );
        Ok(sides)
    }

    /// All runs, those of the baseline first.
    fn all(&self) -> impl Iterator<Item = &KeptRun> + Clone {
        self.baselines.iter().chain(&self.candidates)
    }

    fn check_that_no_run_is_repeated(&self) -> anyhow::Result<()> {
        let all: Vec<&KeptRun> = self.all().collect();
        for (place, one) in all.iter().enumerate() {
            if let Some(other) = all[..place].iter().find(|other| other.is_same_run(one)) {
                bail!(
                    "{} and {} are the same run: name each run once, and on one side",
                    other.path.display(),
                    one.path.display()
                );
            }
        }
        Ok(())
    }

    /// Checks that both runs of each pair began before the next pair, so that drift of the machine affects
    /// both sides alike.
    fn check_alternation(&self) -> anyhow::Result<()> {
        let pairs = self.baselines.iter().zip(&self.candidates);
        let started = pairs.map(|(baseline, candidate)| {
            let (a, b) = (baseline.results.started, candidate.results.started);
            (a.min(b), a.max(b))
        });
        let started: Vec<_> = started.collect();
        ensure!(
            started.windows(2).all(|pairs| pairs[0].1 < pairs[1].0),
            "the runs of the two sides do not take turns, so that what changed with time would look like a difference: \
             measure both in turn, or compare a new run with earlier ones (--history)"
        );
        Ok(())
    }

    fn compare(&self, args: &args::Compare) -> anyhow::Result<u8> {
        let [baselines, candidates] = [&self.baselines, &self.candidates].map(|side| reported_runs(side));
        let runs = ComparedRuns {
            baselines: &baselines,
            candidates: &candidates,
        };
        let plan = runs.shared_plan();
        ensure!(
            !plan.judging.cell_pairs.is_empty(),
            "the runs have no cell in common, beside the raw reference{}: compare runs of one document",
            self.what_differs()
                .map_or_else(String::new, |differs| format!(", since {differs}"))
        );
        let has_allowed_differences = check_differences(&plan, runs, &args.allow)?;
        let mut compared = RunsComparison::new(self.basis, plan, runs);
        compared.is_same_program = are_of_one_program(self.all().map(|kept| &kept.results));
        compared.has_allowed_differences = has_allowed_differences;
        let verdict = verdict(&compared.judged);
        let status = match (verdict, args.output_options.inconclusive) {
            (Verdict::Fail, _) => FAIL,
            (Verdict::Inconclusive, Inconclusive::Fail) => INCONCLUSIVE,
            _ => SUCCESS,
        };
        write_to_stdout(&self.rendered(&compared, verdict, status, args)?)?;
        Ok(status)
    }

    /// Two runs with different workloads, and what each measures. Otherwise, two runs with different cells,
    /// and what each has.
    fn what_differs(&self) -> Option<String> {
        let runs: Vec<&KeptRun> = self.all().collect();
        let apart = |verb: &str, of: fn(&Results) -> String| {
            let (first, others) = runs.split_first()?;
            let one = of(&first.results);
            let mut others = others.iter().map(|kept| (kept, of(&kept.results)));
            let (second, other) = others.find(|(_, other)| *other != one)?;
            Some(format!(
                "{} {verb} {one}, and {} {verb} {other}",
                first.path.display(),
                second.path.display()
            ))
        };
        apart("measures", workload).or_else(|| apart("has", cells))
    }

    fn rendered(
        &self,
        compared: &RunsComparison<'_>,
        verdict: Verdict,
        status: u8,
        args: &args::Compare,
    ) -> anyhow::Result<String> {
        let name = &self.candidates[self.candidates.len() - 1].results.name;
        let inconclusive = args.output_options.inconclusive;
        Ok(match args.output_options.output {
            Format::Table => compared.terminal(terminal_width(), format!("exit {status}")),
            Format::Md => compared.markdown(),
            Format::Json => {
                let folders = |kept: &[KeptRun]| kept.iter().map(|kept| kept.path.clone()).collect();
                let output = ComparisonOutput {
                    basis: compared.basis.as_ref(),
                    baselines: folders(&self.baselines),
                    candidates: folders(&self.candidates),
                    is_same_program: compared.is_same_program,
                    findings: compared
                        .sentences()
                        .into_iter()
                        .map(|sentence| sentence.text)
                        .collect(),
                    comparisons: &compared.judged.comparisons,
                    verdict,
                };
                serde_json::to_string_pretty(&output).context("failed to encode the findings")? + "\n"
            }
            Format::Junit => {
                let checks = checks(&compared.plan, &compared.judged, compared.basis);
                ci::junit(name, &checks, inconclusive)?
            }
            Format::Github => {
                ci::annotate(name, compared.sentences(), inconclusive);
                compared.markdown()
            }
            Format::Csv | Format::Html => {
                return invalid("csv and html show one run: use table, md, json, junit or github");
            }
        })
    }
}

/// What JSON has of a comparison of runs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ComparisonOutput<'a> {
    basis: &'a str,
    baselines: Vec<PathBuf>,
    candidates: Vec<PathBuf>,
    is_same_program: bool,
    findings: Vec<String>,
    comparisons: &'a [Comparison],
    verdict: Verdict,
}

/// The workload of a run, and its loads.
fn workload(results: &Results) -> String {
    let loads = cells_without_raw(results).map(|cell| cell.parameters.to_string());
    format!("{} ({})", results.spec.workload.name(), named(loads))
}

/// The cells of a run.
fn cells(results: &Results) -> String {
    named(cells_without_raw(results).map(|cell| cell.id.clone()))
}

/// The cells that runs may have in common.
fn cells_without_raw(results: &Results) -> impl Iterator<Item = &Cell> {
    results.plan.cells.iter().filter(|cell| !cell.is_raw_reference())
}

/// Refuses runs that differ in more than `--allow` accepts. Returns whether they differ in what it accepts.
fn check_differences(plan: &Plan, runs: ComparedRuns<'_>, allowed: &[Field]) -> anyhow::Result<bool> {
    let mut differences = differences(plan, runs);
    let all = differences.len();
    differences.retain(|difference| !allowed.contains(&difference.field));
    let fields: BTreeSet<String> = differences
        .iter()
        .map(|difference| difference.field.to_string())
        .collect();
    let fields: Vec<String> = fields.into_iter().collect();
    ensure!(
        differences.is_empty(),
        "the runs differ in more than the program, so a difference may have another cause: measure them alike, or \
         accept it with --allow {}\n\n{}",
        fields.join(","),
        differences_table(&differences, runs.baselines.len(), terminal_width())
    );
    Ok(all > 0)
}
