//! The environment variables that a node reads. An older node refuses an argument that it does not know, but
//! not a variable.

/// The address that trials listen on and dial from.
pub const LISTEN_IP: &str = "PERFRUN_LISTEN_IP";

/// All addresses of the machine or pod, with commas in between.
pub const LISTEN_IPS: &str = "PERFRUN_LISTEN_IPS";

/// The IP family that the conductor needs.
pub const IP_FAMILY: &str = "PERFRUN_IP_FAMILY";

/// A file with the token that calls must carry.
pub const TOKEN_FILE: &str = "PERFRUN_TOKEN_FILE";

/// The name of the run, for the labels of metrics.
pub const RUN: &str = "PERFRUN_RUN";

/// The namespace of the run, for the labels of metrics.
pub const RUN_NAMESPACE: &str = "PERFRUN_RUN_NAMESPACE";

/// The name of the node in the plan, for the labels of metrics.
pub const RUN_NODE: &str = "PERFRUN_RUN_NODE";

/// The address that serves metrics and nothing else.
pub const METRICS: &str = "PERFRUN_METRICS";

/// How long a node that is stopped waits for a last scrape, in seconds.
pub const LINGER_SECONDS: &str = "PERFRUN_LINGER_SECONDS";

/// The digest of the node's program ([`Info::program_sha256`](super::Info::program_sha256)). A program that
/// starts many nodes sets it, so that not each of them reads its whole program.
pub const PROGRAM_SHA256: &str = "PERFRUN_PROGRAM_SHA256";
