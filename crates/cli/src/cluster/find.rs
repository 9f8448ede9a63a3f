//! One run on a cluster by its name, or the most similar name.

use anyhow::{anyhow, bail};
use kube::{ResourceExt, api::ListParams};
use perfrun_api::{nearest::did_you_mean, spec::PerfRun};

use super::{
    access::{Cluster, MaybeRun},
    error::{Call, Error, RUNS},
};

/// The most names that a message lists.
const LISTED_MAX: usize = 10;

/// The run with this name. If it does not exist, the error lists others.
pub(super) async fn find(cluster: &Cluster, name: &str) -> anyhow::Result<PerfRun> {
    if let Some(run) = get(cluster, name).await? {
        return readable(run);
    }
    let namespace = cluster.namespace();
    let call = Call::all("list", RUNS);
    let runs = cluster.maybe_runs();
    // A user without the permission to list runs gets no names.
    let names = match cluster.call(&call, runs.list(&ListParams::default())).await {
        Ok(runs) => runs.iter().map(ResourceExt::name_any).collect(),
        Err(_) => bail!("perfrun/{name} does not exist in namespace {namespace}"),
    };
    bail!(no_such_run(name, namespace, names))
}

/// The run with this name. `None` if it does not exist.
pub(super) async fn get(cluster: &Cluster, name: &str) -> Result<Option<MaybeRun>, Error> {
    let call = Call::of("get", RUNS, name);
    match cluster.call(&call, cluster.maybe_runs().get(name)).await {
        Ok(run) => Ok(Some(run)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The run, or an error if this program cannot read it.
pub(super) fn readable(run: MaybeRun) -> anyhow::Result<PerfRun> {
    let name = run.name_any();
    run.0.map_err(|invalid| {
        anyhow!(
            "unable to read perfrun/{name}: {invalid}; the cluster has another version of PerfRuns: use the perfrun \
             that belongs to its operator"
        )
    })
}

fn no_such_run(name: &str, namespace: &str, mut names: Vec<String>) -> String {
    let problem = format!("perfrun/{name} does not exist in namespace {namespace}");
    let meant = did_you_mean(name, names.iter().map(String::as_str));
    if !meant.is_empty() {
        return problem + &meant;
    }
    names.sort();
    let others = match names.len() {
        0 => return format!("{problem}, which has no runs: choose another namespace with -n"),
        count if count > LISTED_MAX => format!(" and {} others", count - LISTED_MAX),
        _ => String::new(),
    };
    names.truncate(LISTED_MAX);
    format!("{problem}; it has {}{others}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(names: &[&str]) -> String {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let text = no_such_run("quikstart", "lab", names);
        let problem = "perfrun/quikstart does not exist in namespace lab";
        text.strip_prefix(problem).unwrap().to_owned()
    }

    #[test]
    fn a_similar_name_is_suggested() {
        assert_eq!(advice(&["ping", "quickstart"]), "; did you mean quickstart?");
    }

    #[test]
    fn without_a_similar_name_all_names_are_listed_up_to_a_limit() {
        assert_eq!(
            advice(&[]),
            ", which has no runs: choose another namespace with -n"
        );
        assert_eq!(advice(&["tcp", "ping"]), "; it has ping, tcp");
        let many: Vec<String> = (10..22).map(|number| format!("x{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(advice(&many).ends_with(", x19 and 2 others"));
    }
}
