//! The build of `cargo xtask test`, with the cache of dependencies.

use std::{fs, time::Duration};

use anyhow::Result;
use serde_json::{Deserializer, Value};

use crate::{
    dependencies::Cache,
    shell::{self, Workspace},
    step::{self, Outcome},
    times::{Item, Times},
};

/// The option with which cargo prints a line of JSON about each unit. Errors and warnings are text.
const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// Builds everything that tests start, above all perfrun-node beside perfrun.
pub(crate) fn check(workspace: &Workspace, cache: Option<&Cache>) -> Result<Outcome> {
    if let Some(cache) = cache {
        cache.restore();
    }
    let mut build = workspace.cargo(["build", "--workspace", "--all-targets", "--timings", MESSAGES]);
    // A build that fails before it compiles anything writes no page.
    let page = workspace.artifacts().join("cargo-timings/cargo-timing.html");
    fs::remove_file(&page).ok();
    let (messages, status) = shell::printed(&mut build)?;
    Times::of_step(workspace)?.add(units(&fs::read_to_string(&page).unwrap_or_default()))?;
    let outcome = step::ended(&build, status, "fix the errors and warnings listed above");
    if let (Some(cache), Outcome::Passed) = (cache, &outcome) {
        cache.keep(messages_of_xtask(workspace).map(|own| messages + &own));
    }
    Ok(outcome)
}

/// Messages about the units of this program as `cargo xtask` selects it: some of its dependencies have fewer
/// features then, and are other units.
fn messages_of_xtask(workspace: &Workspace) -> Result<String> {
    let mut build = workspace.cargo(["build", "--quiet", "--package", env!("CARGO_PKG_NAME"), MESSAGES]);
    let (messages, status) = shell::printed(build.env_remove("RUSTC_WORKSPACE_WRAPPER"))?;
    shell::must_succeed(&build, status)?;
    Ok(messages)
}

/// The units that a build has compiled, from cargo's page about it, which has its data as JSON in a script.
/// No units if that changes.
fn units(page: &str) -> Vec<Item> {
    let data = page.split_once("const UNIT_DATA = ").map_or("", |(_, data)| data);
    let units = Deserializer::from_str(data).into_iter::<Value>().next();
    let units = units.and_then(Result::ok).unwrap_or_default();
    let item = |unit: &Value| {
        let text = |key: &str| unit[key].as_str();
        Some(Item {
            took: Duration::try_from_secs_f64(unit["duration"].as_f64()?).ok()?,
            name: format!("{}{}", text("name")?, text("target")?),
        })
    };
    units.as_array().into_iter().flatten().filter_map(item).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Item, units};

    #[test]
    fn compiled_units_are_found_on_the_page_of_cargo() {
        let page = r#"<script>
const UNIT_DATA = [
  {"i": 0, "name": "libc", "target": " build-script (run)", "start": 0.1, "duration": 1.25},
  {"i": 1, "name": "perfrun-api", "target": "", "start": 0.2, "duration": 30.0}
];
const CONCURRENCY_DATA = [];</script>"#;
        let item = |name: &str, millis| Item {
            took: Duration::from_millis(millis),
            name: name.to_owned(),
        };
        assert_eq!(
            units(page),
            [
                item("libc build-script (run)", 1_250),
                item("perfrun-api", 30_000)
            ]
        );
        assert_eq!(units("<script></script>"), []);
    }
}
