//! Links between trials: what agents can do, setting them, measuring them, and what became of packets in a trial.
//!
//! A network change is: every agent sets its links, then pairs of agents measure the links between them, so that each
//! node is measured at least once. Nothing is measured while a trial goes on.

mod available;
mod evidence;
mod legs;
mod unready;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{
    StreamExt,
    future::{join_all, try_join},
    stream,
};
use perfrun_api::{
    network::Conditions,
    node::{LinkRequest, LinkStatus, ProbeRequest},
    plan::{Plan, Role, Trial},
    results::{Leg, LinkCheck, TrialFailure, TrialRecord},
};
use perfrun_link::{
    Impairment, Link, Prefix, Route,
    probe::{self, Measurement, Verdict},
};
use tokio::time::{Instant, sleep};

pub(crate) use self::unready::{NotMet, Unready};
use self::{
    evidence::{fail, note},
    legs::{Pair, pairs, rounds},
    unready::{all, unsupported},
};
use crate::{
    client::AgentClient,
    progress::{Event, Progress},
    trial::Node,
};

/// A link that is right is judged wrong once in a hundred measurements of each quantity; three times in a row, in a
/// million. What is wrong stays wrong.
const ATTEMPTS: u32 = 3;
/// Time for echoes, where one round of measurements covers all nodes.
const ECHO_TIME: Duration = Duration::from_secs(1);
/// The least, where many rounds are needed.
const ECHO_TIME_MIN: Duration = Duration::from_millis(100);
/// Time for echoes over links that are not impaired, which have no loss to find.
const BASE_ECHO_TIME: Duration = Duration::from_millis(200);
/// Pairs that are measured at the same time: more would be measured by how busy the machine is, if it is one.
const AT_ONCE: usize = 4;

/// The links of a run; of one that impairs none, nothing.
pub(crate) struct Links<'a> {
    plan: &'a Plan,
    agents: BTreeMap<String, Agent>,
    /// Median round trips of links that are not impaired.
    bases: BTreeMap<Pair, Duration>,
    current: Option<Current>,
}

/// A node's agent.
#[derive(Clone, Debug)]
struct Agent {
    client: AgentClient,
    role: Role,
    ip: IpAddr,
    /// Of its process, as last heard; another has not been measured.
    instance: u64,
    probe_port: u16,
}

/// How links are.
struct Current {
    network: String,
    /// What each agent was asked for.
    requests: Requests,
    /// Why trials on them would measure something else.
    failure: Option<TrialFailure>,
    /// The repetition that they were set for.
    round: (bool, u32),
}

/// What agents are to do, by node.
type Requests = BTreeMap<String, LinkRequest>;

