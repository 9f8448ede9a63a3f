//! A list of checks that all run, each announced and timed, and their summary.

use std::{
    fmt::Write,
    fs,
    panic::resume_unwind,
    process::{Command, ExitCode, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Error, Result, bail};

use crate::{
    children, files,
    shell::{self, Workspace},
    times::{Item, Times},
};

pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Outcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Both outcomes as one: the one that did not pass wins.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Passed, other) => other,
            (Self::Failed(one), Self::Failed(other)) => Self::Failed(format!("{one}\n{other}")),
            (Self::Skipped(_), failed @ Self::Failed(_)) => failed,
            (outcome, _) => outcome,
        }
    }

    /// The end of a command that consists of this check.
    pub(crate) fn into_exit_code(self) -> Result<ExitCode> {
        match self {
            Self::Failed(reason) => bail!(reason),
            Self::Passed | Self::Skipped(_) => Ok(ExitCode::SUCCESS),
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(reason) | Self::Skipped(reason) => reason,
        }
    }
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Self::Failed(format!("{error:#}"))
    }
}

/// Passes if the command exits with 0. Otherwise the reason names the command and the next step.
pub(crate) fn check(command: &mut Command, advice: &str) -> Result<Outcome> {
    let status = shell::status(command)?;
    Ok(ended(command, status, advice))
}

/// The outcome of a command that has ended.
pub(crate) fn ended(command: &Command, status: ExitStatus, advice: &str) -> Outcome {
    match status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(format!("`{}`: {status}; {advice}", shell::line(command))),
    }
}

