//! Kills and starts parts of the cluster, if the cluster is a lab.

use std::{env, ffi::OsString};

use anyhow::Result;
use perfrun_test_kit::{Need, skip};
use tokio::process::Command;

use crate::program;

/// A lab, whose parts can be killed.
pub struct Lab {
    program: OsString,
    name: OsString,
}

impl Lab {
    /// The lab of the cluster, or why it is unavailable.
    pub fn find() -> Result<Self, String> {
        let variable =
            |name: &str| env::var_os(name).ok_or_else(|| format!("needs a lab: {name} is not set"));
        Ok(Self {
            program: variable("PERFRUN_E2E_LAB_PROGRAM")?,
            name: variable("PERFRUN_E2E_LAB")?,
        })
    }

    /// The lab of the cluster. Without it, the test is skipped.
    pub fn find_or_skip() -> Option<Self> {
        let found = Self::find().map_err(|reason| skip(Need::Lab, "all of it", &reason));
        found.ok()
    }

    /// Kills a part, as a crash would.
    pub async fn stop(&self, part: &str) -> Result<()> {
        self.run("stop", part).await
    }

    /// Starts a part again and waits until it works.
    pub async fn start(&self, part: &str) -> Result<()> {
        self.run("start", part).await
    }

    /// Kills a part, does some work, and starts the part again, even if the work failed.
    pub async fn without<T>(&self, part: &str, work: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        self.stop(part).await?;
        let done = work().await;
        self.start(part).await?;
        done
    }

    async fn run(&self, verb: &str, part: &str) -> Result<()> {
        let mut lab = Command::new(&self.program);
        lab.arg("--name").arg(&self.name).args([verb, part]);
        program::output(&mut lab).await.map(drop)
    }
}
