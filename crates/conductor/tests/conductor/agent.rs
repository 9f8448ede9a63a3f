//! Link agents that keep each request and measure links as the figures say, unless their script lies.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use perfrun_conductor::{
    AgentClient,
    client::{BoxError, Method, Request, Requester, Response},
};
use perfrun_contract::node::{LinkRequest, LinkStatus, ProbeRequest, Problem};
use perfrun_link::{
    Abilities, Ability, ActiveBackend, Impairment, LinkState, Mode, Obstacle, OutgoingLinks, PacketCounts,
    Scheduling,
    probe::{Delivery, Measurement, Rate, RoundTrip},
    state::{Lateness, Traffic, Worker},
};
use serde::Serialize;

/// What an agent does wrong.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// It can impair nothing.
    Incapable,
    /// It says that it impairs, and does not.
    Lies,
    /// It restarts during the first trial over a link that it impairs.
    Restarts,
    /// It restarts before that trial, after its link was measured.
    RestartsBefore,
    /// It is another process at each call for its status.
    Flaps,
    /// It is late.
    Late,
    /// Its machine is busy during this number of measurements of links that it impairs.
    Slow(u32),
    /// Its machine is busy during this number of measurements of links that it does not impair.
    SlowBefore(u32),
    /// It is gone once a link was set.
    Vanishes,
    /// It measures for somebody else at the first two requests.
    Busy,
    /// It does not answer probes.
    Mute,
    /// It impairs, and nothing that its node sends in a trial passes by it.
    Bypassed,
    /// No probe over a link on which it loses packets comes through.
    Lossy,
    /// It answers probes, and none that only fills the link.
    Overfull,
}

/// The agents of a run, which impair one another's packets.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    agents: BTreeMap<IpAddr, Agent>,
    calls: Vec<String>,
    /// Seeds of what happens by chance, with the agents that they were for.
    seeds: Vec<(String, u64)>,
}

#[derive(Default)]
struct Agent {
    name: String,
    fault: Fault,
    request: LinkRequest,
    status_calls: u64,
    probes: u32,
    /// Measurements that its fault has slowed down.
    slow_probes: u32,
    /// Calls for its status before packets were counted for the first time over a link that it impairs.
    counting_since: Option<u64>,
    gone: bool,
}

impl World {
    /// The agent of a node at this address.
    pub(crate) fn agent(&self, name: &str, ip: IpAddr, fault: Fault) -> AgentClient {
        let agent = Agent {
            name: name.to_owned(),
            fault,
            ..Agent::default()
        };
        self.0.lock().unwrap().agents.insert(ip, agent);
        AgentClient::over(Arc::new(Channel {
            world: self.clone(),
            ip,
        }))
    }

    /// What agents were called for, except their status.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().calls.clone()
    }

    /// The seeds that the agent of this name was given.
    pub(crate) fn seeds(&self, name: &str) -> Vec<u64> {
        let inner = self.0.lock().unwrap();
        let of_agent = inner.seeds.iter().filter(|(agent, _)| agent == name);
        of_agent.map(|(_, seed)| *seed).collect()
    }
}

struct Channel {
    world: World,
    ip: IpAddr,
}

#[async_trait]
impl Requester for Channel {
    async fn request(&self, request: Request<'_>) -> Result<Response, BoxError> {
        let mut world = self.world.0.lock().unwrap();
        let inner = &mut *world;
        let agent = inner.agents.get_mut(&self.ip).ok_or("no such agent")?;
        if agent.gone {
            // What a proxy says; a refused connection would be retried for seconds.
            return Ok(Response::new(504, vec![]));
        }
        let body = request.body.unwrap_or_default();
        match (request.method, request.path) {
            (Method::Get, "/v1/link") => {
                agent.status_calls += 1;
                answer(&agent.status())
            }
            (Method::Put, "/v1/link") => inner.set(self.ip, serde_json::from_slice(&body)?),
            (Method::Put, "/v1/link/probe") => inner.probe(self.ip, &serde_json::from_slice(&body)?),
            (method, path) => Err(format!("{method:?} {path}").into()),
        }
    }
}

impl Inner {
    /// Impairs the link of an agent.
    fn set(&mut self, ip: IpAddr, mut request: LinkRequest) -> Result<Response, BoxError> {
        let agent = self.agents.get_mut(&ip).ok_or("no such agent")?;
        let seed = request.seed.take();
        self.seeds.extend(seed.map(|seed| (agent.name.clone(), seed)));
        if request != agent.request {
            let routes = request.link.routes();
            let impairment = routes
                .first()
                .map(|route| route.impairment.clone())
                .unwrap_or_default();
            self.calls.push(format!("{} {:?}", agent.name, impairment.delay));
        }
        if request == agent.request && request != LinkRequest::default() {
            agent.counting_since.get_or_insert(agent.status_calls);
        }
        agent.gone = agent.fault == Fault::Vanishes && request != LinkRequest::default();
        agent.request = request;
        Ok(Response::new(204, vec![]))
    }

