//! Vale: started once, over a folder of Markdown.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde::Deserialize;

/// What Vale finds in a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Alert {
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// The alerts about each file below `folder`, which has the configuration `vale.ini`.
pub(crate) fn alerts(vale: &Path, folder: &Path) -> Result<BTreeMap<String, Vec<Alert>>> {
    let output = Command::new(vale)
        .current_dir(folder)
        .args(["--config=vale.ini", "--output=JSON", "--no-exit", "pages"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to start {}", vale.display()))?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "vale: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}
