//! Where the parts of a run's results are kept and read again.

mod config_maps;
mod store_pod;

use async_trait::async_trait;
use perfrun_api::cluster::Part;
use thiserror::Error;

use self::{config_maps::ConfigMaps, store_pod::StorePod};
use crate::{
    api::call::{CallError, Forbidden},
    conduct::Job,
};

/// A place for parts. They never change.
#[async_trait]
pub(super) trait PartStore: Send + Sync {
    /// Most bytes of a part.
    fn part_bytes(&self) -> usize;

    /// Whether it answers soon or not at all, whatever authors do.
    fn is_prompt(&self) -> bool;

    /// Keeps a part. `continues` is the part that it was compressed together with. Returns `false` if a part
    /// of the name exists. A store returns `true` if that part has the same content.
    async fn put(&self, name: &str, part: &Part, continues: Option<&str>) -> Result<bool, Error>;

    /// The names of all parts of the run, each with the one that it continues.
    async fn list(&self) -> Result<Vec<(String, Option<String>)>, Error>;

    /// The bytes of a part with records, or why there are none. An answer of more than `most` is not read to
    /// its end.
    async fn get(&self, name: &str, most: usize) -> Result<Result<Vec<u8>, String>, Error>;
}

/// Why a part was not kept or read.
#[derive(Debug, Error)]
pub(in crate::conduct) enum Error {
    #[error(transparent)]
    Api(#[from] CallError),
    #[error("no answer in time")]
    Late,
    #[error("an answer of more than {0} bytes, which perfrun does not write")]
    TooLong(usize),
    #[error("{message}")]
    Store {
        message: String,
        /// Whether the store would give the same answer again.
        is_final: bool,
    },
}

impl Error {
    /// Whether another attempt would fail as well.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Api(error) => error.is_final(Forbidden::IsFinal),
            Self::Late => false,
            Self::TooLong(_) => true,
            Self::Store { is_final, .. } => *is_final,
        }
    }
}

/// The store of a run's parts.
pub(super) fn of(job: &Job) -> Box<dyn PartStore> {
    match job.spec.store() {
        None => Box::new(ConfigMaps::of(job)),
        Some(_) => Box::new(StorePod::of(job)),
    }
}

#[cfg(test)]
mod tests;
