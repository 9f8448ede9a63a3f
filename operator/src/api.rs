//! What perfrun does with the API server. Imports no other wing.

pub(crate) mod call;
pub(crate) mod events;
pub(crate) mod objects;
pub(crate) mod publish;