impl<'a> Links<'a> {
    /// No agent is known yet.
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            agents: BTreeMap::new(),
            bases: BTreeMap::new(),
            current: None,
        }
    }

    /// Gets to know the agents of nodes that are new, and whether they can do what the plan asks for. The error says which
    /// cannot, why, and what to do.
    pub(crate) async fn meet(&mut self, nodes: &BTreeMap<String, Node>) -> Result<(), NotMet> {
        if self.plan.networks.is_empty() {
            return Ok(());
        }
        // Others are known, and whether they still answer shows when they are needed.
        let new = nodes.iter().filter(|(name, _)| !self.agents.contains_key(*name));
        let met = join_all(new.map(|(name, node)| async move {
            let Some(client) = &node.agent else {
                return Err(NotMet::Unsupported(format!(
                    "{name} has no link agent, which is a fault of this program: report it, with the document"
                )));
            };
            let status = client.link().await.map_err(|error| {
                NotMet::Unready(format!("the link agent of {name}: {}", error.describe()))
            })?;
            Ok((name, client.clone(), node.info.listen_ip, status))
        }))
        .await;
        for answer in met {
            let (name, client, ip, status) = answer?;
            for conditions in self.plan.networks.iter().filter(|network| !network.is_none()) {
                unsupported(name, conditions, &status.capabilities).map_or(Ok(()), Err)?;
            }
            // Links of a node that nobody planned are nobody's.
            let Some(planned) = self.plan.nodes.iter().find(|node| node.name == *name) else {
                continue;
            };
            let agent = Agent {
                client,
                role: planned.role,
                ip,
                instance: status.instance,
                probe_port: status.probe_port,
            };
            self.agents.insert(name.clone(), agent);
        }
        Ok(())
    }

    /// A node was replaced: its links are as they come, and those to it are others.
    pub(crate) fn forget(&mut self, name: &str) {
        self.agents.remove(name);
        self.bases
            .retain(|pair, _| pair.client != name && pair.server != name);
        self.current = None;
    }

    /// Links are not known any more, and measured before the next trial.
    pub(crate) fn release(&mut self) {
        self.current = None;
    }

    /// Sets and measures the links for a trial, if they are not as it needs them.
    pub(crate) async fn prepare(
        &mut self,
        trial: &Trial,
        network: &str,
        progress: &dyn Progress,
    ) -> Result<Option<LinkCheck>, Unready> {
        let Some(conditions) = self.conditions(network) else {
            return Ok(None);
        };
        let round = (trial.warmup, trial.iteration);
        if let Some(current) = self.current.as_ref().filter(|current| current.network == network) {
            match &current.failure {
                None => return Ok(None),
                // Another try with every repetition; until then the same answer.
                Some(failure) if current.round == round => {
                    return Err(Unready {
                        failure: failure.clone(),
                        check: None,
                        lost: BTreeSet::new(),
                    });
                }
                Some(_) => {}
            }
        }
        self.current = None;
        progress.on(Event::LinksChanging { network });
        let requests = self
            .requests(conditions)
            .map_err(|why| Unready::ineffective(why, None))?;
        let outcome = self.change(conditions, &requests).await;
        let check = match &outcome {
            Ok(check) => Some(check),
            Err(unready) => unready.check.as_deref(),
        };
        if let Some(check) = check {
            progress.on(Event::LinksChecked { check });
        }
        let failure = match &outcome {
            // Not measured: the next trial tries again.
            Err(unready) if unready.check.is_none() => return outcome.map(Some),
            Err(unready) => Some(unready.failure.clone()),
            Ok(_) => None,
        };
        self.current = Some(Current {
            network: network.to_owned(),
            requests,
            failure,
            round,
        });
        outcome.map(Some)
    }

    /// Takes over links that an earlier session has set, for a trial that it began; false, if they are not what this
    /// network needs.
    pub(crate) async fn take_over(&mut self, trial: &Trial, network: &str) -> bool {
        let Some(conditions) = self.conditions(network) else {
            return true;
        };
        let Ok(requests) = self.requests(conditions) else {
            return false;
        };
        let are_set = join_all(self.agents.iter().map(|(name, agent)| async {
            let set = agent
                .client
                .link()
                .await
                .ok()?
                .state
                .map(|state| state.link)
                .unwrap_or_default();
            let asked = requests.get(name).map(|request| &request.link);
            Some(asked.is_some_and(|asked| set == *asked || !(set.impairs() || asked.impairs())))
        }))
        .await;
        if are_set.contains(&Some(false)) || are_set.contains(&None) {
            return false;
        }
        self.current = Some(Current {
            network: network.to_owned(),
            requests,
            failure: None,
            round: (trial.warmup, trial.iteration),
        });
        true
    }

    /// Begins to count what becomes of a trial's packets; `None`, if links are to be prepared once more: they were measured
    /// with an agent that was started again since.
    pub(crate) async fn count(&mut self, names: &[&String]) -> Result<Option<Counting>, Unready> {
        let answers = join_all(self.current_of(names).map(|(name, agent, request)| async move {
            // The same request again changes nothing else.
            let counted = match agent.client.impair(request).await {
                Ok(()) => agent.client.link().await,
                Err(error) => Err(error),
            };
            let status =
                counted.map_err(|error| Unready::of_call(name, "count packets on its links", &error))?;
            Ok((name.clone(), status))
        }))
        .await;
        let statuses = all(answers)?;
        let (mut counting, mut again) = (Counting::default(), false);
        for (name, status) in statuses {
            again |= self.was_started_again(&name, &status);
            counting.0.insert(name, Some(status.instance));
        }
        if again {
            self.current = None;
            return Ok(None);
        }
        Ok(Some(counting))
    }

    /// Takes in what an agent says of itself; whether it is another process than before, which answers elsewhere.
    fn was_started_again(&mut self, name: &str, status: &LinkStatus) -> bool {
        let Some(agent) = self.agents.get_mut(name) else {
            return false;
        };
        agent.probe_port = status.probe_port;
        mem::replace(&mut agent.instance, status.instance) != status.instance
    }

    /// Adds to a trial's record what became of its packets, and what that says of its numbers. Returns nodes whose agents
    /// do not answer any more.
    pub(crate) async fn add_to(&mut self, record: &mut TrialRecord, counting: &Counting) -> BTreeSet<String> {
        let names: Vec<&String> = counting.0.keys().collect();
        let answers = join_all(self.current_of(&names).map(|(name, agent, request)| async move {
            (name.clone(), request.clone(), agent.client.link().await)
        }))
        .await;
        let mut lost = BTreeSet::new();
        for (name, request, answer) in answers {
            match answer {
                Ok(status) => {
                    if self.was_started_again(&name, &status) {
                        // What it does now has not been measured.
                        self.current = None;
                    }
                    let before = counting.0.get(&name).copied().flatten();
                    let peers = self.peers(&name, &names);
                    note(record, &name, before, &request.link, &peers, status);
                }
                Err(error) => {
                    let unready = Unready::of_call(&name, "tell what became of packets", &error);
                    fail(record, unready.failure);
                    lost.extend(unready.lost);
                }
            }
        }
        lost
    }

    /// Addresses of those of these nodes that a node talks to: where there is a relay, clients and servers talk to it alone.
    fn peers(&self, name: &str, names: &[&String]) -> Vec<IpAddr> {
        let role = |name: &str| self.agents.get(name).map(|agent| agent.role);
        let is_relay = |role| role == Some(Role::Relay);
        let has_relay = names.iter().any(|name| is_relay(role(name)));
        let own = role(name);
        let others = names.iter().filter_map(|name| self.agents.get(*name));
        let talks = |other: &&Agent| {
            let other = Some(other.role);
            other != own && (!has_relay || is_relay(own) || is_relay(other))
        };
        others.filter(talks).map(|agent| agent.ip).collect()
    }

    fn conditions(&self, network: &str) -> Option<&'a Conditions> {
        self.plan
            .networks
            .iter()
            .find(|conditions| conditions.name == network)
    }

    /// Agents of these nodes, and what they were asked for.
    fn current_of<'b>(
        &'b self,
        names: &'b [&String],
    ) -> impl Iterator<Item = (&'b String, &'b Agent, &'b LinkRequest)> {
        let requests = self.current.iter().flat_map(|current| &current.requests);
        let of_these = requests.filter(|(name, _)| names.contains(name));
        of_these.filter_map(|(name, request)| Some((name, self.agents.get(name)?, request)))
    }

    /// What agents are to do to what their nodes send.
    fn requests(&self, conditions: &Conditions) -> Result<Requests, String> {
        let request = |(name, agent): (&String, &Agent)| {
            let link = self.link(agent.role, conditions);
            let link = link.map_err(|why| format!("network {} at {name}: {why}", conditions.name))?;
            Ok((
                name.clone(),
                LinkRequest {
                    link,
                    backend: conditions.backend,
                },
            ))
        };
        self.agents.iter().map(request).collect()
    }

    /// What happens to what a node of this role sends. Peers to whom the same happens share a link.
    fn link(&self, role: Role, conditions: &Conditions) -> Result<Link, String> {
        let ips: BTreeSet<(IpAddr, Role)> = self.agents.values().map(|peer| (peer.ip, peer.role)).collect();
        let mut routes: Vec<Route> = vec![];
        for (ip, peer) in ips {
            let Some(impairment) = conditions.between(role, peer).filter(|way| !way.is_none()) else {
                continue;
            };
            let peer = Prefix::try_from(ip).map_err(|bad| bad.to_string())?;
            match routes.iter_mut().find(|route| route.impairment == *impairment) {
                Some(route) => route.peers.push(peer),
                None => routes.push(Route {
                    peers: vec![peer],
                    impairment: impairment.clone(),
                }),
            }
        }
        Link::new(routes).map_err(|bad| bad.to_string())
    }

    async fn change(&mut self, conditions: &Conditions, requests: &Requests) -> Result<LinkCheck, Unready> {
        self.look().await?;
        let pairs = self.pairs();
        if pairs.iter().any(|pair| !self.bases.contains_key(pair)) {
            self.measure_bases(&pairs).await?;
        }
        let began = Instant::now();
        self.set(requests).await?;
        let set = began.elapsed();
        let rounds = rounds(&pairs);
        let echo_time = (ECHO_TIME / rounds.len().max(1) as u32).max(ECHO_TIME_MIN);
        let mut legs = vec![];
        for round in rounds {
            let measured = stream::iter(
                round
                    .into_iter()
                    .map(|pair| self.leg(pair, conditions, echo_time)),
            );
            let measured: Vec<_> = measured.buffered(AT_ONCE).collect().await;
            for leg in measured {
                legs.push(leg?);
            }
        }
        let mut check = LinkCheck {
            network: conditions.name.clone(),
            set_seconds: set.as_secs_f64(),
            probe_seconds: (began.elapsed() - set).as_secs_f64(),
            legs,
        };
        let Some((leg, finding)) = check.outside().next() else {
            self.add_available(&mut check.legs, conditions).await;
            check.probe_seconds = (began.elapsed() - set).as_secs_f64();
            return Ok(check);
        };
        // The path itself may have changed since: it is measured again with the next try.
        self.bases.clear();
        let message = format!(
            "network {}, {} to {}: {finding}, in {} measurements: is the machine busy, or the path between the nodes slower \
             than the network?",
            conditions.name, leg.client, leg.server, leg.attempts
        );
        Err(Unready::ineffective(message, Some(check)))
    }

    /// Hears from all agents where they answer probes.
    async fn look(&mut self) -> Result<(), Unready> {
        let answers = join_all(self.agents.iter().map(|(name, agent)| async move {
            let status = agent.client.link().await;
            let status = status.map_err(|error| Unready::of_call(name, "say what its links are", &error))?;
            Ok((name.clone(), status))
        }))
        .await;
        for (name, status) in answers.into_iter().collect::<Result<Vec<_>, _>>()? {
            self.was_started_again(&name, &status);
        }
        Ok(())
    }

    fn pairs(&self) -> Vec<Pair> {
        let of = |role| {
            let agents = self.agents.iter().filter(move |(_, agent)| agent.role == role);
            agents.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let (clients, servers, relays) = (of(Role::Client), of(Role::Server), of(Role::Relay));
        let mut pairs = pairs(&clients, &servers);
        pairs.extend(legs::pairs(&clients, &relays));
        pairs.extend(legs::pairs(&relays, &servers));
        pairs
    }

    async fn set(&self, requests: &Requests) -> Result<(), Unready> {
        let set = requests
            .iter()
            .filter_map(|(name, request)| Some((name, self.agents.get(name)?, request)));
        let answers = join_all(set.map(|(name, agent, request)| async move {
            let set = agent.client.impair(request).await;
            set.map_err(|error| Unready::of_call(name, "set its links", &error))
        }))
        .await;
        all(answers).map(drop)
    }

    /// What round trips take without any impairment.
    async fn measure_bases(&mut self, pairs: &[Pair]) -> Result<(), Unready> {
        let open = |name: &String| (name.clone(), LinkRequest::default());
        self.set(&self.agents.keys().map(open).collect()).await?;
        let none = Impairment::default();
        let plan = probe::ProbePlan::within(&none, &none, BASE_ECHO_TIME);
        for round in rounds(pairs) {
            let measured = stream::iter(round.into_iter().map(|pair| {
                let (links, plan) = (&*self, plan.clone());
                async move {
                    let measured = links.measure(&pair.client, &pair.server, plan).await;
                    (pair, measured)
                }
            }));
            let measured: Vec<_> = measured.buffered(AT_ONCE).collect().await;
            for (pair, measured) in measured {
                let Some(round_trip) = measured?.round_trip else {
                    let Pair { client, server } = pair;
                    let message = format!("{client} to {server}: no answer over a link that is not impaired");
                    return Err(Unready::ineffective(message, None));
                };
                self.bases.insert(pair, Duration::from_nanos(round_trip.p50_ns));
            }
        }
        Ok(())
    }

    /// What happens to packets from a client to a server, and back.
    fn ways<'b>(
        &self,
        client: &str,
        server: &str,
        conditions: &'b Conditions,
    ) -> Result<(&'b Impairment, &'b Impairment), Unready> {
        let role = |name| self.agents.get(name).map(|agent| agent.role);
        let between = |from, to| conditions.between(role(from)?, role(to)?);
        between(client, server)
            .zip(between(server, client))
            .ok_or_else(|| no_link(client, server))
    }

    /// Measures a pair until it is as asked for, or often enough to believe that it is not.
    async fn leg(&self, pair: Pair, conditions: &Conditions, echo_time: Duration) -> Result<Leg, Unready> {
        let (to_server, to_client) = self.ways(&pair.client, &pair.server, conditions)?;
        let base = self.bases.get(&pair).copied().unwrap_or_default();
        let plan = probe::ProbePlan::within(to_server, to_client, echo_time);
        let back = probe::ProbePlan::rate_back(to_server, to_client, echo_time);
        let mut attempts = 0;
        loop {
            attempts += 1;
            // Who is measured again may be late: then one after the other.
            let beside = plan
                .fills_beside(&back, to_server, base)
                .filter(|_| attempts == 1);
            let (measured, filled) = self.measure_both_ways(&pair, &plan, &back, beside).await?;
            let rate_to_client = filled.as_ref().and_then(|filled| filled.rate);
            let filled = filled.map(|filled| (back.clone(), filled));
            let verdict = judge(
                to_server,
                to_client,
                base,
                (plan.clone(), measured.clone()),
                filled,
            )
            .await?;
            if verdict.is_effective() || attempts == ATTEMPTS {
                return Ok(Leg {
                    client: pair.client,
                    server: pair.server,
                    base_round_trip_seconds: base.as_secs_f64(),
                    attempts,
                    measured,
                    rate_to_client,
                    findings: verdict.findings,
                });
            }
        }
    }

    /// The link to the server and, if it is to be measured, the rate in the other direction: so much later, or afterwards.
    async fn measure_both_ways(
        &self,
        Pair { client, server }: &Pair,
        plan: &probe::ProbePlan,
        back: &probe::ProbePlan,
        beside: Option<Duration>,
    ) -> Result<(Measurement, Option<Measurement>), Unready> {
        let there = self.measure(client, server, plan.clone());
        let filled = async {
            match back.fill {
                None => Ok(None),
                Some(_) => self.measure(server, client, back.clone()).await.map(Some),
            }
        };
        let Some(later) = beside else {
            return Ok((there.await?, filled.await?));
        };
        let filled = async {
            sleep(later).await;
            filled.await
        };
        try_join(there, filled).await
    }

    async fn measure(&self, from: &str, to: &str, plan: probe::ProbePlan) -> Result<Measurement, Unready> {
        let (Some(near), Some(far)) = (self.agents.get(from), self.agents.get(to)) else {
            return Err(no_link(from, to));
        };
        let request = ProbeRequest {
            server: SocketAddr::new(far.ip, far.probe_port),
            plan,
        };
        let measured = near.client.probe(&request).await;
        measured.map_err(|error| Unready::of_call(from, &format!("measure the link to {to}"), &error))
    }
}

