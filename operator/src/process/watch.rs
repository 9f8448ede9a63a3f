//! Objects of some namespaces as one watch.
//!
//! A watch covers one namespace or all of them. An operator that may see only some namespaces needs one watch
//! for each. Their events are merged into those of a single watch, for a single cache: a new list of one
//! namespace must not make the cache forget the objects of the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Debug,
    future, mem,
    time::Duration,
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
use tokio::time::{Instant, sleep_until};

use crate::process::metrics::Metrics;

/// How long the other namespaces are waited for after the first has been listed. One in which the operator
/// has no rights must not stop them.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Objects that one request lists. Each may have 1.5 MB, and the client holds an answer twice while it is
/// read.
const PAGE: u32 = 10;

/// Watches objects of these namespaces, or of all namespaces if none is named. `prepare` changes each before
/// it is kept.
pub(crate) fn watch<K>(
    client: &Client,
    namespaces: &[String],
    config: watcher::Config,
    prepare: impl Fn(&mut K) + Clone + Send + 'static,
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
    let config = config.page_size(PAGE);
    // Each watch has its own backoff after an error.
    let one = |api: Api<K>| {
        let events = watcher(api, config.clone()).default_backoff();
        events.modify(prepare.clone())
    };
    if namespaces.is_empty() {
        return one(Api::all(client.clone())).boxed();
    }
    let merged = Merged::of(namespaces);
    let each = namespaces.iter().enumerate().map(|(index, namespace)| {
        one(Api::namespaced(client.clone(), namespace))
            .map(move |event| (index, event))
            .boxed()
    });
    let each = stream::select_all(each);
    let events = stream::unfold((each, merged), async |(mut each, mut merged)| {
        let events = tokio::select! {
            event = each.next() => match event? {
                (index, Ok(event)) => merged.merge(index, event).into_iter().map(Ok).collect(),
                (_, Err(error)) => vec![Err(error)],
            },
            () = merged.wait_until_overdue() => merged.list_all().into_iter().map(Ok).collect(),
        };
        Some((stream::iter(events), (each, merged)))
    });
    events.flatten().boxed()
}

/// Logs and counts why a controller cannot watch. Failed reconciliations are logged and counted where they
/// happen, and objects may be deleted before their reconciliations.
pub(crate) fn note_failure<T, R, Q>(result: Result<T, ControllerError<R, Q>>, metrics: &Metrics)
where
    R: Error + 'static,
    Q: Error + 'static,
{
    match result {
        Ok(_) | Err(ControllerError::ReconcilerFailed(..) | ControllerError::ObjectNotFound(_)) => {}
        Err(error) => {
            tracing::warn!(%error, "failed to watch");
            metrics.count_error("Watch");
        }
    }
}

/// The objects of each namespace.
struct Merged<K> {
    namespaces: Vec<Namespace<K>>,
    /// When the first of them was listed.
    first: Option<Instant>,
    /// Whether every namespace has been listed once, or is not waited for, and all objects have been
    /// reported.
    is_listed: bool,
}

struct Namespace<K> {
    name: String,
    /// By name.
    objects: BTreeMap<String, K>,
    /// Names in the list in progress.
    listing: BTreeSet<String>,
    /// Whether a list has been complete.
    listed: bool,
}

impl<K: ResourceExt + Clone> Merged<K> {
    fn of(namespaces: &[String]) -> Self {
        let namespace = |name: &String| Namespace {
            name: name.clone(),
            objects: BTreeMap::new(),
            listing: BTreeSet::new(),
            listed: false,
        };
        Self {
            namespaces: namespaces.iter().map(namespace).collect(),
            first: None,
            is_listed: false,
        }
    }

    /// Waits until all namespaces have had enough time to be listed. Never returns if they need no more, or
    /// if none has been listed: then the API server is away.
    async fn wait_until_overdue(&self) {
        match self.first {
            Some(first) if !self.is_listed => sleep_until(first + LIST_TIMEOUT).await,
            _ => future::pending().await,
        }
    }

    /// Takes in an event of the watch of a namespace. Returns those of a watch of all namespaces.
    fn merge(&mut self, index: usize, event: Event<K>) -> Vec<Event<K>> {
        let changes = self.namespaces[index].take_in(event);
        if self.is_listed {
            return changes;
        }
        if self.namespaces[index].listed {
            self.first.get_or_insert_with(Instant::now);
        }
        if self.namespaces.iter().all(|namespace| namespace.listed) {
            self.list_all()
        } else {
            vec![]
        }
    }

