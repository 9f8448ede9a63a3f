//! Memory that all runs of the process share. The authors of documents choose how many runs there are, and
//! what each of them holds, so that limits for each run would add up.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Most KiB of compressed records that no store has taken.
const UNWRITTEN_KIB: usize = 16 << 10;

/// What all runs share. Clones share it as well.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    reading: Arc<Mutex<()>>,
    unwritten: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            reading: Arc::default(),
            unwritten: Arc::new(Semaphore::new(UNWRITTEN_KIB)),
        }
    }
}

impl Memory {
    /// Waits for room to read what a run has kept, until the guard is dropped. One run has it at a time: it
    /// reads some MiB in one piece, and a record takes several times the memory of its text.
    pub(crate) async fn for_reading(&self) -> OwnedMutexGuard<()> {
        self.reading.clone().lock_owned().await
    }

    /// Room for compressed records that no store has taken, until the permit is dropped. `None` if there is
    /// not enough.
    pub(crate) fn for_unwritten(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
        self.unwritten.clone().try_acquire_many_owned(kib).ok()
    }
}
