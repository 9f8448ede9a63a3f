//! Every query of a dashboard, asked as Grafana would ask it.

use anyhow::{Context, Result, anyhow, ensure};
use perfrun_api::{node::Measured, plan::Cell, results::Results};

use crate::{Dashboard, Panel, Prometheus, Series, Target, Variable, Variables, labels_of_legend};

/// Points of a panel.
const POINTS: f64 = 60.0;

/// What is chosen on a dashboard.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The run.
    pub run: &'a str,
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
    /// Which it is: dashboard, panel, letter.
    pub name: String,
    /// As it was asked.
    pub expression: String,
    /// The series that have data.
    pub series: Vec<Series>,
}

/// Asks all queries of a dashboard, those of its variables and annotations included. Fails, if one is refused, if a variable
/// has nothing to choose from, or if series lack labels that their names are made of.
async fn ask(prometheus: &Prometheus, dashboard: &Dashboard, scope: &Scope<'_>) -> Result<Vec<Answer>> {
    let range = scope.to - scope.from;
    let step = (range / POINTS).max(1.0).ceil();
    let mut variables = Variables::of_time(range, step, scope.interval);
    for variable in &dashboard.templating.list {
        if variable.kind == "query" {
            let value = choose(prometheus, variable, &variables, scope)
                .await
                .with_context(|| format!("{}, ${}", dashboard.title, variable.name))?;
            variables.set(&variable.name, &value);
        }
    }
    let mut answers = vec![];
    for panel in dashboard.shown() {
        for target in &panel.targets {
            let name = format!("{}, {}, {}", dashboard.title, panel.title, target.ref_id);
            let expression = variables.substitute(&target.expr).map_err(|why| anyhow!(why))?;
            let series = if target.instant {
                prometheus.at(&expression, scope.to).await
            } else {
                prometheus.over(&expression, scope.from, scope.to, step).await
            };
            let mut series = series.with_context(|| name.clone())?;
            series.retain(|series| !series.numbers().is_empty());
            are_named(panel, target, &series).with_context(|| format!("{name}: {expression}"))?;
            answers.push(Answer {
                name,
                expression,
                series,
            });
        }
    }
    for annotation in &dashboard.annotations.list {
        let expr = annotation["expr"].as_str().unwrap_or_default();
        let expression = variables.substitute(expr).map_err(|why| anyhow!(why))?;
        let mut series = prometheus.over(&expression, scope.from, scope.to, 1.0).await?;
        series.retain(|series| !series.numbers().is_empty());
        answers.push(Answer {
            name: format!("{}, annotation {}", dashboard.title, annotation["name"]),
            expression,
            series,
        });
    }
    Ok(answers)
}

/// What a user would choose: the run and its namespace, and the first of everything else.
async fn choose(
    prometheus: &Prometheus,
    variable: &Variable,
    variables: &Variables,
    scope: &Scope<'_>,
) -> Result<String> {
    let query = variables
        .substitute(&variable.definition)
        .map_err(|why| anyhow!(why))?;
    let inner = query
        .strip_prefix("label_values(")
        .and_then(|query| query.strip_suffix(')'));
    let (selector, label) = inner
        .and_then(|inner| inner.rsplit_once(", "))
        .with_context(|| format!("{query} is not label_values(SELECTOR, LABEL)"))?;
    let values = prometheus
        .label_values(label, selector, scope.from, scope.to)
        .await?;
    let asked = match variable.name.as_str() {
        "run" => Some(scope.run),
        "namespace" => Some(scope.namespace),
        _ => None,
    };
    if let Some(asked) = asked {
        ensure!(
            values.iter().any(|value| value == asked),
            "{asked} is not among {values:?}"
        );
        return Ok(asked.to_owned());
    }
    let first = values.first().context("there is nothing to choose from")?;
    Ok(match &variable.all_value {
        Some(all) if variable.include_all => all.clone(),
        _ => first.clone(),
    })
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
/// queries that have data for none of them, unless they may have none here. Returns how many have data.
pub async fn all_have_data(
    prometheus: &Prometheus,
    dashboards: &[Dashboard],
    scopes: &[Scope<'_>],
    may_be_empty: impl Fn(&Answer) -> bool,
) -> Result<usize> {
    let (mut with_data, mut without) = (0, vec![]);
    for dashboard in dashboards {
        let mut answers: Vec<Answer> = vec![];
        for scope in scopes {
            let of_run = ask(prometheus, dashboard, scope).await;
            let of_run = of_run.with_context(|| format!("for the run {}", scope.run))?;
            if answers.is_empty() {
                answers = of_run;
                continue;
            }
            for (all, more) in answers.iter_mut().zip(of_run) {
                all.series.extend(more.series);
                all.expression = more.expression;
            }
        }
        let (some, none): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| !answer.series.is_empty());
        with_data += some.len();
        without.extend(none.into_iter().filter(|answer| !may_be_empty(answer)));
    }
    let list: Vec<_> = without
        .iter()
        .map(|answer| format!("\n{}: {}", answer.name, answer.expression))
        .collect();
    ensure!(without.is_empty(), "these queries have no data:{}", list.concat());
    Ok(with_data)
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
