//! A real Prometheus, started for a test, and queries to it.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use reqwest::{Client, Url};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

/// Timeout of the start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// A Prometheus on loopback. Dropping it kills the process and removes its data.
pub struct Prometheus {
    client: Client,
    base: String,
    /// Declared before the folder, so that the process ends first.
    process: Child,
    folder: TempDir,
}

/// A series of an answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Series {
    #[serde(rename = "metric")]
    pub labels: BTreeMap<String, String>,
    /// Value of an instant query.
    #[serde(default)]
    value: Option<Point>,
    /// Values of a range query.
    #[serde(default)]
    values: Vec<Point>,
}

type Point = (f64, String);

#[derive(Deserialize)]
struct Reply<T> {
    data: Option<T>,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Found {
    result: Vec<Series>,
}

impl Series {
    /// The values in order of time, without those that are not numbers.
    pub fn numbers(&self) -> Vec<f64> {
        self.points().into_iter().map(|(_, number)| number).collect()
    }

    /// The same values, each with its time in seconds of Unix time.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let points = self.value.iter().chain(&self.values);
        points
            .filter_map(|(time, text)| Some((*time, text.parse().ok()?)))
            .filter(|(_, number): &(f64, f64)| number.is_finite())
            .collect()
    }
}

impl Prometheus {
    /// Starts the Prometheus on PATH with this configuration in YAML.
    pub async fn start(configuration: &str) -> Result<Self> {
        Self::start_this(OsStr::new("prometheus"), configuration, &[]).await
    }

    /// Starts a given program. `files` are names and contents of files in its working directory.
    pub async fn start_this(program: &OsStr, configuration: &str, files: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("prometheus.yml"), configuration)?;
        for (name, text) in files {
            fs::write(folder.path().join(name), text)?;
        }
        let address = free_address()?;
        let log = fs::File::create(folder.path().join("log"))?;
        let process = Command::new(program)
            .current_dir(folder.path())
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}", program.display()))?;
        let mut this = Self {
            client: Client::builder().no_proxy().build()?,
            base: format!("http://{address}"),
            process,
            folder,
        };
        this.await_ready().await?;
        Ok(this)
    }

    /// Why Prometheus cannot be started here; `None` if it can.
    pub fn obstacle() -> Option<&'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| folder.join("prometheus").is_file());
        (!found).then_some("needs prometheus on PATH: Debian's package of that name")
    }

    /// The values of an expression at a time, in seconds of Unix time.
    pub async fn at(&self, expression: &str, time: f64) -> Result<Vec<Series>> {
        let parameters = [("query", expression), ("time", &time.to_string())];
        self.get::<Found>("query", &parameters)
            .await
            .map(|found| found.result)
    }

    /// The values of an expression over a time range.
    pub async fn over(&self, expression: &str, from: f64, to: f64, step: f64) -> Result<Vec<Series>> {
        let [from, to, step] = [from, to, step].map(|number| number.to_string());
        let parameters = [
            ("query", expression),
            ("start", &from),
            ("end", &to),
            ("step", &step),
        ];
        self.get::<Found>("query_range", &parameters)
            .await
            .map(|found| found.result)
    }

    /// Values of a label in the series of a selector.
    pub async fn label_values(&self, label: &str, selector: &str, from: f64, to: f64) -> Result<Vec<String>> {
        let [from, to] = [from, to].map(|number| number.to_string());
        let parameters = [("match[]", selector), ("start", &from), ("end", &to)];
        self.get(&format!("label/{label}/values"), &parameters).await
    }

    /// The current number of an expression; `None` if it does not have exactly one.
    pub async fn number(&self, expression: &str) -> Result<Option<f64>> {
        let series = self.at(expression, now()).await?;
        ensure!(series.len() < 2, "{expression} has {} values", series.len());
        Ok(series
            .first()
            .and_then(|series| series.numbers().first().copied()))
    }

    /// The log of the process.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, path: &str, parameters: &[(&str, &str)]) -> Result<T> {
        let url = Url::parse_with_params(&format!("{}/api/v1/{path}", self.base), parameters)?;
        let answer = self.client.get(url).send().await?.bytes().await?;
        let reply: Reply<T> = serde_json::from_slice(&answer).context("unable to read Prometheus' answer")?;
        let what = parameters.first().map_or("", |(_, value)| value);
        reply
            .data
            .with_context(|| format!("Prometheus refuses {what}: {}", reply.error))
    }

    async fn await_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let ready = self.client.get(format!("{}/-/ready", self.base)).send().await;
            if ready.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("prometheus has ended, {status}:\n{}", self.log());
            }
            ensure!(
                Instant::now() < deadline,
                "prometheus is not ready:\n{}",
                self.log()
            );
            sleep(PAUSE).await;
        }
    }
}

/// The current time in seconds of Unix time.
pub fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// An address that is free now. Prometheus does not report the port that the system assigns.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// Runs promtool, which checks rules and comes with Prometheus.
pub fn promtool(arguments: &[&str], folder: &Path) -> Result<std::process::Output> {
    let output = std::process::Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    output.context("failed to start promtool")
}
