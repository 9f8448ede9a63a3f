//! Whole reports of whole runs.

mod fixtures;
mod drawn;
mod plotted;
mod robust;
mod schema;
mod summarized;
