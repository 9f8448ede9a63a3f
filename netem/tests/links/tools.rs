//! Tools of others.
