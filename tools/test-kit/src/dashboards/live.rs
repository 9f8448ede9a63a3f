//! Every query of a dashboard, asked as Grafana would ask it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, ensure};
use perfrun_api::results::Results;
use perfrun_contract::{metrics::run, node::Measured, plan::Cell};

use super::{Dashboard, Panel, Prometheus, Series, Target, Variable, Variables, empty, labels_of_legend};

/// Points of a panel.
const POINTS: f64 = 60.0;

/// What is chosen on a dashboard.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The run.
    pub run: &'a str,
    /// What it measures.
    pub workload: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The time shown, in seconds of Unix time.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Seconds between two scrapes.
    pub interval: f64,
}

/// What came of a query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The dashboard's address.
    pub dashboard: String,
    /// The panel's title, or the annotation's name.
    pub panel: String,
    /// The query's letter.
    pub letter: String,
    /// Of a panel that is repeated, the value that it is there for.
    pub of: Option<String>,
    /// As it was asked.
    pub expression: String,
    /// Whether the query is for the end of the time range only.
    pub instant: bool,
    /// The series that have data.
    pub series: Vec<Series>,
}

impl Answer {
    /// What it is called, whatever it was repeated for.
    pub fn name(&self) -> String {
        format!("{}, {}, {}", self.dashboard, self.panel, self.letter)
    }
}

/// What can be chosen of a variable, and what is.
struct Choice {
    options: Vec<String>,
    value: String,
}

/// Asks all queries of a dashboard, those of its variables and annotations included; of panels that are repeated, for each
/// value. Fails, if one is refused, if a variable has nothing to choose from, or if series lack labels that their names are
/// made of.
async fn ask(prometheus: &Prometheus, dashboard: &Dashboard, scope: &Scope<'_>) -> Result<Vec<Answer>> {
    let range = scope.to - scope.from;
    let step = (range / POINTS).max(1.0).ceil();
    let mut variables = Variables::of_time(range, step, scope.interval);
    let mut options = BTreeMap::new();
    for variable in &dashboard.templating.list {
        if variable.kind == "query" {
            let choice = choose(prometheus, variable, &variables, scope)
                .await
                .with_context(|| format!("{}, ${}", dashboard.title, variable.name))?;
            variables.set(&variable.name, &choice.value);
            options.insert(variable.name.as_str(), choice.options);
        }
    }
    let mut answers = vec![];
    for (panel, repeat) in dashboard.repeated() {
        let values = match repeat {
            Some(name) => options
                .get(name)
                .with_context(|| format!("nothing is called ${name}"))?,
            None => &vec![String::new()],
        };
        for value in values {
            let mut variables = variables.clone();
            if let Some(name) = repeat {
                variables.set(name, value);
            }
            for target in &panel.targets {
                let expression = variables.substitute(&target.expr).map_err(|why| anyhow!(why))?;
                let series = if target.instant {
                    prometheus.at(&expression, scope.to).await
                } else {
                    prometheus.over(&expression, scope.from, scope.to, step).await
                };
                let mut answer = Answer {
                    dashboard: dashboard.uid.clone(),
                    panel: panel.title.clone(),
                    letter: target.ref_id.clone(),
                    of: repeat.map(|_| value.clone()),
                    expression,
                    instant: target.instant,
                    series: vec![],
                };
                answer.series = series.with_context(|| answer.name())?;
                answer.series.retain(|series| !series.numbers().is_empty());
                are_named(panel, target, &answer.series)
                    .with_context(|| format!("{}: {}", answer.name(), answer.expression))?;
                answers.push(answer);
            }
        }
    }
    for annotation in &dashboard.annotations.list {
        let expr = annotation["expr"].as_str().unwrap_or_default();
        let expression = variables.substitute(expr).map_err(|why| anyhow!(why))?;
        let mut series = prometheus.over(&expression, scope.from, scope.to, 1.0).await?;
        series.retain(|series| !series.numbers().is_empty());
        answers.push(Answer {
            dashboard: dashboard.uid.clone(),
            panel: annotation["name"].as_str().unwrap_or_default().to_owned(),
            letter: "annotation".to_owned(),
            of: None,
            expression,
            instant: false,
            series,
        });
    }
    Ok(answers)
}

