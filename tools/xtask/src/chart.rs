//! The Helm chart: its generated parts, and its checks that need no cluster.

mod readme;
mod refused;

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

use crate::{
    files::{copy, create_folder, empty, entries, read},
    pinned,
    shell::{self, Workspace},
    step::Outcome,
    times::Times,
};

/// The folder of the chart, relative to the root of the repository.
pub(crate) const FOLDER: &str = "charts/perfrun";

/// Folders and files that the chart copies. helm packs nothing from outside of a chart and warns about links
/// that lead there.
const COPIES: &[(&str, &str, &str)] = &[
    ("crds", ".yaml", "crds"),
    ("dashboards", ".json", "dashboards"),
    ("dashboards", "alerts.yaml", "rules"),
];

/// The chart is passed on without the repository, and both licences require a copy of their text then.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Kubernetes versions: the oldest that the chart supports, the lab's, and the newest that has schemas.
const KUBERNETES: &[&str] = &["1.34.0", "1.36.0", "1.37.0"];

/// Kinds of the Prometheus Operator. Kubernetes has no schema for them.
const FOREIGN: &str = "apiVersion: monitoring.coreos.com/";

/// Writes the generated files of the chart below `output`: the copies and the README. Copies come from
/// `output` if the generator has just written their originals there.
pub(crate) fn generate(root: &Path, output: &Path) -> Result<()> {
    let chart = output.join(FOLDER);
    for (from, ending, to) in COPIES {
        let fresh = [output.join(from), root.join(from)];
        let Some(from) = fresh.iter().find(|folder| folder.is_dir()) else {
            continue;
        };
        for file in files(from, ending)? {
            let name = file.file_name().context("a file has a name")?;
            copy(&file, &chart.join("files").join(to).join(name))?;
        }
    }
    for licence in LICENCES {
        copy(&root.join(licence), &chart.join(licence))?;
    }
    let source = |name: &str| read(&root.join(FOLDER).join(name));
    let readme = readme::readme(&source("values.yaml")?, &source("values.schema.json")?)?;
    create_folder(&chart)?;
    fs::write(chart.join("README.md"), readme).context("failed to write the chart's README.md")
}

/// The command `cargo xtask charts`.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    check(workspace)?.into_exit_code()
}

/// The step of `cargo xtask test`.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let tools = Tools {
        workspace,
        helms: pinned::helm(workspace)?,
    };
    let variants = files(&workspace.root.join(FOLDER).join("ci"), ".yaml")?;
    let times = Times::of_step(workspace)?;
    let (manifests, mut problems) = times.timed("variants", || tools.render(&variants))?;
    problems.extend(times.timed("helm lint", || tools.lint())?);
    problems.extend(times.timed("kubernetes-validate", || tools.validate(&manifests))?);
    problems.extend(times.timed("mistakes", || tools.mistakes())?);
    problems.extend(times.timed("registry", || tools.registry())?);
    if !problems.is_empty() {
        return Ok(Outcome::Failed(problems.join("\n")));
    }
    println!(
        "{} variants with helm 3 and 4, against Kubernetes {}; {} mistakes are refused",
        variants.len(),
        KUBERNETES.join(", "),
        refused::CASES.len()
    );
    Ok(Outcome::Passed)
}

/// Returns what a program printed to standard output, or its error message.
type HelmOutput = std::result::Result<String, String>;

struct Tools<'a> {
    workspace: &'a Workspace,
    helms: [PathBuf; 2],
}

