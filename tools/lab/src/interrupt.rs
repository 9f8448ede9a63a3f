//! Ctrl-C and SIGTERM end a wait, so that started programs are removed. A second signal exits immediately.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result, bail};
use signal_hook::{consts::TERM_SIGNALS, flag};

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

pub(crate) fn watch_signals() -> Result<()> {
    for signal in TERM_SIGNALS {
        // The order matters: the first signal finds the flag unset and sets it.
        flag::register_conditional_shutdown(*signal, 130, Arc::clone(&INTERRUPTED))
            .and_then(|_| flag::register(*signal, Arc::clone(&INTERRUPTED)))
            .context("failed to watch for Ctrl-C")?;
    }
    Ok(())
}

pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
