//! Documents that people and GitOps tools apply again and again.

use std::fs;

use anyhow::{Context, Result, ensure};
use perfrun_e2e::{admission, repository};
use serde_json::{Value, json};

#[test]
fn an_example_that_is_applied_again_is_unchanged() {
    admission(async |scene| {
        let examples = suspended_examples()?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("examples.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": examples});
        fs::write(&file, list.to_string())?;
        let file = file.to_str().context("the path is text")?;

        let apply = ["apply", "--filename", file];
        scene.kubectl(&apply).await?;
        let said = scene.kubectl(&apply).await?;
        let unchanged = said.lines().filter(|line| line.ends_with(" unchanged"));
        ensure!(unchanged.count() == examples.len(), "{said}");

        // kubectl fails if another manager owns a field with another value.
        let server_side = [&apply[..], &["--server-side", "--field-manager=gitops"]].concat();
        scene.kubectl(&server_side).await?;
        scene.kubectl(&["delete", "--filename", file]).await?;
        for _ in 0..2 {
            scene.kubectl(&server_side).await?;
        }
        let generations = "--output=jsonpath={.items[*].metadata.generation}";
        let said = scene.kubectl(&["get", "--filename", file, generations]).await?;
        let created = said.split_whitespace().filter(|generation| *generation == "1");
        ensure!(created.count() == examples.len(), "generations are {said}");
        Ok(())
    });
}

/// The documents in examples/, which only wait.
fn suspended_examples() -> Result<Vec<Value>> {
    let mut examples = vec![];
    let folder = repository().join("examples");
    for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let documents: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(&file)?)
            .with_context(|| format!("unable to read {}", file.display()))?;
        examples.extend(documents.into_iter().filter(|document| !document.is_null()));
    }
    for example in &mut examples {
        example["spec"]["suspend"] = json!(true);
    }
    let has_lists = |example: &Value| example.pointer("/spec/networks").is_some();
    ensure!(examples.iter().any(has_lists), "no example has networks");
    Ok(examples)
}
