//! The quantities that a trial measures.

use schemars::JsonSchema;
use serde::{
    Deserialize,
    de::{IntoDeserializer, value},
};
use strum::{AsRefStr, Display, IntoStaticStr, VariantNames};

use crate::{
    newer::{self, NewerName},
    units::Unit,
};

/// A quantity that a trial measures. Times in seconds, rates in bits or operations per second.
#[derive(
    AsRefStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    Eq,
    Hash,
    IntoStaticStr,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    VariantNames,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Metric {
    /// Goodput of the client-to-server transfer, at the receiver (`strict`) or the sender (`compat`), in
    /// bit/s.
    UploadGoodput,
    /// Time of the client-to-server transfer, at the client.
    UploadSeconds,
    /// Goodput of the server-to-client transfer, at the receiver, in bit/s.
    DownloadGoodput,
    /// Time of the server-to-client transfer, at the client.
    DownloadSeconds,
    /// Dial until the connection was established.
    ConnectSeconds,
    /// Dial until the last byte: connection, stream and transfers.
    TotalSeconds,
    /// Mean time to open a substream, from before the first request; when they are paced, each from its own
    /// request.
    OpenMean,
    /// Median time to open a substream.
    OpenP50,
    /// 90th percentile of the time to open a substream.
    OpenP90,
    /// 99th percentile of the time to open a substream.
    OpenP99,
    /// Longest time to open a substream: in a burst, until all substreams were open.
    OpenMax,
    /// Mean time to open a substream, from after the last request, as the published tools define it.
    OpenMeanCompat,
    /// Substreams opened per second.
    OpensPerSecond,
    /// Median time until the transport is connected (TCP only).
    HandshakeTransportP50,
    /// Median time until the connection is established.
    HandshakeEstablishedP50,
    /// 99th percentile of the time until the connection is established.
    HandshakeEstablishedP99,
    /// Median time until the first byte came back.
    HandshakeFirstByteP50,
    /// 99th percentile of the time until the first byte came back.
    HandshakeFirstByteP99,
    /// Connections established, used once and closed, per second.
    HandshakesPerSecond,
    /// Mean application round trip.
    RoundTripMean,
    /// Median application round trip.
    RoundTripP50,
    /// 90th percentile of the application round trip.
    RoundTripP90,
    /// 99th percentile of the application round trip.
    RoundTripP99,
    /// Longest application round trip.
    RoundTripMax,
    /// Mean one-way delay: from sending a message until the peer had it.
    OneWayMean,
    /// Median one-way delay.
    OneWayP50,
    /// 90th percentile of the one-way delay.
    OneWayP90,
    /// 99th percentile of the one-way delay.
    OneWayP99,
    /// Longest one-way delay.
    OneWayMax,
    /// The most by which one-way delays may be wrong, because the peers have different clocks.
    OneWayUncertainty,
    /// Messages that arrived, as a share of those sent to all receivers.
    DeliveryRatio,
    /// Messages that a stack accepted and that did not arrive.
    MessagesLost,
    /// Messages that arrived, per second, of all peers together.
    MessagesPerSecond,
    /// CPU time of all nodes for each message, in seconds.
    CpuSecondsPerMessage,
    /// Round trips per second, of all streams together, while all of them were open.
    RoundTripsPerSecond,
    /// Operations per second as a share of the nominal rate: of an echo, one round trip per stream and pause
    /// or period; of messages, the rate of each peer to each receiver.
    AchievedShare,
    /// Fewest streams that completed a round trip in a whole sample interval while all of them were open, at
    /// the clients.
    EchoingStreams,
    /// From the start until every stream had its first round trip.
    RampSeconds,
    /// The latest start of a connection or stream after the moment that the ramp has for it.
    RampLateness,
    /// Operations of clients that failed.
    Failures,
    /// Median time until the connection with the relay was established.
    RelayConnectSeconds,
    /// Longest time that a source waited for its reservation.
    ReservationSeconds,
    /// Median application round trip with the relay itself.
    RelayRoundTripP50,
    /// Median time from asking for a stream to its first byte.
    FirstByteP50,
    /// Median time of a transfer, from its open stream to its end.
    TransferP50,
    /// 99th percentile of the time of a transfer.
    TransferP99,
    /// Longest time of a transfer.
    TransferMax,
    /// Transfers completed per second, on the plateau.
    TransfersPerSecond,
    /// CPUs that the relay kept busy while data flowed; of a stress test, on the plateau.
    RelayCpu,
    /// CPU time of the relay for each GiB of payload, in seconds.
    RelayCpuSecondsPerGiB,
    /// Bytes that the relay's interfaces received and sent for each byte of payload, headers and all.
    RelayBytesPerByte,
    /// Most circuits that were up at the same time.
    Circuits,
    /// Reservations and circuits that the relay refused, or messages that the sender's stack refused.
    Refused,
    /// Most resident memory of the relay, in bytes.
    RelayPeakRss,
    /// Most memory that the relay had allocated, in bytes.
    RelayPeakAllocated,
    /// CPU time of all nodes for each GiB of payload, in seconds.
    CpuSecondsPerGiB,
    /// CPU time of all nodes for each operation (open, handshake, round trip), in seconds.
    CpuSecondsPerOperation,
    /// CPU cycles in user mode of all nodes for each byte of payload, where the kernel lets them be counted.
    CpuCyclesPerByte,
    /// CPU time of a client per second: the cores that it kept busy; of the busiest client.
    ClientCpuCores,
    /// CPU time of a server per second: the cores that it kept busy; of the busiest server.
    ServerCpuCores,
    /// Most resident memory of a client, in bytes.
    ClientPeakRss,
    /// Most resident memory of a server, in bytes.
    ServerPeakRss,
    /// Most memory that a client had allocated, in bytes.
    ClientPeakAllocated,
    /// Most memory that a server had allocated, in bytes.
    ServerPeakAllocated,
    /// What a client had allocated with all streams open, less the least in any sample, for each stream.
    ClientAllocatedPerStream,
    /// What a server had allocated with all streams open, less the least in any sample, for each stream.
    ServerAllocatedPerStream,
    /// A metric of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(Metric);

impl Metric {
    /// The first of these that a trial has is the one shown for it while a run is in progress. Findings are
    /// about [`Workload::primary`](crate::parameters::Workload::primary) instead.
    pub const HEADLINES: [Self; 8] = [
        Self::MessagesPerSecond,
        Self::UploadGoodput,
        Self::DownloadGoodput,
        Self::TotalSeconds,
        Self::OpenMean,
        Self::HandshakeFirstByteP50,
        Self::RoundTripP50,
        Self::Failures,
    ];

    /// The resources that a trial of any workload takes.
    pub const RESOURCES: [Self; 12] = [
        Self::CpuSecondsPerGiB,
        Self::CpuCyclesPerByte,
        Self::ClientCpuCores,
        Self::ServerCpuCores,
        Self::ClientPeakRss,
        Self::ServerPeakRss,
        Self::RelayPeakRss,
        Self::ClientPeakAllocated,
        Self::ServerPeakAllocated,
        Self::RelayPeakAllocated,
        Self::ClientAllocatedPerStream,
        Self::ServerAllocatedPerStream,
    ];

    /// What relays do and take.
    pub const OF_RELAYS: [Self; 6] = [
        Self::ReservationSeconds,
        Self::RelayCpu,
        Self::RelayCpuSecondsPerGiB,
        Self::RelayBytesPerByte,
        Self::Circuits,
        Self::Refused,
    ];

    /// Times to open a substream: mean, percentiles and longest.
    pub const OPEN: [Self; 5] = [
        Self::OpenMean,
        Self::OpenP50,
        Self::OpenP90,
        Self::OpenP99,
        Self::OpenMax,
    ];

    /// Times of a round trip: mean, percentiles and longest.
    pub const ROUND_TRIP: [Self; 5] = [
        Self::RoundTripMean,
        Self::RoundTripP50,
        Self::RoundTripP90,
        Self::RoundTripP99,
        Self::RoundTripMax,
    ];

    /// One-way delays: mean, percentiles and longest.
    pub const ONE_WAY: [Self; 5] = [
        Self::OneWayMean,
        Self::OneWayP50,
        Self::OneWayP90,
        Self::OneWayP99,
        Self::OneWayMax,
    ];

    /// The metrics of which a higher or a lower value is better.
    pub fn judged() -> impl Iterator<Item = Self> {
        let known = Self::VARIANTS
            .iter()
            .map(|name| Self::deserialize(IntoDeserializer::<value::Error>::into_deserializer(*name)));
        known
            .flatten()
            .filter(|metric| metric.better() != Better::Neither)
    }

    /// The metric's unit.
    pub fn unit(self) -> Unit {
        match self {
            Self::UploadGoodput | Self::DownloadGoodput => Unit::BitsPerSecond,
            Self::OpensPerSecond
            | Self::HandshakesPerSecond
            | Self::MessagesPerSecond
            | Self::RoundTripsPerSecond
            | Self::TransfersPerSecond => Unit::PerSecond,
            Self::ClientPeakRss
            | Self::ServerPeakRss
            | Self::RelayPeakRss
            | Self::RelayPeakAllocated
            | Self::ClientPeakAllocated
            | Self::ServerPeakAllocated
            | Self::ClientAllocatedPerStream
            | Self::ServerAllocatedPerStream => Unit::Bytes,
            Self::AchievedShare | Self::DeliveryRatio => Unit::Share,
            Self::Failures
            | Self::MessagesLost
            | Self::RelayCpu
            | Self::RelayBytesPerByte
            | Self::Circuits
            | Self::Refused
            | Self::EchoingStreams
            | Self::CpuCyclesPerByte
            | Self::ClientCpuCores
            | Self::ServerCpuCores
            | Self::Newer(_) => Unit::Count,
            _ => Unit::Seconds,
        }
    }

    /// Whether it counts things one by one, so that its values are whole numbers.
    pub fn is_whole(self) -> bool {
        matches!(
            self,
            Self::Failures | Self::MessagesLost | Self::Circuits | Self::Refused | Self::EchoingStreams
        )
    }

    /// Which of two values is better: of rates the higher one, of times and costs the lower one.
    pub fn better(self) -> Better {
        match self {
            Self::RelayCpu
            | Self::Circuits
            | Self::ClientCpuCores
            | Self::ServerCpuCores
            | Self::OneWayUncertainty
            | Self::Newer(_) => Better::Neither,
            Self::EchoingStreams => Better::Higher,
            _ => match self.unit() {
                Unit::BitsPerSecond | Unit::PerSecond | Unit::Share => Better::Higher,
                Unit::Seconds | Unit::Bytes | Unit::Count | Unit::Newer(_) => Better::Lower,
            },
        }
    }
}

/// Which of two values of a metric is better.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Better {
    /// The higher one.
    Higher,
    /// The lower one.
    Lower,
    /// Neither: the metric describes, and cannot be judged.
    Neither,
}
