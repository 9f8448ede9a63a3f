//! The API server refuses the documents that `perfrun validate` refuses.

use anyhow::{Context, Result, bail, ensure};
use perfrun_e2e::{Scene, admission, run::in_yaml};
use serde::Deserialize;
use serde_json::Value;

/// Documents with the messages of `perfrun validate`, from its own tests.
const CASES: &str = include_str!("../../../../crates/api/tests/api/refused.yaml");
/// The schema of a CRD cannot forbid a character of every string.
const ACCEPTED: &str = "must not have the character NUL";

#[derive(Deserialize)]
struct Case {
    name: String,
    spec: Option<String>,
    refused: String,
}

#[test]
fn the_api_server_refuses_the_same_documents_as_validate_with_the_same_messages() {
    admission(async |scene| {
        let cases: Vec<Case> = serde_saphyr::from_str(CASES)?;
        let (mut same, mut wrong) = (0, vec![]);
        for case in &cases {
            // Cases with a whole document are about YAML, kind and metadata, which kubectl checks.
            let Some(spec) = &case.spec else { continue };
            let said = match dry_run(scene, spec).await {
                Ok(None) if case.refused.contains(ACCEPTED) => continue,
                Ok(None) => {
                    wrong.push(format!("{} is accepted", case.name));
                    continue;
                }
                Ok(Some(said)) => said,
                Err(error) => bail!("{}: {error:#}", case.name),
            };
            if sentences(&case.refused).all(|sentence| said.contains(sentence)) {
                same += 1;
            } else if !is_structural(&case.refused) {
                wrong.push(format!(
                    "{}: expected {} but it said {said}",
                    case.name, case.refused
                ));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        ensure!(
            same >= 50,
            "only {same} documents are refused with the same messages"
        );
        eprintln!("{same} documents are refused with the same messages");
        Ok(())
    });
}

#[test]
fn kubectl_refuses_a_misspelt_field() {
    admission(async |scene| {
        let file = std::env::temp_dir().join(format!("perfrun-e2e-{}.yaml", rand::random::<u64>()));
        let text = "apiVersion: perfrun.io/v1alpha1\nkind: PerfRun\nmetadata: {name: bad}\n\
                    spec: {workload: {ping: {}}, iteratons: 3}\n";
        std::fs::write(&file, text)?;
        let path = file.to_str().context("the path is text")?;
        let refused = scene.kubectl(&["apply", "--filename", path]).await;
        std::fs::remove_file(&file)?;
        let refused = format!("{:#}", refused.err().context("it was accepted")?);
        ensure!(refused.contains("unknown field \"spec.iteratons\""), "{refused}");
        Ok(())
    });
}

/// The message of the API server for a document with this spec; `None` if it accepts the document.
async fn dry_run(scene: &Scene, spec: &str) -> Result<Option<String>> {
    let document: Value = serde_saphyr::from_str(&in_yaml("bad", spec)).context("unable to read the case")?;
    let uri = format!(
        "/apis/perfrun.io/v1alpha1/namespaces/{}/perfruns?dryRun=All&fieldValidation=Strict",
        scene.namespace
    );
    let request = http::Request::post(uri)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&document)?)?;
    match scene.client().request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

/// The message of each problem, without its path and without the value, which the API server names in words
/// of its own.
fn sentences(refused: &str) -> impl Iterator<Item = &str> {
    let faults = refused.lines().filter_map(|line| line.strip_prefix("  - "));
    let messages = faults.map(|fault| fault.split_once(": ").map_or(fault, |(_, message)| message));
    messages.map(|message| {
        let mut values = VALUES.iter().filter_map(|words| message.split_once(words));
        values.next().map_or(message, |(sentence, _)| sentence)
    })
}

/// What begins the part of a message that says which value is wrong.
const VALUES: [&str; 2] = ["; it is ", "; ping has no value"];

/// Whether a problem concerns the structure, for which Kubernetes has its own messages.
fn is_structural(refused: &str) -> bool {
    [
        "unknown field",
        "is missing",
        "is out of range",
        ", not ",
        "it is the number",
        "is read as",
        "must have at most",
        "must have at least",
    ]
    .iter()
    .any(|words| refused.contains(words))
}
