//! The tasks of one host.

use std::future::Future;

use tokio::sync::{mpsc, oneshot};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::CLOSE_TIMEOUT;

/// All tasks that a host or its stack starts, so that they end with the host.
///
/// Stacks spawn tasks for connections and never end them. A process that starts a host per trial would
/// accumulate them.
#[derive(Clone, Default)]
pub(super) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Runs `task` until it or the host ends.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
        });
    }

    /// A guard that stops the tasks when it is dropped.
    pub(super) fn stop_on_drop(&self) -> DropGuard {
        self.stop.clone().drop_guard()
    }

    /// Stops the tasks and waits until they have dropped what they hold.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.tracker.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!(tasks = self.tracker.len(), "tasks of a host did not stop in time");
        }
    }
}

/// Sends a command to close something, and waits until that is closed. An unresponsive peer must not delay
/// the next trial: what is still open is dropped.
pub(super) async fn close<C>(
    commands: &mpsc::UnboundedSender<C>,
    command: impl FnOnce(oneshot::Sender<()>) -> C,
) {
    let (reply, closed) = oneshot::channel();
    if commands.send(command(reply)).is_ok() {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    }
}
