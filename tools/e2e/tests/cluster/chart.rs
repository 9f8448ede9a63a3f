//! The chart, with helm: what it makes, releases beside each other, and a release from its installation to its end.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt};
use perfrun_e2e::{
    Scene, admission, e2e,
    helm::Helm,
    operators::NAMESPACE,
    repository,
    results::check_every_trial_once,
    run::{ENDLESS, TINY, trials_ended},
    seconds, until,
};
use perfrun_test_kit::{Need, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

const CHART: &str = "charts/perfrun";
const CRD: &str = "crds/perfruns.perfrun.io.yaml";
const RESTRICTED: &[(&str, &str)] = &[
    ("pod-security.kubernetes.io/enforce", "restricted"),
    ("pod-security.kubernetes.io/warn", "restricted"),
];

#[test]
fn the_api_server_takes_all_that_the_chart_can_make_without_a_warning() {
    admission(async |scene| {
        let Some([helm, _]) = helms(scene) else {
            return Ok(());
        };
        let place = scene.another(RESTRICTED).await?;
        let own = place.namespace.clone();
        let folder = TempDir::new()?;
        let mut taken = 0;
        let ran = async {
            for variant in fs::read_dir(repository().join(CHART).join("ci"))? {
                let variant = variant?.path();
                let path = variant.to_str().context("the path is text")?;
                // The test's pod would ask for a service account that a dry run does not make; it is run elsewhere.
                let mut args = vec!["template", "dry", CHART, "--skip-tests", "--namespace", &own];
                args.extend(["--values", path]);
                // In a namespace that is there, and without the kinds of an operator that is not.
                let mut values = vec![
                    "metrics.serviceMonitor=false,metrics.podMonitor=false,metrics.prometheusRule=false"
                        .to_owned(),
                    format!("grafana.namespace={own}"),
                ];
                if fs::read_to_string(&variant)?.contains("watchNamespaces") {
                    values.push(format!("watchNamespaces={{{own}}}"));
                }
                args.extend(values.iter().flat_map(|value| ["--set", value.as_str()]));
                let file = folder.path().join("manifests.yaml");
                fs::write(&file, helm.said(&args).await?)?;
                let said = place
                    .kubectl(&[
                        "apply",
                        "--server-side",
                        "--force-conflicts",
                        "--dry-run=server",
                        "--warnings-as-errors",
                        "--filename",
                        file.to_str().context("the path is text")?,
                    ])
                    .await;
                taken += said.with_context(|| path.to_owned())?.lines().count();
            }
            anyhow::Ok(())
        }
        .await;
        place.remove().await?;
        ran?;
        eprintln!("{taken} objects were taken");
        ensure!(taken > 20, "only {taken} objects");
        Ok(())
    });
}

#[test]
fn releases_of_different_namespaces_need_no_right_beyond_them() {
    e2e(async |scene| {
        let Some(helms) = helms(scene) else { return Ok(()) };
        let (first, second) = (scene.another(RESTRICTED).await?, scene.another(RESTRICTED).await?);
        // They and the one of all namespaces would run each run twice.
        let replicas = scene.operators().deployment().await?.spec.replicas;
        scene.operators().scale(0).await?;
        let ran = async {
            // Each is in a namespace of its own. The first has another one besides.
            let watched = [vec![&first, scene], vec![&second]];
            for ((place, watched), helm) in [&first, &second].into_iter().zip(&watched).zip(&helms) {
                install_for(helm, place, watched).await?;
                for place in watched {
                    place.create("own", TINY).await?;
                }
            }
            for ((place, watched), helm) in [&first, &second].into_iter().zip(&watched).zip(&helms) {
                for place in watched {
                    let run = place.succeeded("own", seconds(60)).await?;
                    check_every_trial_once(&run, &place.results(&run).await?)?;
                }
                leads_itself(place).await?;
                go_on(helm, place).await?;
            }
            Ok(())
        }
        .await;
        if ran.is_err() {
            first.explain().await;
            second.explain().await;
        }
        let removed = first.remove().await.and(second.remove().await);
        scene.operators().scale(replicas.unwrap_or(2)).await?;
        ran.and(removed)
    });
}

/// Installs a release whose operator has rights in some namespaces only, with the images of the one that is there.
async fn install_for(helm: &Helm, place: &Scene, watched: &[&Scene]) -> Result<()> {
    let names: Vec<_> = watched.iter().map(|place| place.namespace.as_str()).collect();
    let namespaces = format!("watchNamespaces={{{}}}", names.join(","));
    let tags = values(helm).await?;
    let said = helm
        .said(&[
            "install",
            "perfrun",
            CHART,
            "--namespace",
            &place.namespace,
            "--values",
            tags.path(),
            "--set",
            &namespaces,
            "--set",
            "replicas=1,crds.install=false,grafana.dashboards=false",
            "--wait",
            "--timeout=1m",
        ])
        .await?;
    ensure!(said.contains("helm test perfrun"), "the notes are {said}");
    Ok(())
}

async fn leads_itself(place: &Scene) -> Result<()> {
    let lease = place.api::<Lease>().get("perfrun-operator").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    let holder = holder.unwrap_or_default();
    let pods = place.api::<Pod>().list(&Default::default()).await?;
    ensure!(
        pods.iter().any(|pod| holder.starts_with(&pod.name_any())),
        "{holder} is no operator of {}",
        place.namespace
    );
    Ok(())
}

/// The test, an upgrade, the way back, a rival, and the end of a release.
async fn go_on(helm: &Helm, place: &Scene) -> Result<()> {
    let own = place.namespace.as_str();
    let tested = helm
        .said(&["test", "perfrun", "--namespace", own, "--timeout=2m"])
        .await?;
    let succeeded = tested.lines().filter(|line| line.ends_with(" Succeeded")).count();
    ensure!(succeeded == 4, "the test and its rights: {tested}");
    for kinds in [
        "perfruns,roles,rolebindings,serviceaccounts",
        "pods --selector=app.kubernetes.io/name=perfrun-test",
    ] {
        let args: Vec<_> = ["get", "--output=name"]
            .into_iter()
            .chain(kinds.split(' '))
            .collect();
        let left = place.kubectl(&args).await?;
        ensure!(!left.contains("test"), "the test has left {left}");
    }

    let watched = format!("watchNamespaces={{{own}}}");
    let rival = ["install", "rival", CHART, "--namespace", own, "--dry-run=server"];
    for (values, whose) in [
        // Another one for a namespace that has one, for all namespaces, and for all with the CRD.
        (
            &["--set", "crds.install=false", "--set", &watched][..],
            "perfrun-operator-runs",
        ),
        (&["--set", "crds.install=false"], "perfrun-operator-runs"),
        (&[], "perfruns.perfrun.io"),
    ] {
        let refused = helm.said(&[&rival[..], values].concat()).await.err();
        let refused = format!(
            "{:#}",
            refused.with_context(|| format!("{values:?} is accepted"))?
        );
        ensure!(
            refused.contains(whose) && refused.contains("cannot be imported"),
            "{refused}"
        );
    }

    let annotation = "podAnnotations.example\\.com/note=upgraded";
    let annotated = async || {
        let deployment = place
            .kubectl(&["get", "deployment", "perfrun-operator", "--output=yaml"])
            .await?;
        anyhow::Ok(deployment.contains("example.com/note: upgraded"))
    };
    helm.said(&[
        "upgrade",
        "perfrun",
        CHART,
        "--namespace",
        own,
        "--reuse-values",
        "--set",
        annotation,
        "--wait",
        "--timeout=1m",
    ])
    .await?;
    ensure!(annotated().await?, "it was not upgraded");
    helm.said(&[
        "rollback",
        "perfrun",
        "--namespace",
        own,
        "--wait",
        "--timeout=1m",
    ])
    .await?;
    ensure!(!annotated().await?, "it was not rolled back");
    helm.said(&[
        "uninstall",
        "perfrun",
        "--namespace",
        own,
        "--wait",
        "--timeout=1m",
    ])
    .await?;
    // The garbage collector is behind.
    until("nothing of the release is left", seconds(30), async || {
        let all = "all,roles,rolebindings,serviceaccounts,networkpolicies,poddisruptionbudgets";
        let ours = "--selector=app.kubernetes.io/instance=perfrun";
        let left = place.kubectl(&["get", all, ours, "--output=name"]).await?;
        ensure!(left.trim().is_empty(), "it has left {left}");
        Ok(Some(()))
    })
    .await
}

#[test]
fn runs_and_the_crd_outlive_an_upgrade_a_rollback_and_the_end_of_the_release() {
    e2e(async |scene| {
        let Some([helm, _]) = helms(scene) else {
            return Ok(());
        };
        let values = values(&helm).await?;
        let ran = through_its_life(scene, &helm, &values).await;
        // However far that came, the others find what they had.
        let restored = helm.said(&installing(CHART, &values)).await;
        ran?;
        restored.map(drop)
    });
}

async fn through_its_life(scene: &Scene, helm: &Helm, values: &Values) -> Result<()> {
    let older = Older::pack(helm).await?;
    ensure!(takes_links(scene).await?, "the CRD is not the current one");
    helm.said(&installing(&older.archive, values)).await?;
    ensure!(!takes_links(scene).await?, "the CRD is not the older one");

    scene.create("outlives", ENDLESS).await?;
    scene.measuring("outlives", 1, seconds(60)).await?;
    // With something that replaces the operators, while one of them measures.
    let replacing = ["--set", "podAnnotations.example\\.com/note=upgraded"];
    helm.said(&[&installing(CHART, values)[..], &replacing].concat())
        .await?;
    ensure!(takes_links(scene).await?, "the CRD was not upgraded");
    helm.said(&[
        "rollback",
        "perfrun",
        "--namespace",
        NAMESPACE,
        "--wait",
        "--timeout=2m",
    ])
    .await?;
    ensure!(!takes_links(scene).await?, "the CRD was not rolled back");

    let before = scene.pods("outlives").await?;
    helm.said(&[
        "uninstall",
        "perfrun",
        "--namespace",
        NAMESPACE,
        "--wait",
        "--timeout=2m",
    ])
    .await?;
    let left = trials_ended(&scene.run("outlives").await?);
    let after = scene.pods("outlives").await?;
    ensure!(
        before.len() == 2 && names(&before) == names(&after),
        "the run's pods are not the same"
    );

    helm.said(&installing(CHART, values)).await?;
    ensure!(
        takes_links(scene).await?,
        "the CRD was not installed over the one that was kept"
    );
    scene.measuring("outlives", left + 2, seconds(90)).await?;
    scene.change("outlives", json!({"cancel": true})).await?;
    let run = scene.ended("outlives", seconds(30)).await?;
    check_every_trial_once(&run, &scene.results(&run).await?)
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

/// Arguments that make the release be of a chart, whatever it was before.
fn installing<'a>(chart: &'a str, values: &'a Values) -> Vec<&'a str> {
    let mut args = vec!["upgrade", "--install", "perfrun", chart];
    args.extend(["--namespace", NAMESPACE, "--values", values.path()]);
    args.extend(["--wait", "--timeout=2m"]);
    args
}

/// Whether the CRD has `spec.template.link`, which the older one has not.
async fn takes_links(scene: &Scene) -> Result<bool> {
    let crds: Api<CustomResourceDefinition> = Api::all(scene.client());
    let crd = crds.get("perfruns.perfrun.io").await.context("the CRD is gone")?;
    let crd = serde_json::to_value(crd)?;
    Ok(crd.pointer(&format!("{VERSION}/{LINK}")).is_some())
}

const VERSION: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/template/properties";
const LINK: &str = "link";

/// A chart as an older perfrun would have had it: of another version, with a CRD that lacks a field. None was published yet.
struct Older {
    archive: String,
    _folder: TempDir,
}

impl Older {
    async fn pack(helm: &Helm) -> Result<Self> {
        let folder = TempDir::new()?;
        let chart = folder.path().join("perfrun");
        copy(&repository().join(CHART), &chart)?;
        let file = chart.join("files").join(CRD);
        let mut crd: Value = serde_saphyr::from_str(&fs::read_to_string(&file)?)?;
        let fields = crd.pointer_mut(VERSION).and_then(Value::as_object_mut);
        let removed = fields.and_then(|fields| fields.remove(LINK));
        removed.context("the CRD has no such field")?;
        fs::write(&file, crd.to_string())?;
        let to = folder.path().to_str().context("the path is text")?;
        let chart = chart.to_str().context("the path is text")?;
        helm.said(&["package", chart, "--version=0.0.9", "--destination", to])
            .await?;
        Ok(Self {
            archive: format!("{to}/perfrun-0.0.9.tgz"),
            _folder: folder,
        })
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = (entry?.path(), to);
        let to = to.join(entry.file_name().context("a file has a name")?);
        if entry.is_dir() {
            copy(&entry, &to)?;
        } else {
            fs::copy(&entry, &to)?;
        }
    }
    Ok(())
}

/// The values that the release of the cluster was installed with, as a file.
struct Values(tempfile::NamedTempFile);

impl Values {
    fn path(&self) -> &str {
        self.0
            .path()
            .to_str()
            .expect("temporary files are named in ASCII")
    }
}

async fn values(helm: &Helm) -> Result<Values> {
    let values = helm
        .said(&[
            "get",
            "values",
            "perfrun",
            "--namespace",
            NAMESPACE,
            "--output=json",
        ])
        .await?;
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), values)?;
    Ok(Values(file))
}

/// Both helms, or a word of why the test is skipped.
fn helms(scene: &Scene) -> Option<[Helm; 2]> {
    Helm::find(&scene.cluster)
        .map_err(|reason| skip(Need::Cluster, "all of it", &reason))
        .ok()
}
