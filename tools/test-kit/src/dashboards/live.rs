//! Every query of a dashboard, sent as Grafana would send it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, ensure};
use perfrun_api::results::Results;
use perfrun_contract::{compare::Comparison, metrics::run, node::Measured, plan::Cell};

use super::{
    Answer, Dashboard, Panel, Prometheus, Series, Target, Variable, Variables, empty, labels_of_legend,
};

/// Number of points of a panel.
const POINTS: f64 = 60.0;

/// The choices on a dashboard.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// Name of the run, or the value of "All" of a dashboard that has it.
    pub run: &'a str,
    /// Workload of the run.
    pub workload: &'a str,
    /// Namespace of the run.
    pub namespace: &'a str,
    /// Start of the time range, in seconds of Unix time.
    pub from: f64,
    /// End of the time range, in seconds of Unix time.
    pub to: f64,
    /// Seconds between two scrapes.
    pub interval: f64,
}

/// The options of a variable, and the chosen ones.
struct Choice {
    options: Vec<String>,
    value: String,
}

/// Sends all queries of a dashboard, including those of variables and annotations, and those of repeated
/// panels for each value. Fails if a query is refused, if a variable has no options, or if series lack labels
/// that their names use.
pub(super) async fn query(
    prometheus: &Prometheus,
    dashboard: &Dashboard,
    scope: &Scope<'_>,
) -> Result<Vec<Answer>> {
    let step = step(scope);
    let mut variables = Variables::of_time(scope.to - scope.from, step, scope.interval);
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
                .with_context(|| format!("unknown variable ${name}"))?,
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
                    title: variables.substitute(&panel.title).map_err(|why| anyhow!(why))?,
                    letter: target.ref_id.clone(),
                    repeated_for: repeat.map(|_| value.clone()),
                    expression,
                    instant: target.instant,
                    series: vec![],
                };
                answer.series = series.with_context(|| answer.name())?;
                answer.series.retain(|series| !series.numbers().is_empty());
                check_labels(panel, target, &answer.series)
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
        let name = annotation["name"].as_str().unwrap_or_default();
        answers.push(Answer {
            dashboard: dashboard.uid.clone(),
            panel: name.to_owned(),
            title: name.to_owned(),
            letter: "annotation".to_owned(),
            repeated_for: None,
            expression,
            instant: false,
            series,
        });
    }
    Ok(answers)
}

/// Seconds between two points of a panel.
pub(super) fn step(scope: &Scope<'_>) -> f64 {
    ((scope.to - scope.from) / POINTS).max(1.0).ceil()
}

/// The choices of a user: the run and its namespace, and "All" or the first option of all other variables.
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
            let is_all = variable.all_value.as_deref() == Some(asked);
            ensure!(
                is_all || options.iter().any(|value| value == asked),
                "{asked} is not among {options:?}"
            );
            asked.to_owned()
        }
        None => {
            let first = options.first().context("the variable has no options")?;
            match &variable.all_value {
                Some(all) if variable.include_all => all.clone(),
                None if variable.include_all => format!("({})", options.join("|")),
                _ => first.clone(),
            }
        }
    };
    Ok(Choice { options, value })
}

/// The values of `label_values(SELECTOR, LABEL)`, or of a label in the result of `query_result(EXPRESSION)`,
/// in order.
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

/// Checks that at least one series has the labels that names of series and columns of tables use.
fn check_labels(panel: &Panel, target: &Target, series: &[Series]) -> Result<()> {
    if series.is_empty() {
        return Ok(());
    }
    for label in labels_of_legend(&target.legend_format) {
        let has = series.iter().any(|series| series.labels.contains_key(label));
        // A run in progress has no `reason`, and without failures there is no `category`.
        let may_lack = matches!(label, "reason" | "category");
        ensure!(
            has || may_lack,
            "no series of panel {} has the label {label}",
            panel.title
        );
    }
    Ok(())
}

/// Sends all queries of dashboards for several runs, which together measure everything. Fails with the
/// queries that have no data of a run that should have some, and with those that have none of any run. Panels
/// in `without`, titles with reasons, may be empty. Returns the number of queries with data.
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

/// The panel that is empty unless one of these comparisons, of all runs, has an interval, and the reason.
pub fn without_intervals<'a>(
    comparisons: impl IntoIterator<Item = &'a Comparison>,
) -> Option<(&'static str, &'static str)> {
    let has_interval = |comparison: &Comparison| {
        let ratio = comparison.ratio;
        ratio.is_some_and(|ratio| ratio.low.is_some() && ratio.high.is_some())
    };
    let none_has = !comparisons.into_iter().any(has_interval);
    none_has.then_some((
        "Candidates beside their baselines",
        "too few pairs were undisturbed for an interval",
    ))
}

async fn ask_all(
    prometheus: &Prometheus,
    dashboards: &[Dashboard],
    scope: &Scope<'_>,
) -> Result<Vec<Answer>> {
    let mut answers = vec![];
    for dashboard in dashboards {
        let more = query(prometheus, dashboard, scope).await;
        answers.extend(more.with_context(|| format!("for the run {}", scope.run))?);
    }
    Ok(answers)
}

/// Checks that dashboards of a run show the same data `later` as at the end of the time range, and the given
/// phase. `later`, in seconds of Unix time, may be in the future: the exporter of the run is gone then, as
/// after every local run.
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
    // A graph has the same number of points for every time range, so that a longer range has fewer for the
    // run.
    for (before, after) in before.iter().zip(&after).filter(|(_, after)| after.instant) {
        let name = after.name();
        let [was, is] = [data(before), data(after)];
        ensure!(
            was == is,
            "{name} showed {was:?}, and now shows {is:?}: {}",
            after.expression
        );
        let shown: Vec<_> = after
            .series
            .iter()
            .filter_map(|series| series.labels.get("phase"))
            .collect();
        if !shown.is_empty() {
            ensure!(shown == [phase], "{name} shows {shown:?}");
            phases += 1;
        }
    }
    ensure!(phases > 0, "no panel shows the phase of the run");
    Ok(())
}

/// The data of an answer, sorted. The time when a run was last seen is left out: an exporter that is still up
/// at the end of the time range is scraped again later.
fn data(answer: &Answer) -> Vec<String> {
    let is_moment = answer.expression.contains("topk ") && answer.expression.contains(run::SEEN.name);
    let lines = answer.series.iter().map(|series| match is_moment {
        true => format!("{:?}", series.labels),
        false => format!("{:?} {:?}", series.labels, series.numbers()),
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

/// Checks that Prometheus has the same data as the results: all payload, to within 1 %, and every median.
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
            // The last that was scraped: a scrape of an exporter that is gone hides it from other queries.
            let last = format!("last_over_time({family}{labels}[{window}s])");
            let series = prometheus.at(&last, scope.to).await?;
            let seen: Vec<f64> = series.iter().flat_map(Series::numbers).collect();
            // Each operator that has led may have exported it, once.
            let exporters: BTreeSet<_> = series
                .iter()
                .map(|series| series.labels.get("instance"))
                .collect();
            // A number that went through JSON may end in another digit.
            let same = match is {
                Some(is) => !seen.is_empty() && seen.iter().all(|seen| (seen - is).abs() <= 1e-9 * is.abs()),
                None => seen.is_empty(),
            };
            ensure!(
                same && seen.len() == exporters.len(),
                "{family}{labels} is {seen:?}, and results.json has {is:?}"
            );
        }
    }
    Ok(())
}
