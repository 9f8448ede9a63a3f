//! What perfrun does with the API server. Imports no other wing.

pub(crate) mod call;
pub(crate) mod conditions;
pub(crate) mod events;
pub(crate) mod objects;
pub(crate) mod publish;
pub(crate) mod watched;