/// Runs two checks at the same time. The output of `there` goes to a file, which is printed when both checks
/// have ended.
///
/// # Errors
///
/// If the file cannot be used.
pub(crate) fn side_by_side(
    workspace: &Workspace,
    name: &str,
    here: impl FnOnce() -> Result<Outcome>,
    there: impl FnOnce(&Workspace) -> Result<Outcome> + Send,
) -> Result<Outcome> {
    let log = workspace
        .scratch()?
        .join(format!("{}.log", name.replace(' ', "-")));
    println!("==> {name} beside the others; progress is in {}", log.display());
    let apart = workspace.printing_to(&log)?;
    let (here, there) = thread::scope(|scope| {
        let there = scope.spawn(|| there(&apart).unwrap_or_else(Outcome::from));
        let here = here().unwrap_or_else(Outcome::from);
        (here, there.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let printed = files::read(&log)?;
    println!("\n==> {name}: {}\n{printed}", there.label());
    Ok(here.and(there))
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
    cpu: Cpu,
    /// The items that took longest.
    longest: Vec<Item>,
}

/// The number of items in the table, for each step.
const ITEMS: usize = 3;

/// Items that are shorter are not worth a line.
const ITEM_MIN: Duration = Duration::from_millis(100);

/// Processor time.
#[derive(Clone, Copy, Default)]
struct Cpu {
    /// Time of processes that this process has waited for, and of their children. Daemons of a lab are not
    /// included.
    own: Duration,
    /// Busy time of the whole machine.
    machine: Duration,
}

impl Cpu {
    /// The time used until now. Zero if /proc does not provide it.
    fn now() -> Self {
        Self::read().unwrap_or_default()
    }

    fn read() -> Result<Self> {
        let read = |file| fs::read_to_string(file).with_context(|| format!("failed to read {file}"));
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 * tick);
        Ok(Self {
            own: time(ticks_of_children(&read("/proc/self/stat")?).context("no such fields")?),
            machine: time(busy_ticks(&read("/proc/stat")?).context("no such line")?),
        })
    }

    fn since(self, start: Self) -> Self {
        Self {
            own: self.own.saturating_sub(start.own),
            machine: self.machine.saturating_sub(start.machine),
        }
    }
}

/// `cutime` and `cstime` of proc_pid_stat(5), which follow the name in parentheses.
fn ticks_of_children(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut children = fields.split(' ').skip(13).map(|field| field.parse::<u64>().ok());
    Some(children.next()?? + children.next()??)
}

/// The sum of proc_stat(5)'s first line without `idle`, `iowait` and the time of guests, which `user` and
/// `nice` include.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu")?.split_whitespace();
    let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let busy = ticks.iter().take(8).enumerate();
    Some(
        busy.filter(|(index, _)| !matches!(index, 3 | 4))
            .map(|(_, ticks)| ticks)
            .sum(),
    )
}

pub(crate) struct Steps {
    all: Vec<Step>,
    times: Times,
}

impl Steps {
    /// `times` are those of the step that runs.
    pub(crate) fn new(times: Times) -> Self {
        Self { all: vec![], times }
    }

    /// Runs one step and returns whether it passed. An error fails this step only. After Ctrl-C all steps are
    /// skipped.
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("\n==> {name}");
        // What another command has left.
        self.times.take();
        let (start, cpu) = (Instant::now(), Cpu::now());
        let outcome = match children::are_interrupted() {
            true => Outcome::Skipped("interrupted".to_owned()),
            false => step().unwrap_or_else(Outcome::from),
        };
        let (took, cpu) = (start.elapsed(), Cpu::now().since(cpu));
        println!("==> {name}: {} in {}", outcome.label(), short_text(took));
        let passed = matches!(outcome, Outcome::Passed);
        let items = self.times.take().into_iter();
        self.all.push(Step {
            name,
            outcome,
            took,
            cpu,
            longest: items.filter(|item| item.took >= ITEM_MIN).take(ITEMS).collect(),
        });
        passed
    }

    /// Runs one step, or skips it if there is an obstacle.
    pub(crate) fn run_unless(
        &mut self,
        obstacle: Option<&str>,
        name: &'static str,
        step: impl FnOnce() -> Result<Outcome>,
    ) {
        match obstacle {
            None => {
                self.run(name, step);
            }
            Some(obstacle) => self.skip(name, obstacle),
        }
    }

    pub(crate) fn skip(&mut self, name: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        self.run(name, || Ok(Outcome::Skipped(reason)));
    }

    /// One line for each step, and below it the items that took longest. `CPU` is the time of the step's own
    /// processes that it waited for, `machine` the time of all processes.
    pub(crate) fn table(&self) -> String {
        let width = self.all.iter().map(|step| step.name.len()).max().unwrap_or(0);
        let head = format!(
            "  {:<7}  {:<width$}  {:>12}  {:>8}  {:>8}\n",
            "", "", "time", "CPU", "machine"
        );
        self.all.iter().fold(head, |mut table, step| {
            // A reason can have several lines, such as a diff. They stay in their column.
            let indented = format!("\n{:1$}", "", width + 47);
            let reason = step.outcome.reason().trim_end().replace('\n', &indented);
            let row = format!(
                "  {:<7}  {:<width$}  {:>12}  {:>6} s  {:>6} s  {reason}",
                step.outcome.label(),
                step.name,
                short_text(step.took),
                step.cpu.own.as_secs(),
                step.cpu.machine.as_secs(),
            );
            writeln!(table, "{}", row.trim_end()).expect(WRITABLE);
            for Item { took, name } in &step.longest {
                writeln!(table, "{:1$}{2:>12}  {name}", "", width + 13, short_text(*took)).expect(WRITABLE);
            }
            table
        })
    }

    /// The last line, which CI reads.
    pub(crate) fn counts(&self) -> String {
        let count = |label| {
            self.all
                .iter()
                .filter(|step| step.outcome.label() == label)
                .count()
        };
        format!(
            "{} passed, {} failed, {} skipped",
            count("ok"),
            count("failed"),
            count("skipped")
        )
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self
            .all
            .iter()
            .any(|step| matches!(step.outcome, Outcome::Failed(_)))
        {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        }
    }
}

const WRITABLE: &str = "writing to a string cannot fail";

