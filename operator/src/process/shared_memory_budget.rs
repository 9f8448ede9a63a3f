//! The memory that journals and specs of all runs share. The authors of documents choose how many runs there
//! are, and what each of them holds, so that limits for each run would add up.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Most KiB of compressed records that no store has taken.
const UNWRITTEN_KIB: usize = 16 << 10;
/// Most KiB of the fields of specs that may be large.
const SPECS_KIB: usize = 24 << 10;
/// What a byte that a spec counts takes, on average. Lists of empty objects, which the CRD keeps short, take
/// 25.
const SPEC_FACTOR: usize = 16;
/// Most reconciliations at the same time of runs and schedules whose specs are not kept.
const UNKEPT_SPECS_MAX: usize = 4;

/// The memory that all runs share. Clones share it as well.
#[derive(Clone, Debug)]
pub(crate) struct SharedMemoryBudget {
    reading: Arc<Mutex<()>>,
    unwritten: Arc<Semaphore>,
    specs: Arc<Semaphore>,
    unkept: Arc<Semaphore>,
}

impl Default for SharedMemoryBudget {
    fn default() -> Self {
        Self {
            reading: Arc::default(),
            unwritten: Arc::new(Semaphore::new(UNWRITTEN_KIB)),
            specs: Arc::new(Semaphore::new(SPECS_KIB)),
            unkept: Arc::new(Semaphore::new(UNKEPT_SPECS_MAX)),
        }
    }
}

impl SharedMemoryBudget {
    /// Waits for room to read what a run has kept, and holds it until the guard is dropped. One run has it at
    /// a time: it reads some MiB in one piece, and a record takes several times the memory of its text.
    pub(crate) async fn for_reading(&self) -> OwnedMutexGuard<()> {
        self.reading.clone().lock_owned().await
    }

    /// Room for compressed records that no store has taken, until the permit is dropped. `None` if there is
    /// not enough.
    pub(crate) fn for_unwritten(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        room(&self.unwritten, bytes)
    }

    /// Room for the large fields of a spec, which have this number of bytes, until the permit is dropped.
    /// `None` if there is not enough.
    pub(crate) fn for_spec(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        room(&self.specs, bytes.saturating_mul(SPEC_FACTOR))
    }

    /// Waits for room to reconcile a run or a schedule whose spec is not kept, and holds it until the permit
    /// is dropped.
    pub(crate) async fn for_unkept(&self) -> OwnedSemaphorePermit {
        let room = self.unkept.clone().acquire_owned().await;
        room.expect("nobody closes it")
    }
}

fn room(kib: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let needed = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
    kib.clone().try_acquire_many_owned(needed).ok()
}
