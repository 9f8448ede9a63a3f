//! Objects of some namespaces as one watch.
//!
//! A watch is of one namespace or of all, and an operator that may see some of them only needs one of each. What they say
//! is put together as if one watch had said it, so that one store has all objects: a list of one namespace that begins
//! again must not make the store forget the others.

use std::{
    collections::{BTreeMap, BTreeSet},
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
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// Objects of these namespaces, or of all if there are none.
pub fn watch<K>(
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
    // Each waits by itself after an error.
    let one = |api: Api<K>| watcher(api, config.clone()).default_backoff();
    if namespaces.is_empty() {
        return one(Api::all(client.clone())).boxed();
    }
    let mut together = Together::of(namespaces.len());
    let each = namespaces.iter().enumerate().map(|(index, namespace)| {
        one(Api::namespaced(client.clone(), namespace))
            .map(move |event| (index, event))
            .boxed()
    });
    stream::select_all(each)
        .flat_map(move |(index, event)| {
            stream::iter(match event {
                Ok(event) => together.take(index, event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        })
        .boxed()
}

/// What was said of each namespace.
struct Together<K> {
    each: Vec<Namespace<K>>,
    /// Whether every namespace was listed once, and all that was told.
    begun: bool,
}

struct Namespace<K> {
    /// What is there, by name.
    known: BTreeMap<String, K>,
    /// Names in the list that is being told.
    listing: BTreeSet<String>,
    /// Whether a list was complete.
    listed: bool,
}

impl<K: ResourceExt + Clone> Together<K> {
    fn of(count: usize) -> Self {
        let namespace = || Namespace {
            known: BTreeMap::new(),
            listing: BTreeSet::new(),
            listed: false,
        };
        Self {
            each: (0..count).map(|_| namespace()).collect(),
            begun: false,
        }
    }

    /// What one watch of all would say when that of a namespace says this.
    fn take(&mut self, index: usize, event: Event<K>) -> Vec<Event<K>> {
        let said = self.each[index].take(event);
        if self.begun {
            return said;
        }
        self.begun = self.each.iter().all(|namespace| namespace.listed);
        if !self.begun {
            return vec![];
        }
        let all = self.each.iter().flat_map(|namespace| namespace.known.values());
        let all = all.cloned().map(Event::InitApply);
        [Event::Init]
            .into_iter()
            .chain(all)
            .chain([Event::InitDone])
            .collect()
    }
}

impl<K: ResourceExt + Clone> Namespace<K> {
    /// What happened, without lists: what is listed is there, and what is no longer listed was deleted.
    fn take(&mut self, event: Event<K>) -> Vec<Event<K>> {
        match event {
            Event::Init => {
                self.listing.clear();
                vec![]
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any());
                self.take(Event::Apply(object))
            }
            Event::InitDone => {
                self.listed = true;
                let (left, gone) = mem::take(&mut self.known)
                    .into_iter()
                    .partition(|(name, _)| self.listing.contains(name));
                self.known = left;
                let gone: BTreeMap<_, _> = gone;
                gone.into_values().map(Event::Delete).collect()
            }
            Event::Apply(object) => {
                self.known.insert(object.name_any(), object.clone());
                vec![Event::Apply(object)]
            }
            Event::Delete(object) => {
                self.known.remove(&object.name_any());
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

    /// Tells the events to a store, as a reflector does; what the store then has.
    fn stored(events: Vec<(usize, Event<Pod>)>) -> Vec<String> {
        let mut writer = Writer::<Pod>::default();
        let mut together = Together::of(2);
        for (index, event) in events {
            for event in together.take(index, event) {
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
    fn nothing_is_there_before_every_namespace_was_listed() {
        let mut events = list(0, &["x"]);
        assert!(stored(events.clone()).is_empty());
        events.push((0, Event::Delete(pod(0, "x"))));
        events.push((0, Event::Apply(pod(0, "y"))));
        events.extend(list(1, &["x"]));
        assert_eq!(stored(events), ["a/y", "b/x"]);
    }

    #[test]
    fn a_list_that_begins_again_forgets_what_is_gone_and_nothing_of_other_namespaces() {
        let mut events = [list(0, &["x", "y"]), list(1, &["x", "z"])].concat();
        events.push((0, Event::Init));
        assert_eq!(stored(events.clone()), ["a/x", "a/y", "b/x", "b/z"], "not yet");
        events.extend([(0, Event::InitApply(pod(0, "y"))), (0, Event::InitDone)]);
        assert_eq!(stored(events), ["a/y", "b/x", "b/z"]);
    }

    #[test]
    fn objects_of_one_name_in_two_namespaces_are_two() {
        let mut events = [list(0, &["x"]), list(1, &["x"])].concat();
        events.push((1, Event::Delete(pod(1, "x"))));
        assert_eq!(stored(events), ["a/x"]);
    }
}
