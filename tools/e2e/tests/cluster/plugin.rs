//! `kubectl perfrun`: from a document to results at a terminal.

use std::{
    env, fs,
    path::Path,
    process::{Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use perfrun_api::results::Results;
use perfrun_contract::run::Phase;
use perfrun_e2e::{
    Scene, find_perfrun, printed,
    results::check_every_trial_once,
    run::{LONG, TINY, in_yaml, phase},
    seconds, shared, until,
};

#[test]
fn kubectl_perfrun_runs_a_document_and_copies_its_results() {
    shared(async |scene| {
        let Some(plugin) = Plugin::install(scene)? else {
            return Ok(());
        };
        let file = plugin.folder.path().join("tiny.yaml");
        let shared = TINY.replace("placement: Any", "placement: Any, exclusive: false");
        fs::write(&file, in_yaml("tiny", &shared))?;
        let results = plugin.results();
        let run = ["run", text(&file)?, "--cluster", "--results", &results];
        let table = succeeded(plugin.run(&run).await?)?;
        ensure!(table.contains("libp2p"), "{table}");

        let folders = fs::read_dir(plugin.results())?.collect::<Result<Vec<_>, _>>()?;
        ensure!(folders.len() == 1, "{folders:?}");
        let kept: Results = serde_json::from_slice(&fs::read(folders[0].path().join("results.json"))?)?;
        check_every_trial_once(&scene.run("tiny").await?, &kept)?;
        let got = succeeded(plugin.run(&["get", "results", "tiny", "-o", "json"]).await?)?;
        ensure!(
            serde_json::from_str::<Results>(&got)? == kept,
            "get results differs: {got}"
        );
        let list = succeeded(plugin.run(&["list"]).await?)?;
        let row = list.lines().find(|line| line.contains("tiny"));
        ensure!(row.is_some_and(|row| row.contains("Succeeded")), "{list}");
        Ok(())
    });
}

#[test]
fn kubectl_perfrun_shows_logs_and_confirms_a_cancel() {
    shared(async |scene| {
        let Some(plugin) = Plugin::install(scene)? else {
            return Ok(());
        };
        scene.create("long", LONG).await?;
        scene.measuring("long", 2, seconds(60)).await?;
        // A node logs a trial after it has reported its end.
        until("the trial is in the log", seconds(30), async || {
            let logs = ["logs", "perfrun/long", "--node", "client-0"];
            let logs = succeeded(plugin.run(&logs).await?)?;
            ensure!(logs.contains(r#""type":"trial""#), "{logs}");
            Ok(Some(()))
        })
        .await?;

        succeeded(plugin.run(&["cancel", "long"]).await?)?;
        let run = scene.run("long").await?;
        ensure!(phase(&run) == Some(Phase::Cancelled), "{run:?}");
        let watched = plugin
            .run(&["watch", "long", "--results", &plugin.results()])
            .await?;
        ensure!(
            watched.status.code() == Some(1) && printed(&watched).to_lowercase().contains("cancelled"),
            "{}: {}",
            watched.status,
            printed(&watched)
        );
        let table = succeeded(plugin.run(&["get", "results", "long"]).await?)?;
        ensure!(table.contains("litep2p"), "measurements should be kept: {table}");

        let missing = plugin.run(&["get", "results", "other"]).await?;
        ensure!(
            missing.status.code() == Some(1) && printed(&missing).contains("long"),
            "the list of runs is missing: {}",
            printed(&missing)
        );
        Ok(())
    });
}

/// perfrun on kubectl's path for plugins.
pub(crate) struct Plugin<'a> {
    scene: &'a Scene,
    folder: tempfile::TempDir,
    path: String,
}

impl<'a> Plugin<'a> {
    /// Links perfrun into a folder on that path. Without perfrun, the test is skipped.
    pub(crate) fn install(scene: &'a Scene) -> Result<Option<Self>> {
        let Some(perfrun) = find_perfrun("all of it") else {
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(perfrun, folder.path().join("kubectl-perfrun"))?;
        let others = env::var("PATH").context("PATH is text")?;
        let path = format!("{}:{others}", text(folder.path())?);
        Ok(Some(Self { scene, folder, path }))
    }

    fn results(&self) -> String {
        self.folder.path().join("results").display().to_string()
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Result<Output> {
        let mut kubectl = self.scene.cluster.kubectl_plugin();
        kubectl
            .env("PATH", &self.path)
            .arg("perfrun")
            .args(args)
            .args(["--namespace", &self.scene.namespace])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        kubectl.output().await.context("failed to start kubectl")
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is text")
}

pub(crate) fn succeeded(output: Output) -> Result<String> {
    ensure!(output.status.success(), "{}: {}", output.status, printed(&output));
    Ok(String::from_utf8(output.stdout)?)
}
