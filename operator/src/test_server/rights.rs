//! The rights that the chart grants to the operator, as the test server enforces them.

use std::{collections::BTreeSet, sync::LazyLock};

use http::Method;
use k8s_openapi::api::rbac::v1::PolicyRule;
use perfrun_test_kit::api_server::Call;
use serde_json::Value;

use super::{LEASE, SYSTEM};

const TEMPLATE: &str = include_str!("../../../charts/perfrun/templates/rbac.yaml");

/// What the chart grants.
pub(super) struct Rights {
    /// In the namespace of the operator.
    own: Vec<PolicyRule>,
    /// In all namespaces with runs.
    runs: Vec<PolicyRule>,
}

impl Rights {
    /// The rights of the template.
    pub(super) fn of_chart() -> &'static Self {
        static RIGHTS: LazyLock<Rights> = LazyLock::new(Rights::read);
        &RIGHTS
    }

    /// Reads the template. Only its rules matter, which contain no value but the name of the Lease.
    fn read() -> Self {
        let (objects, _) = TEMPLATE.split_once("{{- define").unwrap();
        let lines = objects.replace("{{ $operator }}", LEASE);
        let lines = lines.lines().filter(|line| !line.contains("{{"));
        let objects = lines.collect::<Vec<_>>().join("\n");
        let mut all = objects.split("\n---\n").filter_map(|object| {
            let object: Value = serde_saphyr::from_str(object).unwrap();
            let rules = object.get("rules")?.clone();
            Some(serde_json::from_value(rules).unwrap())
        });
        Self {
            own: all.next().unwrap(),
            runs: all.next().unwrap(),
        }
    }

    /// The right to make this call, as `resource verb`. `None` if the operator has none.
    pub(super) fn right(&self, call: &Call) -> Option<String> {
        // Everybody may ask for the version. An operator outside of the cluster, which reaches nodes through
        // the API server, has the rights of its kubeconfig.
        if call.path == "/version" || call.path.contains("/proxy/") {
            return Some(call.path.clone());
        }
        let request = Attributes::of(call)?;
        let own = self.own.iter().filter(|_| request.namespace == Some(SYSTEM));
        let granted = own.chain(&self.runs).any(|rule| request.is_in(rule));
        granted.then(|| format!("{} {}", request.resource, request.verb))
    }

    /// All rights.
    pub(super) fn all(&self) -> BTreeSet<String> {
        let rules = self.own.iter().chain(&self.runs);
        let rights = rules.flat_map(|rule| {
            let resources = rule.resources.iter().flatten();
            resources.flat_map(|resource| rule.verbs.iter().map(move |verb| format!("{resource} {verb}")))
        });
        rights.collect()
    }
}

/// A request as RBAC sees it.
struct Attributes<'a> {
    verb: &'static str,
    group: &'a str,
    namespace: Option<&'a str>,
    /// With the subresource, if there is one.
    resource: String,
    name: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// `None` if the path is not of an object or a collection.
    fn of(call: &'a Call) -> Option<Self> {
        let mut parts = call.path.split('/').skip(1).peekable();
        let group = match parts.next()? {
            "api" => "",
            _ => parts.next()?,
        };
        let _version = parts.next()?;
        let namespace = match parts.next_if_eq(&"namespaces") {
            Some(_) => parts.next(),
            None => None,
        };
        let (resource, name) = (parts.next()?, parts.next());
        let verb = match (&call.method, name) {
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) if call.is_watch() => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => return None,
        };
        let resource = match parts.next() {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        };
        Some(Self {
            verb,
            group,
            namespace,
            resource,
            name,
        })
    }

    fn is_in(&self, rule: &PolicyRule) -> bool {
        let has = |all: &Option<Vec<String>>, one: &str| all.iter().flatten().any(|other| other == one);
        has(&rule.api_groups, self.group)
            && has(&rule.resources, &self.resource)
            && rule.verbs.iter().any(|verb| verb == self.verb)
            && (rule.resource_names.is_none()
                || self.name.is_some_and(|name| has(&rule.resource_names, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(method: Method, path: &str) -> bool {
        let call = Call {
            method,
            path: path.to_owned(),
            query: String::new(),
            wants_metadata: false,
            body: Value::Null,
        };
        Rights::of_chart().right(&call).is_some()
    }

    #[test]
    fn objects_of_a_run_are_created_and_never_changed() {
        for collection in [
            "/api/v1/namespaces/bench/pods",
            "/api/v1/namespaces/bench/configmaps",
            "/api/v1/namespaces/bench/secrets",
            "/apis/networking.k8s.io/v1/namespaces/bench/networkpolicies",
        ] {
            let object = format!("{collection}/a");
            assert!(may(Method::POST, collection), "{collection}");
            assert!(
                !may(Method::PUT, &object) && !may(Method::PATCH, &object),
                "{object}"
            );
            assert!(!may(Method::DELETE, collection), "{collection}");
            assert_eq!(
                may(Method::DELETE, &object),
                object.contains("/pods/"),
                "{object}"
            );
        }
    }

    #[test]
    fn the_only_secret_that_may_be_read_is_the_key() {
        assert!(may(
            Method::GET,
            "/api/v1/namespaces/perfrun-system/secrets/perfrun-operator-key"
        ));
        assert!(!may(
            Method::GET,
            "/api/v1/namespaces/perfrun-system/secrets/other"
        ));
        assert!(!may(
            Method::GET,
            "/api/v1/namespaces/bench/secrets/perfrun-operator-key"
        ));
        assert!(!may(Method::GET, "/api/v1/namespaces/bench/secrets"));
    }
}
