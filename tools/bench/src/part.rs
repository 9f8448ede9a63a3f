//! Parts of benchmarks that are processes of their own.

/// The environment variable that names the part of a benchmark for which this program was started again: the
/// module, and what it must do.
pub(crate) const PART: &str = "PERFRUN_BENCH_PART";
