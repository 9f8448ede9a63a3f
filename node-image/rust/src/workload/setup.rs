//! What both sides of a trial are set up with.

use std::{net::IpAddr, sync::Arc};

use perfrun_contract::{
    matrix::{Stack, StackSettings, Transport},
    node::Reason,
    parameters::{Amount, Parameters},
    support::stream_is_connection,
};
use perfrun_stack::{HostConfig, Keys, Relaying, StackMetrics};

use super::{
    failed::{Failed, failure},
    handover::Handover,
};
use crate::{observer::Observer, process};

/// What a trial needs to know, on either side.
#[derive(Clone)]
pub(crate) struct Setup {
    /// The stack to speak.
    pub(crate) stack: Stack,
    /// Settings of the stack.
    pub(crate) settings: StackSettings,
    /// The transport of all connections.
    pub(crate) transport: Transport,
    /// The workload.
    pub(crate) parameters: Parameters,
    /// Where to listen; port 0 takes a free one.
    pub(crate) listen: (IpAddr, u16),
    /// Seed of the server's identity. `None` if it is random.
    pub(crate) identity: Option<[u8; 32]>,
    /// Streams that one connection must hold open. `None` if the workload decides.
    pub(crate) max_streams: Option<usize>,
    /// What to download, where that differs from the upload (stand-alone clients).
    pub(crate) download: Option<Amount>,
    /// Takes the server's end of an exchange to a client in the same process.
    pub(crate) handover: Handover,
    /// Metrics that stacks keep of themselves.
    pub(crate) stack_metrics: Arc<StackMetrics>,
    /// Counts and samples the trial.
    pub(crate) observer: Arc<Observer>,
}

impl Setup {
    /// What a test of a stack on TCP needs.
    #[cfg(test)]
    pub(super) fn of(stack: Stack, parameters: Parameters) -> Self {
        use crate::{metrics::TrialMetrics, sampler::Sampling};

        Self {
            stack,
            settings: StackSettings::default(),
            transport: Transport::Tcp,
            parameters,
            listen: (std::net::Ipv4Addr::LOCALHOST.into(), 0),
            identity: None,
            max_streams: None,
            download: None,
            handover: Handover::default(),
            stack_metrics: Arc::new(StackMetrics::new(
                &mut prometheus_client::registry::Registry::default(),
            )),
            observer: Arc::new(Observer::new(TrialMetrics::default(), Sampling::default())),
        }
    }

    pub(super) fn host(&self, listen: Option<(IpAddr, u16)>) -> HostConfig {
        HostConfig {
            settings: self.settings.clone(),
            transport: self.transport,
            parameters: self.parameters.clone(),
            listen,
            identity: match self.identity.filter(|_| listen.is_some()) {
                Some(seed) => Keys::Seeded(seed),
                None => Keys::New(self.parameters.identity()),
            },
            max_streams: self.max_streams.unwrap_or(self.parameters.streams() as usize),
            relaying: if self.parameters.has_relayed_path() {
                Relaying::Peer
            } else {
                Relaying::No
            },
            metrics: self.stack_metrics.clone(),
            congestion: self.observer.congestion.clone(),
        }
    }

    /// Whether the system lets the node open the files that a side needs. `needed` takes whether each stream
    /// is a connection of its own.
    pub(super) fn check_files(&self, needed: impl FnOnce(&Parameters, bool) -> u64) -> Result<(), Failed> {
        if self.transport.is_in_process() {
            return Ok(());
        }
        let stream_is_connection = stream_is_connection(self.stack, self.transport, &self.parameters);
        let needed = needed(&self.parameters, stream_is_connection);
        match process::descriptor_limit() {
            Some(limit) if limit < needed => Err(Failed(failure(
                Reason::LimitTooLow,
                format!(
                    "the load needs {needed} open files, and the system allows the node {limit}: raise the limit \
                     (ulimit -Hn, or LimitNOFILE of the service that starts the node)"
                ),
            ))),
            _ => Ok(()),
        }
    }

    /// Zeros to write from. Their number is the size of every write and read.
    pub(super) fn zeros(&self) -> Arc<[u8]> {
        vec![0; self.parameters.chunk_bytes().0 as usize].into()
    }
}
