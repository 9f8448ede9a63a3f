//! Bounds that documents, requests to a node and the stacks have in common.

use std::time::Duration;

use crate::quantity::ByteSize;

/// Highest count, of bytes for example. Up to this, every whole number is a number of JSON (RFC 8259, section
/// 6).
pub const COUNT_MAX: u64 = 1 << 53;

/// How long a dial may take, with all stacks and transports: the default of libp2p and litep2p on TCP.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Most streams of a connection. yamux reserves 256 KiB for each stream, and libp2p grants a connection 1
/// GiB.
pub const STREAMS_MAX: u32 = 4096;

/// Most streams that a server serves at the same time, over all connections.
pub const SERVER_STREAMS_MAX: u32 = 65_536;

/// Most connections that a server accepts at the same time, whether established or not. Ten times the number
/// of a large run, and few enough not to fill memory.
pub const CONNECTIONS_MAX: usize = 8192;

/// Most bytes of one write or read. A node has a buffer of this size for each stream.
pub const CHUNK_MAX: ByteSize = ByteSize(16 << 20);

/// Most bytes of the line that a stream echoes.
pub const ECHO_LINE_MAX: ByteSize = ByteSize(1 << 20);

/// Fewest bytes of a message: its sequence number.
pub const MESSAGE_MIN: ByteSize = ByteSize(8);

/// Most bytes of a message.
pub const MESSAGE_MAX: ByteSize = ByteSize(1 << 20);

/// Most messages of a peer that are sent and not acknowledged.
pub const MESSAGE_WINDOW_MAX: u32 = 4096;

/// Highest rate of messages of a peer, per second.
pub const MESSAGE_RATE_MAX: u32 = 10_000_000;

/// Most servers to which a peer sends each message: the most that a topology has.
pub const RECEIVERS_MAX: u32 = 100;

/// Most bytes of a peer that are sent and not acknowledged. Stacks that pass messages hold them in memory.
pub const IN_FLIGHT_MAX: ByteSize = ByteSize(64 << 20);
