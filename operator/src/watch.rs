//! Objects of some namespaces as one watch.
//!
//! A watch covers one namespace or all of them. An operator that may see only some namespaces needs one watch
//! for each. Their events are merged into those of a single watch, for a single store: a new list of one
//! namespace must not make the store forget the objects of the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Debug,
    mem,
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        controller::Error as ControllerError,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// Watches objects of these namespaces, or of all namespaces if none is named.
pub(crate) fn watch<K>(
    client: &Client,
    namespaces: &[String],
    config: watcher::Config,
) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    // Each watch has its own backoff after an error.
    let one = |api: Api<K>| watcher(api, config.clone()).default_backoff();
    if namespaces.is_empty() {
        return one(Api::all(client.clone())).boxed();
    }
    let mut merged = Merged::of(namespaces.len());
    let each = namespaces.iter().enumerate().map(|(index, namespace)| {
        one(Api::namespaced(client.clone(), namespace))
            .map(move |event| (index, event))
            .boxed()
    });
    stream::select_all(each)
        .flat_map(move |(index, event)| {
            stream::iter(match event {
                Ok(event) => merged.merge(index, event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        })
        .boxed()
}

/// Logs why a controller cannot watch. Failed passes are logged where they happen, and objects may be deleted
/// before their passes.
pub(crate) fn log_failure<T, R, Q>(result: Result<T, ControllerError<R, Q>>)
where
    R: Error + 'static,
    Q: Error + 'static,
{
    match result {
        Ok(_) | Err(ControllerError::ReconcilerFailed(..) | ControllerError::ObjectNotFound(_)) => {}
        Err(error) => tracing::warn!(%error, "failed to watch"),
    }
}

/// The objects of each namespace.
struct Merged<K> {
    namespaces: Vec<Namespace<K>>,
    /// Whether every namespace has been listed once, and all objects have been reported.
    begun: bool,
}

struct Namespace<K> {
    /// By name.
    objects: BTreeMap<String, K>,
    /// Names in the list in progress.
    listing: BTreeSet<String>,
    /// Whether a list has been complete.
    listed: bool,
}

impl<K: ResourceExt + Clone> Merged<K> {
    fn of(count: usize) -> Self {
        let namespace = || Namespace {
            objects: BTreeMap::new(),
            listing: BTreeSet::new(),
            listed: false,
        };
        Self {
            namespaces: (0..count).map(|_| namespace()).collect(),
            begun: false,
        }
    }

    /// The events of a watch of all namespaces, given one of the watch of a namespace.
    fn merge(&mut self, index: usize, event: Event<K>) -> Vec<Event<K>> {
        let changes = self.namespaces[index].changes(event);
        if self.begun {
            return changes;
        }
        self.begun = self.namespaces.iter().all(|namespace| namespace.listed);
        if !self.begun {
            return vec![];
        }
        let all = self
            .namespaces
            .iter()
            .flat_map(|namespace| namespace.objects.values());
        let all = all.cloned().map(Event::InitApply);
        [Event::Init]
            .into_iter()
            .chain(all)
            .chain([Event::InitDone])
            .collect()
    }
}

impl<K: ResourceExt + Clone> Namespace<K> {
    /// The changes without lists: a listed object exists, and one that is no longer listed was deleted.
    fn changes(&mut self, event: Event<K>) -> Vec<Event<K>> {
        match event {
            Event::Init => {
                self.listing.clear();
                vec![]
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any());
                self.changes(Event::Apply(object))
            }
            Event::InitDone => {
                self.listed = true;
                let (remaining, deleted) = mem::take(&mut self.objects)
                    .into_iter()
                    .partition(|(name, _)| self.listing.contains(name));
                self.objects = remaining;
                let deleted: BTreeMap<_, _> = deleted;
                deleted.into_values().map(Event::Delete).collect()
            }
            Event::Apply(object) => {
                self.objects.insert(object.name_any(), object.clone());
                vec![Event::Apply(object)]
            }
            Event::Delete(object) => {
                self.objects.remove(&object.name_any());
                vec![Event::Delete(object)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::{
        core::ObjectMeta,
        runtime::{reflector::store::Writer, watcher::Event},
    };

    use super::*;

    /// The contents of a store after these events.
    fn stored(events: Vec<(usize, Event<Pod>)>) -> Vec<String> {
        let mut writer = Writer::<Pod>::default();
        let mut merged = Merged::of(2);
        for (index, event) in events {
            for event in merged.merge(index, event) {
                writer.apply_watcher_event(&event);
            }
        }
        let mut names: Vec<_> = writer
            .as_reader()
            .state()
            .iter()
            .map(|pod| format!("{}/{}", pod.namespace().unwrap(), pod.name_any()))
            .collect();
        names.sort();
        names
    }

    fn pod(index: usize, name: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(["a", "b"][index].to_owned()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }

    fn list(index: usize, names: &[&str]) -> Vec<(usize, Event<Pod>)> {
        let objects = names.iter().map(|name| Event::InitApply(pod(index, name)));
        let events = [Event::Init].into_iter().chain(objects).chain([Event::InitDone]);
        events.map(|event| (index, event)).collect()
    }

    #[test]
    fn the_store_is_empty_until_every_namespace_has_been_listed() {
        let mut events = list(0, &["x"]);
        assert!(stored(events.clone()).is_empty());
        events.push((0, Event::Delete(pod(0, "x"))));
        events.push((0, Event::Apply(pod(0, "y"))));
        events.extend(list(1, &["x"]));
        assert_eq!(stored(events), ["a/y", "b/x"]);
    }

    #[test]
    fn a_new_list_removes_deleted_objects_of_its_namespace_only() {
        let mut events = [list(0, &["x", "y"]), list(1, &["x", "z"])].concat();
        events.push((0, Event::Init));
        assert_eq!(stored(events.clone()), ["a/x", "a/y", "b/x", "b/z"], "not yet");
        events.extend([(0, Event::InitApply(pod(0, "y"))), (0, Event::InitDone)]);
        assert_eq!(stored(events), ["a/y", "b/x", "b/z"]);
    }

    #[test]
    fn objects_of_one_name_in_two_namespaces_are_different() {
        let mut events = [list(0, &["x"]), list(1, &["x"])].concat();
        events.push((1, Event::Delete(pod(1, "x"))));
        assert_eq!(stored(events), ["a/x"]);
    }
}
