//! Profiles of nodes: `perf` samples them during one extra trial of each cell.
//!
//! | module | subject |
//! |---|---|
//! | `perf` | the program: whether it may sample, a recording, its stacks |
//! | `stacks` | stacks as one line each, and as a flame graph: pure |
//! | `groups` | whose code a stack is in: pure |
//!
//! ```text
//! profiles/
//!   CELL.ROLE.folded   each stack on a line, with its number of samples; read as CELL.ROLE.folded.gz, too
//!   CELL.ROLE.svg      the flame graph
//! ```

mod groups;
mod perf;
mod stacks;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use perfrun_contract::{
    plan::{Cell, Names, Plan},
    profile::{Group, Profile},
    role::Role,
};

use crate::results_folder::{atomic, opening};

pub use self::perf::{CallGraph, Error, Recorded, Recording, check};

/// The folder of profiles in a results folder.
const FOLDER: &str = "profiles";

/// The nodes of a cell by role, for each role that has any.
pub fn nodes(cell: &Cell) -> impl Iterator<Item = (Role, &Names)> {
    let by_role = cell.nodes_by_role().into_iter();
    by_role.filter(|(_, names)| !names.is_empty())
}

/// The samples of each group, of what `perf script` printed.
pub fn groups(script: &[u8]) -> anyhow::Result<BTreeMap<Group, u64>> {
    let (groups, _) = groups::count_samples(&stacks::fold(script)?);
    Ok(groups)
}

/// Whether a results folder has the profiles of a cell.
pub fn exists(results: &Path, cell: &Cell) -> bool {
    nodes(cell).all(|(role, _)| file(results, cell, role, "svg").is_file())
}

/// The profiles of a results folder, in the order of the plan.
pub fn read(results: &Path, plan: &Plan) -> Vec<Profile> {
    let of_cell = |cell| nodes(cell).filter_map(move |(role, _)| of(results, cell, role));
    plan.cells.iter().flat_map(of_cell).collect()
}

fn of(results: &Path, cell: &Cell, role: Role) -> Option<Profile> {
    let flame_graph = name(cell, role, "svg");
    if !results.join(&flame_graph).is_file() {
        return None;
    }
    let stacks = file(results, cell, role, "folded");
    let compressed = || opening::text(&stacks.with_extension("folded.gz"));
    let folded = opening::text(&stacks).or_else(|_| compressed()).ok()?;
    let (groups, functions) = groups::count_samples(&folded);
    Some(Profile {
        cell: cell.id.clone(),
        role,
        samples: groups.values().sum(),
        groups,
        functions,
        flame_graph,
    })
}

/// Creates the folder of profiles. Returns a file in it for the recording of a cell.
pub fn recording_file(results: &Path, cell: &Cell) -> io::Result<PathBuf> {
    fs::create_dir_all(results.join(FOLDER))?;
    Ok(results.join(FOLDER).join(format!("{}.perf.data", cell.id)))
}

/// Writes the profile of the nodes of a role from what `perf script` printed. The flame graph comes last, so
/// that a profile with one is complete.
pub fn write(results: &Path, cell: &Cell, role: Role, script: &[u8]) -> anyhow::Result<()> {
    let folded = stacks::fold(script)?;
    let title = format!("{}, {role}", cell.id);
    let graph = stacks::flame_graph(&folded, &title)?;
    atomic::write(&file(results, cell, role, "folded"), folded.as_bytes())?;
    atomic::write(&file(results, cell, role, "svg"), &graph)?;
    Ok(())
}

fn file(results: &Path, cell: &Cell, role: Role, extension: &str) -> PathBuf {
    results.join(name(cell, role, extension))
}

fn name(cell: &Cell, role: Role, extension: &str) -> String {
    format!("{FOLDER}/{}.{role}.{extension}", cell.id)
}