    /// Lists all objects. A namespace that has not been listed has none, until it can be listed.
    fn list_all(&mut self) -> Vec<Event<K>> {
        self.is_listed = true;
        for Namespace { name, .. } in self.namespaces.iter().filter(|namespace| !namespace.listed) {
            tracing::warn!(
                namespace = name,
                "the namespace cannot be listed and counts as empty: does it exist, with the operator's RoleBinding?"
            );
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
    /// Takes in an event. Returns the changes, without lists: a listed object exists, and one that is no
    /// longer listed was deleted.
    fn take_in(&mut self, event: Event<K>) -> Vec<Event<K>> {
        match event {
            Event::Init => {
                self.listing.clear();
                vec![]
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any());
                self.take_in(Event::Apply(object))
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
    use std::io;

    use http::Method;
    use k8s_openapi::api::core::v1::Pod;
    use kube::{
        core::ObjectMeta,
        runtime::{reflector::store::Writer, watcher::Event},
    };
    use serde_json::json;

    use super::*;
    use crate::test_server::{Answer, TestServer};

    /// The contents of the cache of a watch after these events.
    fn stored(events: Vec<(usize, Event<Pod>)>) -> Vec<String> {
        let mut writer = Writer::<Pod>::default();
        let mut merged = Merged::of(&["a", "b"].map(str::to_owned));
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

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_cannot_be_listed_stops_no_other() {
        let server = TestServer::new();
        for path in ["a/pods/x", "b/pods/y"] {
            let name = &path[path.len() - 1..];
            let pod = json!({"metadata": {"name": name, "namespace": &path[..1]}});
            server.put(&format!("/api/v1/namespaces/{path}"), pod);
        }
        server.script_times(
            100,
            Method::GET,
            "/namespaces/b/pods",
            Answer::Refuse(403, "forbidden"),
        );
        let namespaces = ["a", "b"].map(str::to_owned);
        let start = Instant::now();
        let events = watch::<Pod>(&server.client(), &namespaces, watcher::Config::default(), |_| {});
        let mut events = events.filter_map(async |event| event.ok()).boxed();
        let mut next = async || match events.next().await.unwrap() {
            Event::InitApply(pod) | Event::Apply(pod) => pod.name_any(),
            Event::Init => "begins".to_owned(),
            Event::InitDone => "is complete".to_owned(),
            Event::Delete(pod) => panic!("{} was not deleted", pod.name_any()),
        };
        for expected in ["begins", "x", "is complete"] {
            assert_eq!(next().await, expected);
        }
        assert_eq!(start.elapsed().as_secs(), LIST_TIMEOUT.as_secs());
        assert_eq!(next().await, "y", "it can be listed at last");
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_listed_ten_at_a_time() {
        let server = TestServer::new();
        for number in 0..25 {
            let pod = json!({"metadata": {"name": number.to_string(), "namespace": "a"}});
            server.put(&format!("/api/v1/namespaces/a/pods/{number}"), pod);
        }
        let events = watch::<Pod>(&server.client(), &[], watcher::Config::default(), |_| {});
        let events = events.map(Result::unwrap);
        let listed = events.take_while(|event| future::ready(!matches!(event, Event::InitDone)));
        let objects = listed.filter(|event| future::ready(matches!(event, Event::InitApply(_))));
        assert_eq!(objects.count().await, 25);
        assert_eq!(server.largest_page(), 10);
    }

    #[test]
    fn a_watch_that_fails_is_counted() {
        let metrics = Metrics::new();
        let error: ControllerError<io::Error, io::Error> =
            ControllerError::QueueError(io::Error::other("forbidden"));
        note_failure::<(), _, _>(Err(error), &metrics);
        let page = metrics.encode();
        let counted = r#"perfrun_operator_reconcile_errors_total{category="Watch"} 1"#;
        assert!(page.contains(counted), "{page}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_no_known_objects_before_it_was_listed() {
        let server = TestServer::new();
        server.script(Method::GET, "/pods", Answer::Refuse(500, "etcd is away"));
        let namespaces = ["a", "b"].map(str::to_owned);
        let events = watch::<Pod>(&server.client(), &namespaces, watcher::Config::default(), |_| {});
        let mut events = events.filter_map(async |event| event.ok()).boxed();
        let known = tokio::time::timeout(Duration::from_secs(600), events.next()).await;
        assert!(known.is_err(), "{known:?}");
    }

    #[test]
    fn objects_of_one_name_in_two_namespaces_are_different() {
        let mut events = [list(0, &["x"]), list(1, &["x"])].concat();
        events.push((1, Event::Delete(pod(1, "x"))));
        assert_eq!(stored(events), ["a/x"]);
    }
}
