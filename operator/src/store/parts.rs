//! The parts of one run's results in a folder of a store. A part never changes.

use std::sync::Arc;

use axum::body::Bytes;
use futures::{StreamExt, TryStreamExt, future};
use object_store::{Error, GetResult, ObjectStore, ObjectStoreExt, PutMode, Result, path::Path};
use perfrun_api::pod::store::PARTS_MAX;

/// The folder of a run.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) folder: Path,
}

impl Parts {
    /// Keeps a part. Returns `false` if a part of the name has other content.
    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<bool> {
        let path = self.path(name);
        let put = self
            .store
            .put_opts(&path, bytes.clone().into(), PutMode::Create.into());
        match put.await {
            Ok(_) => Ok(true),
            // An earlier request, whose answer was lost, may have written it.
            Err(Error::AlreadyExists { .. }) => match self.get(name).await? {
                Some(found) if found.meta.size == bytes.len() as u64 => Ok(found.bytes().await? == bytes),
                _ => Ok(false),
            },
            Err(error) => Err(error),
        }
    }

    /// The names of all parts.
    pub(super) async fn list(&self) -> Result<Vec<String>> {
        let all = self.store.list(Some(&self.folder)).take(PARTS_MAX);
        let names = all.try_filter_map(|object| {
            let name = object.location.filename().map(str::to_owned);
            future::ready(Ok(name))
        });
        names.try_collect().await
    }

    /// A part. `None` if there is none of this name.
    pub(super) async fn get(&self, name: &str) -> Result<Option<GetResult>> {
        match self.store.get(&self.path(name)).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn path(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }
}