pub(crate) fn short_text(took: Duration) -> String {
    match took.as_secs() {
        0..60 => format!("{:.1} s", took.as_secs_f64()),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::{process::ExitCode, time::Duration};

    use anyhow::bail;

    use super::{Cpu, ITEMS, Item, Outcome, Step, Steps, Times, busy_ticks, short_text, ticks_of_children};

    #[test]
    fn later_steps_run_after_a_failure() {
        let mut steps = Steps::new(Times::at("no-such-folder/times"));
        assert!(!steps.run("first", || bail!("no such program")));
        assert!(steps.run("second", || Ok(Outcome::Passed)));
        steps.skip("third", "no network");
        assert_eq!(steps.counts(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(steps.exit_code(), ExitCode::FAILURE);
    }

    #[test]
    fn a_skipped_step_leaves_the_exit_code_of_a_success() {
        let mut steps = Steps::new(Times::at("no-such-folder/times"));
        steps.run("first", || Ok(Outcome::Passed));
        steps.skip("second", "no network");
        assert_eq!(steps.exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn of_two_outcomes_the_one_that_did_not_pass_is_reported() {
        let failed = |reason: &str| Outcome::Failed(reason.to_owned());
        let skipped = || Outcome::Skipped("not here".to_owned());
        for (one, other, expected) in [
            (Outcome::Passed, Outcome::Passed, ("ok", "")),
            (Outcome::Passed, failed("a"), ("failed", "a")),
            (failed("a"), Outcome::Passed, ("failed", "a")),
            (failed("a"), failed("b"), ("failed", "a\nb")),
            (skipped(), failed("b"), ("failed", "b")),
            (skipped(), Outcome::Passed, ("skipped", "not here")),
        ] {
            let both = one.and(other);
            assert_eq!((both.label(), both.reason()), expected);
        }
    }

    #[test]
    fn the_table_lines_up_reasons_and_items_and_leaves_no_space_at_the_end() {
        let step = |name, outcome, longest| Step {
            name,
            outcome,
            took: Duration::from_millis(1_250),
            cpu: Cpu {
                own: Duration::from_secs(2),
                machine: Duration::from_secs(130),
            },
            longest,
        };
        let steps = Steps {
            all: vec![
                step(
                    "tests",
                    Outcome::Passed,
                    vec![item("links kernel::a", 61_000), item("api b", 500)],
                ),
                step(
                    "generated files",
                    Outcome::Failed("crds/x.yaml is stale\n-old\n+new".into()),
                    vec![],
                ),
            ],
            times: Times::at(""),
        };
        let expected = "                                    time       CPU   machine
  ok       tests                   1.2 s       2 s     130 s
                              1 min 01 s  links kernel::a
                                   0.5 s  api b
  failed   generated files         1.2 s       2 s     130 s  crds/x.yaml is stale
                                                              -old
                                                              +new
";
        assert_eq!(steps.table(), expected);
    }

    #[test]
    fn each_step_has_its_own_longest_items() {
        let folder = tempfile::tempdir().unwrap();
        let times = || Times::at(folder.path().join("times"));
        times().add([item("of an earlier command", 9_000)]).unwrap();
        let mut steps = Steps::new(times());
        let items = [("a", 99), ("b", 100), ("c", 2_000), ("d", 300), ("e", 1_000)];
        steps.run("first", || {
            times().add(items.map(|(name, millis)| item(name, millis)))?;
            Ok(Outcome::Passed)
        });
        steps.run("second", || Ok(Outcome::Passed));
        let names = |step: &Step| {
            step.longest
                .iter()
                .map(|item| item.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&steps.all[0]), ["c", "e", "d"]);
        assert_eq!(steps.all[0].longest.len(), ITEMS);
        assert!(steps.all[1].longest.is_empty());
    }

    fn item(name: &str, millis: u64) -> Item {
        Item {
            took: Duration::from_millis(millis),
            name: name.to_owned(),
        }
    }

    #[test]
    fn processor_time_is_read_from_where_the_kernel_puts_it() {
        let own = "7 (a (b) c) S 1 7 7 0 -1 4194304 5 6 0 0 11 12 130 20 20 0 1 0 99 0\n";
        assert_eq!(ticks_of_children(own), Some(150));
        let machine = "cpu  100 20 3 5000 600 4 5 6 70 80\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(machine), Some(138));
        for broken in ["", "cpu", "7 (a) S 1"] {
            assert_eq!(ticks_of_children(broken), None);
        }
        assert_eq!(busy_ticks("intr 5"), None);
    }

    #[test]
    fn time_of_this_machine_is_found() {
        let cpu = Cpu::read().unwrap();
        assert!(cpu.machine > Duration::ZERO);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(short_text(Duration::from_millis(340)), "0.3 s");
        assert_eq!(short_text(Duration::from_secs(605)), "10 min 05 s");
    }
}
