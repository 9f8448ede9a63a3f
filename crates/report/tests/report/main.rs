//! Whole reports of whole runs.

// In a test that is not marked as one, an unwrap also says what went wrong.
#![allow(clippy::unwrap_used)]

mod columns;
mod differences;
mod disturbed;
mod failed;
mod page;
mod plotted;
mod relay;
mod rendered;
mod robust;
mod schema;
mod stacks;
