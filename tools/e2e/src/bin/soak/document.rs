//! Random documents.

use rand::{Rng, RngExt as _, seq::IndexedRandom};

/// A `spec` of a run that takes a minute at most on an idle machine.
pub(crate) fn random(random: &mut impl Rng) -> String {
    let workloads = [
        "{ping: {count: 20}}",
        "{bandwidth: {sizes: [64Ki, 4Mi]}}",
        "{bandwidth: {duration: 2s, directions: [upload]}}",
        "{substreams: {counts: [8]}}",
        "{handshakes: {count: 20}}",
    ];
    let mut one = |of: &[&'static str]| *of.choose(random).unwrap_or(&"");
    let (workload, client, server) = (
        one(&workloads),
        one(&["libp2p", "litep2p"]),
        one(&["libp2p", "litep2p"]),
    );
    let transports = one(&["[tcp]", "[quic-v1]", "[tcp, quic-v1]"]);
    let networks = one(&["[none]", "[none]", "[lat10]"]);
    let renew = one(&["never", "never", "iteration"]);
    let (exclusive, clients) = (random.random_bool(0.5), random.random_range(1..=2));
    let iterations = random.random_range(1..=4);
    format!(
        "workload: {workload}\n\
         matrix: {{clients: [{client}], servers: [{server}], transports: {transports}, networks: {networks}, rawReference: false}}\n\
         iterations: {iterations}\n\
         renew: {renew}\n\
         topology: {{placement: Any, clients: {clients}, exclusive: {exclusive}}}\n\
         timeouts: {{provision: 2m, run: 5m, trial: 30s}}\n"
    )
}

#[cfg(test)]
mod tests {
    use perfrun_api::{document::parse, planning::plan};
    use perfrun_e2e::run::in_yaml;
    use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};

    #[test]
    fn each_has_a_plan() {
        for seed in 0..500 {
            let spec = super::random(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
            let run = parse(&in_yaml("a", &spec))
                .unwrap_or_else(|error| panic!("{spec}{error}"))
                .remove(0);
            let plan = plan(&run.spec).unwrap_or_else(|error| panic!("{spec}{error}"));
            assert!(plan.trials.len() <= 60, "{spec}");
        }
    }
}