fn no_link(from: &str, to: &str) -> Unready {
    Unready::ineffective(format!("there is no link from {from} to {to}"), None)
}

/// Agents that count what becomes of a trial's packets, by node, with their instances; nothing, of those that began to in
/// an earlier session.
#[derive(Debug, Default)]
pub(crate) struct Counting(BTreeMap<String, Option<u64>>);

impl Counting {
    /// Of agents that began to count in an earlier session.
    pub(crate) fn taken_over(names: &[&String]) -> Self {
        Self(names.iter().map(|name| ((*name).clone(), None)).collect())
    }
}

/// Judges what was measured, each with its plan, and the rate to the client if that was measured, too. Simulations take
/// about ten milliseconds. A judge that fails has judged nothing, least of all that a link is right.
async fn judge(
    to_server: &Impairment,
    to_client: &Impairment,
    base: Duration,
    (plan, measured): (probe::ProbePlan, Measurement),
    back: Option<(probe::ProbePlan, Measurement)>,
) -> Result<Verdict, Unready> {
    let (to_server, to_client) = (to_server.clone(), to_client.clone());
    let judged = tokio::task::spawn_blocking(move || {
        let mut verdict = probe::judge(&to_server, &to_client, base, &plan, &measured);
        let rate_back =
            back.and_then(|(plan, measured)| probe::judge_rate_back(&to_client, &plan, &measured));
        verdict.findings.extend(rate_back);
        verdict
    });
    judged
        .await
        .map_err(|error| Unready::ineffective(format!("failed to judge a measured link: {error}"), None))
}