/// What a user would choose: the run and its namespace, and all or the first of everything else.
async fn choose(
    prometheus: &Prometheus,
    variable: &Variable,
    variables: &Variables,
    scope: &Scope<'_>,
) -> Result<Choice> {
    let query = variables
        .substitute(&variable.definition)
        .map_err(|why| anyhow!(why))?;
    let options = options(prometheus, variable, &query, scope).await?;
    let asked = match variable.name.as_str() {
        "run" => Some(scope.run),
        "namespace" => Some(scope.namespace),
        _ => None,
    };
    let value = match asked {
        Some(asked) => {
            ensure!(
                options.iter().any(|value| value == asked),
                "{asked} is not among {options:?}"
            );
            asked.to_owned()
        }
        None => {
            let first = options.first().context("there is nothing to choose from")?;
            match &variable.all_value {
                Some(all) if variable.include_all => all.clone(),
                None if variable.include_all => format!("({})", options.join("|")),
                _ => first.clone(),
            }
        }
    };
    Ok(Choice { options, value })
}

/// The values of `label_values(SELECTOR, LABEL)`, or of a label in what `query_result(EXPRESSION)` returns, in this order.
async fn options(
    prometheus: &Prometheus,
    variable: &Variable,
    query: &str,
    scope: &Scope<'_>,
) -> Result<Vec<String>> {
    let inner = |function: &str| query.strip_prefix(function)?.strip_suffix(')');
    if let Some(expression) = inner("query_result(") {
        let label = variable
            .regex
            .strip_prefix('/')
            .and_then(|regex| regex.split_once('='));
        let (label, group) = label.context("its regex is not /LABEL=\"([^\"]+)\"/")?;
        ensure!(group == "\"([^\"]+)\"/", "its regex is not /LABEL=\"([^\"]+)\"/");
        let series = prometheus.at(expression, scope.to).await?;
        let values = series
            .iter()
            .filter_map(|series| series.labels.get(label).cloned());
        return Ok(values.collect());
    }
    let (selector, label) = inner("label_values(")
        .and_then(|inner| inner.rsplit_once(", "))
        .with_context(|| {
            format!("{query} is neither label_values(SELECTOR, LABEL) nor query_result(EXPRESSION)")
        })?;
    prometheus
        .label_values(label, selector, scope.from, scope.to)
        .await
}

/// Names of series, and columns of tables, are made of labels that at least one of them has.
fn are_named(panel: &Panel, target: &Target, series: &[Series]) -> Result<()> {
    if series.is_empty() {
        return Ok(());
    }
    for label in labels_of_legend(&target.legend_format) {
        let has = series.iter().any(|series| series.labels.contains_key(label));
        // Why it failed, while it goes on, and what did, when nothing does.
        let may_lack = matches!(label, "reason" | "category");
        ensure!(
            has || may_lack,
            "no series of panel {} has the label {label}",
            panel.title
        );
    }
    Ok(())
}