    /// Measures the link from an agent to another one.
    fn probe(&mut self, ip: IpAddr, probe: &ProbeRequest) -> Result<Response, BoxError> {
        let far = probe.server.ip();
        let does = if probe.plan.echoes == 0 { "fills" } else { "probes" };
        self.calls.push(format!(
            "{} {does} {}",
            self.agents[&ip].name, self.agents[&far].name
        ));
        let near = self.agents.get_mut(&ip).ok_or("no such agent")?;
        near.probes += 1;
        let refused = |status, message: &str| {
            let problem = Problem {
                message: message.to_owned(),
                trial: None,
            };
            let body = serde_json::to_vec(&problem)?;
            Ok(Response::new(status, body))
        };
        if near.fault == Fault::Busy && near.probes <= 2 {
            return refused(423, "another measurement is in progress");
        }
        let lateness = near.lateness(probe);
        let is_deaf = match self.agents[&far].fault {
            Fault::Mute => true,
            Fault::Overfull => probe.plan.echoes == 0,
            Fault::Lossy => self.agents[&far].towards(ip).loss.is_some(),
            _ => false,
        };
        if is_deaf {
            return refused(422, "nobody answers");
        }
        let there = self.agents[&ip].towards(far);
        let back = self.agents[&far].towards(ip);
        answer(&measured(&there, &back, lateness, probe))
    }
}

impl Agent {
    /// What really happens to packets to a peer.
    fn towards(&self, peer: IpAddr) -> Impairment {
        let route = self
            .request
            .link
            .routes()
            .iter()
            .find(|route| route.peers.iter().any(|prefix| prefix.contains(peer)));
        route
            .filter(|_| self.fault != Fault::Lies)
            .map(|route| route.impairment.clone())
            .unwrap_or_default()
    }

    /// How much longer than usual round trips of this measurement take.
    fn lateness(&mut self, request: &ProbeRequest) -> Duration {
        let is_impaired = !self.towards(request.server.ip()).delay.is_zero();
        let (busy, is_slowed) = match self.fault {
            Fault::Slow(busy) => (busy, is_impaired),
            Fault::SlowBefore(busy) => (busy, !is_impaired),
            _ => return Duration::ZERO,
        };
        if !is_slowed || request.plan.echoes == 0 || self.slow_probes == busy {
            return Duration::ZERO;
        }
        self.slow_probes += 1;
        Duration::from_millis(7)
    }

    fn status(&self) -> LinkStatus {
        let ability = if self.fault == Fault::Incapable {
            Ability::Unavailable {
                reason: Obstacle::NoNetem,
                detail: "tried".to_owned(),
            }
        } else {
            Ability::Available
        };
        let lateness = Lateness {
            frames: 100,
            p99_ns: if self.fault == Fault::Late {
                50_000_000
            } else {
                1000
            },
            ..Lateness::default()
        };
        let state = LinkState {
            link: self.request.link.clone(),
            backend: ActiveBackend::Userspace,
            mode: Mode::SuperPackets,
            traffic: vec![Traffic::Userspace(PacketCounts {
                packets_in: if self.fault == Fault::Bypassed { 0 } else { 10 },
                ..PacketCounts::default()
            })],
            worker: Some(Worker {
                scheduling: Scheduling::RealTime,
                lateness,
                overflowed: 0,
                unmatched: 0,
                refused: 0,
                cpu_ns: 0,
            }),
        };
        LinkStatus {
            instance: match (self.fault, self.counting_since) {
                (Fault::Flaps, _) => self.status_calls,
                (Fault::Restarts, Some(since)) if self.status_calls > since + 1 => 8,
                (Fault::RestartsBefore, Some(_)) => 8,
                _ => 7,
            },
            interface: "eth0".to_owned(),
            capabilities: Abilities {
                kernel: ability.clone(),
                userspace: ability.clone(),
                real_time: ability,
            },
            probe_port: 4242,
            state: Some(state).filter(|state| state.link != OutgoingLinks::default()),
        }
    }
}

/// What the figures come to: 0.1 ms on the wire, the share that is lost.
fn measured(
    there: &Impairment,
    back: &Impairment,
    lateness: Duration,
    request: &ProbeRequest,
) -> Measurement {
    let echoes = request.plan.echoes;
    let nanoseconds = 100_000 + (there.delay + back.delay + lateness).as_nanos() as u64;
    let kept = |impairment: &Impairment| {
        1.0 - impairment
            .loss
            .as_ref()
            .and_then(|loss| loss.ratio())
            .unwrap_or_default()
    };
    let arrived = (f64::from(echoes) * kept(there)).round() as u32;
    let returned = (f64::from(arrived) * kept(back)).round() as u32;
    Measurement {
        round_trip: (returned > 0).then_some(RoundTrip {
            min_ns: nanoseconds,
            p50_ns: nanoseconds,
            p99_ns: nanoseconds,
        }),
        forward: Delivery {
            sent: echoes,
            received: arrived,
        },
        backward: Delivery {
            sent: arrived,
            received: returned,
        },
        rate: request.plan.fill.as_ref().map(|fill| Rate {
            offered_bits_per_second: fill.bits_per_second,
            received_bits_per_second: there
                .rate_bits_per_second
                .map_or(fill.bits_per_second, |rate| rate.get().min(fill.bits_per_second)),
        }),
    }
}

fn answer(value: &impl Serialize) -> Result<Response, BoxError> {
    Ok(Response::new(200, serde_json::to_vec(value)?))
}
