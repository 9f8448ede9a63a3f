//! Setting links and measuring whether they are as configured.

use std::{net::SocketAddr, time::Duration};

use futures::{StreamExt, future::try_join, stream};
use perfrun_contract::{
    network::NetworkImpairments,
    node::{LinkRequest, ProbeRequest},
    record::{Leg, LinkCheck},
};
use perfrun_link::{
    Impairment,
    probe::{self, Judgement, Measurement, ProbeVerdict, Quantity, QuantityFinding},
};
use tokio::time::{Instant, sleep};

use super::{
    Links,
    agents::Requests,
    node_pairs::{NodePair, rounds},
    not_ready::LinksNotReady,
};

/// Pauses before a link is measured again. The first two are none: a link that is right is judged wrong once
/// in a hundred measurements of each quantity, and three times in a row once in a million. What is wrong
/// stays wrong. The others follow if a machine that is busy for some seconds explains all findings.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::ZERO,
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// The number of pauses that are used once a link of the network stayed wrong: a change of the network waits
/// for a quieter machine once, however many links it has.
const PAUSES_AFTER_FAILURE: usize = 2;
/// How often a change of the network may measure paths again that were slow while they were measured.
const BASE_REPEATS: u32 = 2;
/// Time for echoes, where one round of measurements covers all nodes.
const ECHO_TIME: Duration = Duration::from_secs(1);
/// The shortest time for echoes, where many rounds share [`ECHO_TIME`].
const ECHO_TIME_MIN: Duration = Duration::from_millis(100);
/// Time for echoes over links that are not impaired, which have no loss to find.
const BASE_ECHO_TIME: Duration = Duration::from_millis(200);
/// The number of pairs that are measured at the same time. With more, nodes on one machine would compete for
/// its CPUs, and the probes would measure that.
const CONCURRENT_PAIRS: usize = 4;

