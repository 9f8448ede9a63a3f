//! One run of a cluster, or which one was meant.

use anyhow::{anyhow, bail};
use kube::{ResourceExt, api::ListParams};
use perfrun_api::spec::PerfRun;

use super::{
    access::{Cluster, MaybeRun},
    error::{Act, Error, RUNS},
};

/// How alike names must be for one to be meant by the other, from 0 to 1.
const ALIKE: f64 = 0.8;

/// Most names that a message lists.
const LISTED: usize = 10;

/// The run of that name; if there is none, the error says which there are.
pub async fn find(cluster: &Cluster, name: &str) -> anyhow::Result<PerfRun> {
    if let Some(run) = look(cluster, name).await? {
        return readable(run);
    }
    let namespace = cluster.namespace();
    let act = Act {
        verb: "list",
        resource: RUNS,
        name: None,
    };
    let runs = cluster.maybe_runs();
    // Who may not list them is not told them.
    let known = match cluster.call(&act, runs.list(&ListParams::default())).await {
        Ok(runs) => runs.iter().map(ResourceExt::name_any).collect(),
        Err(_) => bail!("there is no perfrun/{name} in namespace {namespace}"),
    };
    bail!(unknown(name, namespace, known))
}

/// The run of that name, if there is one.
pub async fn look(cluster: &Cluster, name: &str) -> Result<Option<MaybeRun>, Error> {
    let act = Act {
        verb: "get",
        resource: RUNS,
        name: Some(name),
    };
    match cluster.call(&act, cluster.maybe_runs().get(name)).await {
        Ok(run) => Ok(Some(run)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A run that this program understands.
pub fn readable(run: MaybeRun) -> anyhow::Result<PerfRun> {
    let name = run.name_any();
    run.0.map_err(|invalid| {
        anyhow!(
            "unable to read perfrun/{name}: {invalid}; the cluster has another version of PerfRuns: use the perfrun \
             that belongs to its operator"
        )
    })
}

fn unknown(name: &str, namespace: &str, mut known: Vec<String>) -> String {
    let nothing = format!("there is no perfrun/{name} in namespace {namespace}");
    let nearest = known
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some((_, nearest)) = nearest {
        return format!("{nothing}; did you mean {nearest}?");
    }
    known.sort();
    let others = match known.len() {
        0 => return format!("{nothing}, nor any other: name another namespace with -n"),
        count if count > LISTED => format!(" and {} others", count - LISTED),
        _ => String::new(),
    };
    known.truncate(LISTED);
    format!("{nothing}; it has {}{others}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(known: &[&str]) -> String {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        let text = unknown("quikstart", "lab", known);
        let nothing = "there is no perfrun/quikstart in namespace lab";
        text.strip_prefix(nothing).unwrap().to_owned()
    }

    #[test]
    fn a_misspelt_name_is_told_the_right_one() {
        assert_eq!(told(&["ping", "quickstart"]), "; did you mean quickstart?");
    }

    #[test]
    fn otherwise_all_names_are_told_unless_there_are_too_many() {
        assert_eq!(told(&[]), ", nor any other: name another namespace with -n");
        assert_eq!(told(&["tcp", "ping"]), "; it has ping, tcp");
        let many: Vec<String> = (10..22).map(|number| format!("x{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(told(&many).ends_with(", x19 and 2 others"));
    }
}
