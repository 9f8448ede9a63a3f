//! What a node does in a trial: one module for each workload, the same for every stack.

mod bandwidth;
mod client;
mod echo;
mod handshakes;
mod ping;
mod relay;
mod server;
mod substreams;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use perfrun_contract::{
    histogram::{Recorder, recorder},
    matrix::{Stack, Transport},
    node::{Distribution, Failure, Plateau, Reason, Transfer},
    parameters::{Amount, Parameters},
};

pub use client::Client;
pub use relay::serve as serve_relay;
pub use server::{Listening, serve};

use crate::{
    probe::Probe,
    process,
    stack::{self, DialPhases, HostConfig, Keys, Relaying, StackMetrics},
    wire,
};

/// What a trial needs to know, on either side.
#[derive(Clone)]
pub struct Setup {
    /// The stack to speak.
    pub stack: Stack,
    /// The transport.
    pub transport: Transport,
    /// What to do.
    pub parameters: Parameters,
    /// Where to listen; port 0 takes a free one.
    pub listen: (IpAddr, u16),
    /// Seed of the server's identity; none: random.
    pub identity: Option<[u8; 32]>,
    /// Streams that one connection must hold open; none: as many as the workload asks for.
    pub max_streams: Option<usize>,
    /// What to download, where that is not as much as is uploaded (stand-alone clients).
    pub download: Option<Amount>,
    /// Where stacks count.
    pub stack_metrics: Arc<StackMetrics>,
    /// Who watches.
    pub probe: Arc<Probe>,
}

impl Setup {
    fn host(&self, listen: Option<(IpAddr, u16)>) -> HostConfig {
        HostConfig {
            transport: self.transport,
            protocol: self.parameters.protocol(),
            negotiation: self.parameters.negotiation(),
            listen,
            identity: match self.identity.filter(|_| listen.is_some()) {
                Some(seed) => Keys::Seeded(seed),
                None => Keys::New(self.parameters.identity()),
            },
            max_streams: self.max_streams.unwrap_or(self.parameters.streams() as usize),
            relaying: match self.parameters {
                Parameters::Relay { .. } | Parameters::RelayStress { .. } => Relaying::Peer,
                _ => Relaying::No,
            },
            metrics: self.stack_metrics.clone(),
        }
    }

    fn has_a_connection_for_each_stream(&self) -> bool {
        self.stack == Stack::Raw && self.transport == Transport::Tcp
    }

    /// Whether the system lets the node open enough files for the load with so many peers; of a stress test, sockets.
    fn check_descriptors(&self, peers: u32) -> Result<(), Failed> {
        let peers = u64::from(peers);
        let needed = match &self.parameters {
            _ if self.transport.is_in_process() => return Ok(()),
            Parameters::Echo(load) if self.has_a_connection_for_each_stream() => {
                load.streams() + FILES_BESIDES
            }
            Parameters::Echo(load) => 4 * u64::from(load.connections),
            Parameters::RelayStress { .. } => peers + FILES_BESIDES,
            parameters if self.has_a_connection_for_each_stream() => {
                peers * u64::from(parameters.streams()) + FILES_BESIDES
            }
            _ => 4 * peers,
        };
        match process::descriptor_limit() {
            Some(limit) if limit < needed => Err(Failed(failure(
                Reason::LimitTooLow,
                format!(
                    "the load needs {needed} open files, and the system allows the node {limit}: raise the limit (ulimit -Hn, \
                     or LimitNOFILE of whatever starts the node)"
                ),
            ))),
            _ => Ok(()),
        }
    }

    /// Zeros to write from; their number is the size of every write and read, and has its limits where parameters are read.
    fn zeros(&self) -> Arc<[u8]> {
        let chunk = match &self.parameters {
            Parameters::Bandwidth { chunk_bytes, .. }
            | Parameters::Relay { chunk_bytes, .. }
            | Parameters::RelayStress { chunk_bytes, .. } => chunk_bytes.0 as usize,
            _ => 1024,
        };
        vec![0; chunk].into()
    }
}

/// Open files that a node needs besides those of a load.
const FILES_BESIDES: u64 = 64;

/// What a side of a trial found, besides what its probe counted.
#[derive(Debug, Default)]
pub struct Findings {
    /// The client-to-server transfer.
    pub upload: Option<Transfer>,
    /// The server-to-client transfer.
    pub download: Option<Transfer>,
    /// What went on while all streams were open.
    pub plateau: Option<Plateau>,
    /// Distributions, in nanoseconds.
    pub recorders: BTreeMap<Distribution, Recorder>,
    /// What a relay refused, and how often.
    pub refused: BTreeMap<String, u64>,
    /// Most circuits at the same time.
    pub most_circuits: u64,
}

impl Findings {
    fn refused(&mut self, what: &str, status: &str) {
        *self.refused.entry(format!("{what}: {status}")).or_default() += 1;
    }

    /// Counts it if it is a relay's refusal.
    fn refusal(&mut self, error: &stack::Error) {
        if let stack::Error::Refused { what, status, .. } = error {
            self.refused(what, status);
        }
    }

    fn record(&mut self, distribution: Distribution, time: Duration) {
        record(self.recorders.entry(distribution).or_insert_with(recorder), time);
    }

    /// Adds what others have found.
    fn merge(&mut self, others: Self) {
        for (distribution, recorded) in &others.recorders {
            self.add(*distribution, recorded);
        }
        for (what, count) in others.refused {
            *self.refused.entry(what).or_default() += count;
        }
        self.most_circuits += others.most_circuits;
    }

    fn record_dial(&mut self, phases: DialPhases) {
        self.record(Distribution::HandshakeEstablished, phases.established);
        if let Some(transport) = phases.transport {
            self.record(Distribution::HandshakeTransport, transport);
        }
        if let Some(relay) = phases.relay {
            self.record(Distribution::RelayConnected, relay);
        }
    }

    /// Adds what was recorded elsewhere.
    fn add(&mut self, distribution: Distribution, recorded: &Recorder) {
        let all = self.recorders.entry(distribution).or_insert_with(recorder);
        all.add(recorded)
            .expect("a recorder that resizes takes every value");
    }
}

fn record(recorder: &mut Recorder, time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    recorder
        .record(nanoseconds)
        .expect("a recorder that resizes takes every value");
}

/// A failure in words and for programs.
pub fn failure(reason: Reason, message: impl std::fmt::Display) -> Failure {
    Failure {
        reason,
        message: message.to_string(),
    }
}

impl From<stack::Error> for Failed {
    fn from(error: stack::Error) -> Self {
        use stack::Error::{Address, Dial, Listen, Open, Refused, Setup, Unsupported};
        let reason = match &error {
            Unsupported { .. } => Reason::Unsupported,
            Listen { .. } => Reason::ListenFailed,
            Address { .. } | Dial { .. } => Reason::DialFailed,
            Refused { .. } => Reason::Refused,
            Open(_) => Reason::OpenFailed,
            Setup { .. } => Reason::Internal,
        };
        Self(failure(reason, error))
    }
}

impl From<wire::Error> for Failed {
    fn from(error: wire::Error) -> Self {
        Self(failure(error.reason(), error))
    }
}

/// A [`Failure`] on its way up.
#[derive(Debug)]
pub struct Failed(pub Failure);