impl Links<'_> {
    pub(super) async fn change(
        &mut self,
        impairments: &NetworkImpairments,
        requests: &Requests,
    ) -> Result<LinkCheck, LinksNotReady> {
        self.refresh().await?;
        let pairs = self.node_pairs();
        let mut repeats = BASE_REPEATS;
        let (began, mut check) = loop {
            self.measure_bases(&pairs).await?;
            let began = Instant::now();
            self.set(requests).await?;
            let set = began.elapsed();
            let legs = self.measure_legs(&pairs, impairments).await?;
            if repeats == 0 || !legs.iter().any(is_base_slow) {
                let check = LinkCheck {
                    network: impairments.name.clone(),
                    set_seconds: set.as_secs_f64(),
                    probe_seconds: (began.elapsed() - set).as_secs_f64(),
                    legs,
                };
                break (began, check);
            }
            repeats -= 1;
            for leg in legs.into_iter().filter(is_base_slow) {
                self.bases.remove(&NodePair {
                    client: leg.client,
                    server: leg.server,
                });
            }
        };
        let Some((leg, finding)) = check.outside().next() else {
            self.failed_networks.remove(&impairments.name);
            self.add_available_rates(&mut check.legs, impairments).await;
            check.probe_seconds = began.elapsed().as_secs_f64() - check.set_seconds;
            return Ok(check);
        };
        // The path itself may have changed since: it is measured again with the next try.
        self.bases.clear();
        if check
            .outside()
            .any(|(leg, _)| leg.attempts as usize > 1 + PAUSES_AFTER_FAILURE)
        {
            self.failed_networks.insert(impairments.name.clone());
        }
        let message = format!(
            "network {}, {} to {}: {finding}, in {} measurements: is the machine busy, or the path between the nodes slower \
             than the network?",
            impairments.name, leg.client, leg.server, leg.attempts
        );
        Err(LinksNotReady::ineffective(message, Some(check)))
    }

    /// Measures the link of each pair.
    async fn measure_legs(
        &self,
        pairs: &[NodePair],
        impairments: &NetworkImpairments,
    ) -> Result<Vec<Leg>, LinksNotReady> {
        let rounds = rounds(pairs);
        let echo_time = (ECHO_TIME / rounds.len().max(1) as u32).max(ECHO_TIME_MIN);
        let mut is_patient = !self.failed_networks.contains(&impairments.name);
        let mut legs = vec![];
        for round in rounds {
            let pauses = if is_patient {
                &PAUSES[..]
            } else {
                &PAUSES[..PAUSES_AFTER_FAILURE]
            };
            let measured = stream::iter(
                round
                    .into_iter()
                    .map(|pair| self.measure_leg(pair, impairments, echo_time, pauses)),
            );
            let measured: Vec<_> = measured.buffered(CONCURRENT_PAIRS).collect().await;
            for leg in measured {
                let leg = leg?;
                is_patient &= !leg.findings.iter().any(is_outside);
                legs.push(leg);
            }
        }
        Ok(legs)
    }

    /// What round trips take without any impairment, for pairs of which that is not known.
    async fn measure_bases(&mut self, pairs: &[NodePair]) -> Result<(), LinksNotReady> {
        let unknown = pairs.iter().filter(|pair| !self.bases.contains_key(pair));
        let unknown: Vec<_> = unknown.cloned().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let open = |name: &String| (name.clone(), LinkRequest::default());
        self.set(&self.agents.keys().map(open).collect()).await?;
        let none = Impairment::default();
        let plan = probe::ProbePlan::with_echo_time(&none, &none, BASE_ECHO_TIME);
        for round in rounds(&unknown) {
            let measured = stream::iter(round.into_iter().map(|pair| {
                let (links, plan) = (&*self, plan.clone());
                async move {
                    let measured = links.measure(&pair.client, &pair.server, plan).await;
                    (pair, measured)
                }
            }));
            let measured: Vec<_> = measured.buffered(CONCURRENT_PAIRS).collect().await;
            for (pair, measured) in measured {
                let Some(round_trip) = measured?.round_trip else {
                    let NodePair { client, server } = pair;
                    let message = format!("{client} to {server}: no answer over a link that is not impaired");
                    return Err(LinksNotReady::ineffective(message, None));
                };
                self.bases.insert(pair, Duration::from_nanos(round_trip.p50_ns));
            }
        }
        Ok(())
    }

    /// The impairments of packets from a client to a server, and back.
    pub(super) fn impairments_of_pair<'b>(
        &self,
        client: &str,
        server: &str,
        impairments: &'b NetworkImpairments,
    ) -> Result<(&'b Impairment, &'b Impairment), LinksNotReady> {
        let role = |name| self.agents.get(name).map(|agent| agent.role);
        let between = |from, to| impairments.between(role(from)?, role(to)?);
        between(client, server)
            .zip(between(server, client))
            .ok_or_else(|| no_link(client, server))
    }

    /// Measures a pair until it behaves as configured, or often enough to believe that it does not.
    async fn measure_leg(
        &self,
        pair: NodePair,
        impairments: &NetworkImpairments,
        echo_time: Duration,
        pauses: &[Duration],
    ) -> Result<Leg, LinksNotReady> {
        let (to_server, to_client) = self.impairments_of_pair(&pair.client, &pair.server, impairments)?;
        let base = self.bases.get(&pair).copied().unwrap_or_default();
        let plan = probe::ProbePlan::with_echo_time(to_server, to_client, echo_time);
        let backward_plan = probe::ProbePlan::rate_back(to_server, to_client, echo_time);
        let mut attempts = 0;
        loop {
            attempts += 1;
            // A pair that is measured again may be on a busy machine: then one direction after the other.
            let backward_delay = plan
                .backward_fill_delay(&backward_plan, to_server, base)
                .filter(|_| attempts == 1);
            let (measured, backward) = self
                .measure_both_directions(&pair, &plan, &backward_plan, backward_delay)
                .await
                .map_err(|not_ready| not_ready.over_loss(&impairments.name, [to_server, to_client]))?;
            let rate_to_client = backward.as_ref().and_then(|backward| backward.rate);
            let backward = backward.map(|backward| (backward_plan.clone(), backward));
            let verdict = judge(
                to_server,
                to_client,
                base,
                (plan.clone(), measured.clone()),
                backward,
            )
            .await?;
            let pause = pauses.get(attempts as usize - 1).filter(|pause| {
                !verdict.is_effective()
                    && (pause.is_zero() || verdict.outside().all(QuantityFinding::is_slow))
            });
            let Some(pause) = pause else {
                return Ok(Leg {
                    client: pair.client,
                    server: pair.server,
                    base_round_trip_seconds: base.as_secs_f64(),
                    attempts,
                    measured,
                    rate_to_client,
                    findings: verdict.findings,
                });
            };
            sleep(*pause).await;
        }
    }

    /// Measures the link to the server and, if the plan needs it, the rate in the other direction: after the
    /// given delay, or else when the first measurement has ended.
    async fn measure_both_directions(
        &self,
        NodePair { client, server }: &NodePair,
        plan: &probe::ProbePlan,
        backward_plan: &probe::ProbePlan,
        backward_delay: Option<Duration>,
    ) -> Result<(Measurement, Option<Measurement>), LinksNotReady> {
        let forward = self.measure(client, server, plan.clone());
        let backward = async {
            match backward_plan.fill {
                None => Ok(None),
                Some(_) => self
                    .measure(server, client, backward_plan.clone())
                    .await
                    .map(Some),
            }
        };
        let Some(later) = backward_delay else {
            return Ok((forward.await?, backward.await?));
        };
        let backward = async {
            sleep(later).await;
            backward.await
        };
        try_join(forward, backward).await
    }

    pub(super) async fn measure(
        &self,
        from: &str,
        to: &str,
        plan: probe::ProbePlan,
    ) -> Result<Measurement, LinksNotReady> {
        let (Some(near), Some(far)) = (self.agents.get(from), self.agents.get(to)) else {
            return Err(no_link(from, to));
        };
        let request = ProbeRequest {
            server: SocketAddr::new(far.ip, far.probe_port),
            plan,
        };
        let measured = near.client.probe(&request).await;
        measured.map_err(|error| LinksNotReady::of_call(from, &format!("measure the link to {to}"), &error))
    }
}

