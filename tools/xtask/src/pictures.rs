//! `cargo xtask pictures`: pictures of pages and dashboards in docs/img, which tests make. This module only
//! starts these tests, and tells them to keep the pictures.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    e2e, install,
    shell::{self, Profile, Workspace},
};

/// The variable that names the folder of pictures.
const FOLDER: &str = "PERFRUN_PICTURES";

/// The tests of perfrun that make pictures.
const TESTS: [&str; 2] = ["pictures::", "every_query_of_the_dashboards_of_runs"];

/// What a test needs that must not be skipped, and the variable that lists it.
const REQUIRED: (&str, &str) = ("PERFRUN_REQUIRE", "browser,links,namespaces,prometheus");

/// The test on a cluster that draws the dashboard of operators.
const ON_CLUSTER: &str = "every_query_of_every_dashboard";

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::BUILD)?;
    install::packages(workspace, install::BROWSER)?;
    install::test(workspace)?;
    workspace.build(Profile::Dev, &["perfrun", "perfrun-node"])?;
    let folder = workspace.root.join("docs/img");
    let mut tests = workspace.cargo(["test", "--workspace", "--test", "e2e", "--"]);
    let (require, needs) = REQUIRED;
    shell::succeed(tests.args(TESTS).env(FOLDER, &folder).env(require, needs))?;
    match e2e::obstacle() {
        None => e2e::run_with(workspace, &[ON_CLUSTER.to_owned()], &[(FOLDER, &*folder)]),
        Some(obstacle) => {
            println!("==> docs/img/dashboards/operator.svg was not made: it {obstacle}");
            Ok(ExitCode::SUCCESS)
        }
    }
}
