//! Which CPUs the nodes of each role may use.

use std::{collections::BTreeMap, io};

use perfrun_contract::{
    plan::{Cpus, PlannedNode},
    role::Role,
};
use rustix::thread::{CpuSet, sched_getaffinity};
use thiserror::Error;

/// Why CPUs cannot be split.
#[derive(Debug, Error)]
pub enum Error {
    /// There are more roles than CPUs.
    #[error(
        "topology.cpus: split gives servers, clients and relays CPUs of their own. This run needs {roles}, and perfrun \
         may use {cpus}: leave topology.cpus out, or use a machine with more"
    )]
    TooFew {
        /// Roles of the run.
        roles: usize,
        /// CPUs that this process may use.
        cpus: usize,
    },
    /// The kernel does not say which CPUs this process may use.
    #[error("failed to find the CPUs of this process")]
    Find(#[source] io::Error),
}

/// The CPUs of each role. Empty if all roles may use all CPUs.
pub(crate) fn of_roles(cpus: Cpus, nodes: &[PlannedNode]) -> Result<BTreeMap<Role, CpuSet>, Error> {
    if cpus == Cpus::Shared {
        return Ok(BTreeMap::new());
    }
    let usable = sched_getaffinity(None).map_err(|error| Error::Find(error.into()))?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| usable.is_set(*cpu)).collect();
    let mut roles: Vec<Role> = nodes.iter().map(|node| node.role).collect();
    roles.sort_unstable();
    roles.dedup();
    split(&roles, &usable)
}

/// Neighbours stay together, since they may share a core.
fn split(roles: &[Role], usable: &[usize]) -> Result<BTreeMap<Role, CpuSet>, Error> {
    let (parts, cpus) = (roles.len(), usable.len());
    if cpus < parts {
        return Err(Error::TooFew { roles: parts, cpus });
    }
    let part = |(number, role): (usize, &Role)| {
        let mut set = CpuSet::new();
        for cpu in &usable[number * cpus / parts..(number + 1) * cpus / parts] {
            set.set(*cpu);
        }
        (*role, set)
    };
    Ok(roles.iter().enumerate().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; 3] = [Role::Server, Role::Client, Role::Relay];

    fn of(parts: &BTreeMap<Role, CpuSet>, role: Role) -> Vec<usize> {
        let set = parts[&role];
        (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
    }

    #[test]
    fn every_role_has_an_equal_part_of_the_cpus_and_shares_none() {
        let parts = split(&ROLES[..2], &[0, 1]).unwrap();
        assert_eq!(of(&parts, Role::Server), [0]);
        assert_eq!(of(&parts, Role::Client), [1]);
        let parts = split(&ROLES, &[2, 3, 4, 6, 7, 8, 9]).unwrap();
        let all: Vec<usize> = ROLES.into_iter().flat_map(|role| of(&parts, role)).collect();
        assert_eq!(all, [2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(ROLES.map(|role| of(&parts, role).len()), [2, 2, 3]);
    }

    #[test]
    fn too_few_cpus_are_refused() {
        let error = split(&ROLES, &[0, 1]).unwrap_err();
        assert!(
            error.to_string().contains("needs 3, and perfrun may use 2"),
            "{error}"
        );
    }
}