fn is_outside(finding: &QuantityFinding) -> bool {
    finding.judgement == Judgement::Outside
}

/// Whether round trips take at least what the network adds, but less than network and path together: the path
/// was slower while it was measured than it is now, as on a machine that was busy.
fn is_base_slow(leg: &Leg) -> bool {
    let base = leg.base_round_trip_seconds * 1e3;
    leg.findings
        .iter()
        .filter(|finding| is_outside(finding))
        .any(|finding| {
            finding.quantity == Quantity::RoundTripMedian
                && finding.measured > 0.0
                && (finding.least - base..finding.least).contains(&finding.measured)
        })
}

fn no_link(from: &str, to: &str) -> LinksNotReady {
    LinksNotReady::ineffective(format!("there is no link from {from} to {to}"), None)
}

/// Judges what was measured, each with its plan, and the rate to the client if that was measured, too.
/// Simulations take about ten milliseconds. A judge that fails has judged nothing, least of all that a link
/// is right.
async fn judge(
    to_server: &Impairment,
    to_client: &Impairment,
    base: Duration,
    (plan, measured): (probe::ProbePlan, Measurement),
    backward: Option<(probe::ProbePlan, Measurement)>,
) -> Result<ProbeVerdict, LinksNotReady> {
    let (to_server, to_client) = (to_server.clone(), to_client.clone());
    let judged = tokio::task::spawn_blocking(move || {
        let mut verdict = probe::judge(&to_server, &to_client, base, &plan, &measured);
        let rate_back =
            backward.and_then(|(plan, measured)| probe::judge_rate_back(&to_client, &plan, &measured));
        verdict.findings.extend(rate_back);
        verdict
    });
    judged.await.map_err(|error| {
        LinksNotReady::ineffective(format!("failed to judge a measured link: {error}"), None)
    })
}
