//! Where objects are, and answers about them.

use axum::{body::Body, response::Response};
use http::StatusCode;

/// Where an object or a collection is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Place {
    pub(crate) resource: String,
    /// Empty for all namespaces.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Reads a path. Returns what follows the name, too.
    pub(crate) fn read(path: &str) -> (Self, &str) {
        let in_group = || path.splitn(5, '/').nth(4).unwrap_or_default();
        let path = path.strip_prefix("/api/v1/").unwrap_or_else(in_group);
        let in_namespace = path
            .strip_prefix("namespaces/")
            .and_then(|path| path.split_once('/'));
        let (namespace, path) = in_namespace.unwrap_or(("", path));
        let mut parts = path.splitn(3, '/');
        let mut next = || parts.next().unwrap_or_default();
        let (resource, name) = (next(), next());
        (Self::new(resource, namespace, name), next())
    }

    /// Whether this collection has the object.
    pub(crate) fn has(&self, object: &Self) -> bool {
        self.resource == object.resource && (self.namespace.is_empty() || self.namespace == object.namespace)
    }
}

pub(crate) fn response(code: u16, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