impl Tools<'_> {
    fn lint(&self) -> Result<Vec<String>> {
        let mut problems = vec![];
        for helm in &self.helms {
            let mut lint = self.workspace.command(helm);
            problems.extend(output(lint.args(["lint", "--strict", "--quiet", FOLDER]))?.err());
        }
        Ok(problems)
    }

    /// Writes the manifests of each variant as files, and returns the problems that it finds in them.
    fn render(&self, variants: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<String>)> {
        let folder = self.workspace.scratch()?.join("chart");
        empty(&folder)?;
        let (mut manifests, mut problems) = (vec![], vec![]);
        for variant in variants {
            let name = variant.file_name().context("a file has a name")?;
            let args = [OsStr::new("--values"), variant.as_os_str()];
            let [new, old] = self.helms.each_ref().map(|helm| self.template(helm, &args));
            let (new, old) = match (new?, old?) {
                (Ok(new), Ok(old)) => (new, old),
                (Err(error), _) | (_, Err(error)) => {
                    problems.push(format!("ci/{}: {error}", name.display()));
                    continue;
                }
            };
            // One of the helms puts an empty line after each document.
            let lines = |text: &'_ str| text.replace("\n\n", "\n");
            if lines(&new) != lines(&old) {
                let name = name.display();
                problems.push(format!("helm 3 and 4 make different things of ci/{name}"));
            }
            let known = new.split("\n---\n").filter(|text| !text.contains(FOREIGN));
            let file = folder.join(name);
            fs::write(&file, known.collect::<Vec<_>>().join("\n---\n"))
                .with_context(|| format!("failed to write {}", file.display()))?;
            manifests.push(file);
        }
        Ok((manifests, problems))
    }

    fn validate(&self, manifests: &[PathBuf]) -> Result<Vec<String>> {
        let mut problems = vec![];
        for version in KUBERNETES {
            let mut validate = pinned::kubernetes_validate(self.workspace)?;
            validate.args(["--strict", "--quiet", "--kubernetes-version", version]);
            // kubernetes-validate only warns about kinds for which it has no schema.
            let (Ok(text) | Err(text)) = output(validate.args(manifests))?;
            problems.extend((!text.is_empty()).then(|| format!("Kubernetes {version}: {text}")));
        }
        Ok(problems)
    }

    fn mistakes(&self) -> Result<Vec<String>> {
        let mut problems = vec![];
        for case in refused::CASES {
            for helm in &self.helms {
                problems.extend(case.problem(self.template(helm, &case.values())?));
            }
        }
        Ok(problems)
    }

    /// Whether one value changes the registry of every image.
    fn registry(&self) -> Result<Vec<String>> {
        const VALUES: &str =
            "global.imageRegistry=mirror.example/a,nodeImages.go.repository=localhost:5000/b/node-go";
        let mut problems = vec![];
        for helm in &self.helms {
            let text = match self.template(helm, &["--set", VALUES])? {
                Ok(text) => text,
                Err(error) => {
                    problems.push(error);
                    continue;
                }
            };
            let images = ["a/operator:", "a/node:", "a/b/node-go:"];
            let is_missing = |image: &&str| !text.contains(&format!(" mirror.example/{image}"));
            let missing = images.into_iter().filter(is_missing);
            problems.extend(missing.map(|image| format!("global.imageRegistry misses {image}")));
            if text.contains("perfrun.invalid/") {
                problems.push("global.imageRegistry leaves perfrun.invalid/".to_owned());
            }
        }
        Ok(problems)
    }

    fn template(&self, helm: &Path, args: &[impl AsRef<OsStr>]) -> Result<HelmOutput> {
        let mut template = self.workspace.command(helm);
        template.args(["template", "perfrun", FOLDER, "--namespace", "perfrun-system"]);
        // By default each helm assumes the version that it was built for.
        template.args(["--kube-version", KUBERNETES[0]]);
        output(template.args(args))
    }
}

fn output(command: &mut Command) -> Result<HelmOutput> {
    let output = shell::printed_with_errors(command)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (printed, complained) = (text(&output.stdout), text(&output.stderr));
    Ok(match output.status.success() {
        true => Ok(printed),
        false => Err(format!("`{}`: {complained}{printed}", shell::line(command))),
    })
}

/// Files in a folder with this ending, sorted.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut files = entries(folder)?;
    files.retain(|path| path.is_file() && path.to_string_lossy().ends_with(ending));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_chart_and_the_citation_are_of_this_version() {
        let chart = include_str!("../../../charts/perfrun/Chart.yaml");
        let citation = include_str!("../../../CITATION.cff");
        for (file, key) in [(chart, "version"), (chart, "appVersion"), (citation, "version")] {
            let line = format!("\n{key}: {}\n", env!("CARGO_PKG_VERSION"));
            assert!(file.contains(&line), "{line}");
        }
    }
}
