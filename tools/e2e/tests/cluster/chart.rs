//! The chart with helm: its objects, releases in parallel, and a release from installation to removal.

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
    run::{ENDLESS, TINY, trials_ended},
    seconds, until,
};
use perfrun_test_kit::{Need, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const CHART: &str = "charts/perfrun";
const CRD: &str = "crds/perfruns.perfrun.io.yaml";
const RESTRICTED: &[(&str, &str)] = &[
    ("pod-security.kubernetes.io/enforce", "restricted"),
    ("pod-security.kubernetes.io/warn", "restricted"),
];

#[test]
fn the_api_server_accepts_all_objects_of_the_chart_without_a_warning() {
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
                // The test's pod needs a service account, which a dry run does not create. Another test runs
                // it.
                let mut args = vec!["template", "dry", CHART, "--skip-tests", "--namespace", &own];
                args.extend(["--values", path]);
                // In an existing namespace, and without the kinds of an operator that is not installed.
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
                fs::write(&file, helm.output(&args).await?)?;
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
fn releases_of_different_namespaces_need_no_rights_outside_them() {
    e2e(async |scene| {
        let Some(helms) = helms(scene) else { return Ok(()) };
        let (first, second) = (scene.another(RESTRICTED).await?, scene.another(RESTRICTED).await?);
        // Together with the operator of all namespaces, each run would be run twice.
        let operators = scene.operators();
        operators
            .without_any(async || {
                let ran = run_side_by_side(scene, [&first, &second], &helms).await;
                if ran.is_err() {
                    first.explain().await;
                    second.explain().await;
                }
                let removed = first.remove().await.and(second.remove().await);
                ran.and(removed)
            })
            .await
    });
}

async fn run_side_by_side(scene: &Scene, places: [&Scene; 2], helms: &[Helm; 2]) -> Result<()> {
    // Each is in its own namespace. The first also watches another one.
    let watched = [vec![places[0], scene], vec![places[1]]];
    for ((place, watched), helm) in places.into_iter().zip(&watched).zip(helms) {
        install_for(helm, place, watched).await?;
        for place in watched {
            place.create("own", TINY).await?;
        }
    }
    for ((place, watched), helm) in places.into_iter().zip(&watched).zip(helms) {
        for place in watched {
            let run = place.succeeded("own", seconds(60)).await?;
            place.checked_results(&run).await?;
        }
        leads_itself(place).await?;
        test_upgrade_and_uninstall(helm, place).await?;
    }
    Ok(())
}

/// Installs a release whose operator has rights in some namespaces only, with the images of the existing
/// release.
async fn install_for(helm: &Helm, place: &Scene, watched: &[&Scene]) -> Result<()> {
    let names: Vec<_> = watched.iter().map(|place| place.namespace.as_str()).collect();
    let namespaces = format!("watchNamespaces={{{}}}", names.join(","));
    let tags = values(helm).await?;
    let said = helm
        .output(&[
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
        "{holder} is not an operator of {}",
        place.namespace
    );
    Ok(())
}

/// Checks that Helm refuses other releases for the namespace of one.
async fn refuse_rivals(helm: &Helm, own: &str) -> Result<()> {
    let watched = format!("watchNamespaces={{{own}}}");
    let rival = ["install", "rival", CHART, "--namespace", own, "--dry-run=server"];
    for (values, whose) in [
        // A second release for the same namespace, for all namespaces, and for all of them with the CRD.
        (
            &["--set", "crds.install=false", "--set", &watched][..],
            "perfrun-operator-runs",
        ),
        (&["--set", "crds.install=false"], "perfrun-operator-runs"),
        (&[], "perfruns.perfrun.io"),
    ] {
        let refused = helm.output(&[&rival[..], values].concat()).await.err();
        let refused = format!(
            "{:#}",
            refused.with_context(|| format!("{values:?} is accepted"))?
        );
        ensure!(
            refused.contains(whose) && refused.contains("cannot be imported"),
            "{refused}"
        );
    }
    Ok(())
}

/// Tests, upgrades, rolls back and uninstalls a release, with a conflicting one in between.
async fn test_upgrade_and_uninstall(helm: &Helm, place: &Scene) -> Result<()> {
    let own = place.namespace.as_str();
    let tested = helm
        .output(&["test", "perfrun", "--namespace", own, "--timeout=2m"])
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
        ensure!(!left.contains("test"), "the test left {left}");
    }

    refuse_rivals(helm, own).await?;

    let annotation = "podAnnotations.example\\.com/note=upgraded";
    let annotated = async || {
        let deployment = place
            .kubectl(&["get", "deployment", "perfrun-operator", "--output=yaml"])
            .await?;
        anyhow::Ok(deployment.contains("example.com/note: upgraded"))
    };
    helm.output(&[
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
    helm.output(&[
        "rollback",
        "perfrun",
        "--namespace",
        own,
        "--wait",
        "--timeout=1m",
    ])
    .await?;
    ensure!(!annotated().await?, "it was not rolled back");
    helm.output(&[
        "uninstall",
        "perfrun",
        "--namespace",
        own,
        "--wait",
        "--timeout=1m",
    ])
    .await?;
    // The garbage collector takes some time.
    until("nothing of the release is left", seconds(30), async || {
        let all = "all,roles,rolebindings,serviceaccounts,networkpolicies,poddisruptionbudgets";
        let ours = "--selector=app.kubernetes.io/instance=perfrun";
        let left = place.kubectl(&["get", all, ours, "--output=name"]).await?;
        ensure!(left.trim().is_empty(), "objects remain: {left}");
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
        // The release is restored for other tests, even after a failure.
        let restored = helm.output(&installing(CHART, &values)).await;
        ran?;
        restored.map(drop)
    });
}

async fn through_its_life(scene: &Scene, helm: &Helm, values: &Values) -> Result<()> {
    let older = Older::pack(helm).await?;
    ensure!(takes_links(scene).await?, "the CRD is not the current one");
    helm.output(&installing(&older.archive, values)).await?;
    ensure!(!takes_links(scene).await?, "the CRD is not the older one");

    scene.create("outlives", ENDLESS).await?;
    scene.measuring("outlives", 1, seconds(60)).await?;
    // The change replaces the operators while one of them conducts a run.
    let replacing = ["--set", "podAnnotations.example\\.com/note=upgraded"];
    helm.output(&[&installing(CHART, values)[..], &replacing].concat())
        .await?;
    ensure!(takes_links(scene).await?, "the CRD was not upgraded");
    helm.output(&[
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
    helm.output(&[
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

    helm.output(&installing(CHART, values)).await?;
    ensure!(
        takes_links(scene).await?,
        "the CRD was not installed over the one that was kept"
    );
    scene.measuring("outlives", left + 2, seconds(90)).await?;
    scene.change("outlives", json!({"cancel": true})).await?;
    let run = scene.ended("outlives", seconds(30)).await?;
    scene.checked_results(&run).await.map(drop)
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

/// Arguments that install or upgrade the release to a chart.
pub(crate) fn installing<'a>(chart: &'a str, values: &'a Values) -> Vec<&'a str> {
    let mut args = vec!["upgrade", "--install", "perfrun", chart];
    args.extend(["--namespace", NAMESPACE, "--values", values.path()]);
    args.extend(["--wait", "--timeout=2m"]);
    args
}

/// Whether the CRD has `spec.template.link`, which the older one lacks.
async fn takes_links(scene: &Scene) -> Result<bool> {
    let crds: Api<CustomResourceDefinition> = Api::all(scene.client());
    let crd = crds.get("perfruns.perfrun.io").await.context("the CRD is gone")?;
    let crd = serde_json::to_value(crd)?;
    Ok(crd.pointer(&format!("{VERSION}/{LINK}")).is_some())
}

const VERSION: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/template/properties";
const LINK: &str = "link";

/// A chart like that of an older perfrun, with another version and a CRD that lacks a field. None has been
/// published yet.
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
        helm.output(&["package", chart, "--version=0.0.9", "--destination", to])
            .await?;
        Ok(Self {
            archive: format!("{to}/perfrun-0.0.9.tgz"),
            _folder: folder,
        })
    }
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
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

/// A file with the values of the installed release.
pub(crate) struct Values(tempfile::NamedTempFile);

impl Values {
    fn path(&self) -> &str {
        self.0
            .path()
            .to_str()
            .expect("temporary files are named in ASCII")
    }
}

pub(crate) async fn values(helm: &Helm) -> Result<Values> {
    let values = helm
        .output(&[
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

/// Both versions of helm. Without them, the test is skipped.
pub(crate) fn helms(scene: &Scene) -> Option<[Helm; 2]> {
    Helm::find(&scene.cluster)
        .map_err(|reason| skip(Need::Cluster, "all of it", &reason))
        .ok()
}
