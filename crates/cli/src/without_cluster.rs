//! The commands that talk to a cluster, in a program that was built without them.

use anyhow::bail;

/// Commands that only say what to do instead.
macro_rules! absent {
    ($($command:ident)*) => {
        $(
            /// Fails: this program has no client of Kubernetes.
            pub async fn $command<Arguments>(_: &Arguments) -> anyhow::Result<u8> {
                bail!(
                    "this perfrun was built without its commands for clusters, as `cargo xtask demo` builds it; build \
                     a complete one with `cargo build --release -p perfrun-cli`"
                )
            }
        )*
    };
}

absent!(cancel get_results list logs run watch);

/// Fails like the other commands.
pub async fn conformance<Arguments, Check>(args: &Arguments, _: Check) -> anyhow::Result<u8> {
    list(args).await
}