/// Asks everything of these dashboards for each of several runs, which together measure all that there is. Fails with the
/// queries that have no data for a run that should have them, and with those that have none for any; of panels in `without`,
/// titles with reasons, none are expected here. Returns how many have data.
pub async fn all_have_data(
    prometheus: &Prometheus,
    dashboards: &[Dashboard],
    scopes: &[Scope<'_>],
    without: &[(&str, &str)],
) -> Result<usize> {
    let mut with_data: BTreeMap<String, bool> = BTreeMap::new();
    let (mut wrong, mut reasons) = (vec![], BTreeSet::new());
    for scope in scopes {
        for answer in ask_all(prometheus, dashboards, scope).await? {
            let has = !answer.series.is_empty();
            *with_data.entry(answer.name()).or_default() |= has;
            if has || without.iter().any(|(title, _)| *title == answer.panel) {
                continue;
            }
            match empty::reason(&answer, scope.workload) {
                Some(why) => {
                    reasons.insert(why);
                }
                None => wrong.push(format!(
                    "\n{} for {}: {}",
                    answer.name(),
                    scope.run,
                    answer.expression
                )),
            }
        }
    }
    for (name, _) in with_data.iter().filter(|(_, has)| !**has) {
        if !without.iter().any(|(title, _)| name.contains(title)) {
            wrong.push(format!("\n{name} for every run"));
        }
    }
    let unused = empty::unused(&reasons);
    ensure!(unused.is_empty(), "no panel is empty because {unused:?}");
    ensure!(wrong.is_empty(), "these queries have no data:{}", wrong.concat());
    Ok(with_data.values().filter(|has| **has).count())
}

async fn ask_all(
    prometheus: &Prometheus,
    dashboards: &[Dashboard],
    scope: &Scope<'_>,
) -> Result<Vec<Answer>> {
    let mut answers = vec![];
    for dashboard in dashboards {
        let more = ask(prometheus, dashboard, scope).await;
        answers.extend(more.with_context(|| format!("for the run {}", scope.run))?);
    }
    Ok(answers)
}

/// Fails, unless dashboards of a run say `later` what they said at the end of the time shown, and that it is in this phase.
/// `later`, in seconds of Unix time, may be in the future: what exported the run is gone then, as after every local run.
pub async fn stays_when_targets_are_gone(
    prometheus: &Prometheus,
    dashboards: &[Dashboard],
    scope: &Scope<'_>,
    later: f64,
    phase: &str,
) -> Result<()> {
    let alive = format!("perfrun_run_info{{run=\"{}\"}}", scope.run);
    let alive = prometheus.at(&alive, later).await?;
    ensure!(alive.is_empty(), "the run is still exported at that time");
    let before = ask_all(prometheus, dashboards, scope).await?;
    let scope = Scope {
        to: later,
        ..scope.clone()
    };
    let after = ask_all(prometheus, dashboards, &scope).await?;
    ensure!(before.len() == after.len(), "panels that are repeated are others");
    let mut phases = 0;
    // Graphs over time have their points, however long the time shown; of a longer one there are fewer.
    for (before, after) in before.iter().zip(&after).filter(|(_, after)| after.instant) {
        let name = after.name();
        let [was, is] = [said(before), said(after)];
        ensure!(
            was == is,
            "{name} said {was:?}, and says {is:?}: {}",
            after.expression
        );
        let said: Vec<_> = after
            .series
            .iter()
            .filter_map(|series| series.labels.get("phase"))
            .collect();
        if !said.is_empty() {
            ensure!(said == [phase], "{name} says {said:?}");
            phases += 1;
        }
    }
    ensure!(phases > 0, "no panel says where the run stands");
    Ok(())
}

/// What a query says, whatever the order. When a run was last seen is left out: an exporter that is still there at the end of
/// the time shown is scraped again after it.
fn said(answer: &Answer) -> Vec<String> {
    let is_moment = answer.expression.starts_with("topk ") && answer.expression.contains(run::SEEN.name);
    let lines = answer.series.iter().map(|series| match is_moment {
        true => format!("{:?}", series.labels),
        false => format!("{:?} {:?}", series.labels, series.numbers()),
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

/// Fails, unless Prometheus has seen what results say: all payload, to one part in a hundred, and every median.
pub async fn agrees_with(prometheus: &Prometheus, results: &Results, scope: &Scope<'_>) -> Result<()> {
    let of_run = format!("run_namespace=\"{}\", run=\"{}\"", scope.namespace, scope.run);
    let window = (scope.to - scope.from).ceil();
    for (direction, counted) in [
        ("sent", (|measured| measured.bytes_sent) as fn(&Measured) -> u64),
        ("received", |measured| measured.bytes_received),
    ] {
        let expression = format!(
            "sum(max_over_time(perfrun_payload_bytes_total{{{of_run}, direction=\"{direction}\"}}[{window}s]))"
        );
        let seen = prometheus.at(&expression, scope.to).await?;
        let seen = seen.iter().flat_map(Series::numbers).sum::<f64>();
        let nodes = results.trials.iter().flat_map(|record| record.nodes.values());
        let is = nodes.map(|node| counted(&node.measured)).sum::<u64>() as f64;
        ensure!(
            (seen - is).abs() <= 0.01 * is,
            "{}: Prometheus has seen {seen} bytes {direction}, and results.json has {is}",
            scope.run
        );
    }
    for row in &results.summary {
        let Cell { id, network, .. } = results
            .plan
            .cells
            .iter()
            .find(|cell| cell.id == row.cell)
            .context("rows are of cells")?;
        let metric = row.metric;
        let labels = format!("{{{of_run}, cell=\"{id}\", metric=\"{metric}\", network=\"{network}\"}}");
        for (family, is) in [
            ("perfrun_result_median", Some(row.median)),
            ("perfrun_result_ci95_low", row.ci95_low),
            ("perfrun_result_ci95_high", row.ci95_high),
            ("perfrun_result_share_of_raw_ratio", row.share_of_raw),
            ("perfrun_result_trials", Some(row.count.into())),
        ] {
            let series = prometheus.at(&format!("{family}{labels}"), scope.to).await?;
            let seen: Vec<f64> = series.iter().flat_map(Series::numbers).collect();
            // A number that went through JSON may end in another digit.
            let same = match (seen.as_slice(), is) {
                ([seen], Some(is)) => (seen - is).abs() <= 1e-9 * is.abs(),
                ([], None) => true,
                _ => false,
            };
            ensure!(same, "{family}{labels} is {seen:?}, and results.json has {is:?}");
        }
    }
    Ok(())
}
