//! A first document for each workload, with a comment on each field: what `perfrun new` writes.
//!
//! All of them are in one file, so that no file of Rust has to list the workloads.

/// The documents. The first line of each is the question that it answers.
const ALL: &str = include_str!("first_documents.yaml");

/// The document of a workload, by the name that documents have for it.
pub(crate) fn of(workload: &str) -> &'static str {
    let field = format!("\n  workload:\n    {workload}:\n");
    let mut documents = ALL.split("\n---\n");
    documents
        .find(|document| document.contains(&field))
        .expect("a test reads the document of each workload")
}

/// The question that the document of a workload answers.
pub(crate) fn question(workload: &str) -> &'static str {
    let first = of(workload).lines().next().unwrap_or_default();
    first.trim_start_matches("# ")
}
