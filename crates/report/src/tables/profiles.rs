//! Profiles: whose code used the CPU, and which functions.

use perfrun_contract::{
    profile::{Group, Profile},
    reported_run::ReportedRun,
};

use crate::table::{Field, Kind, NOTHING, Table};

/// The number of functions listed for each profile.
const FUNCTIONS_MAX: usize = 5;

const GROUPS: [Group; 7] = [
    Group::Kernel,
    Group::Stack,
    Group::Crypto,
    Group::Runtime,
    Group::Allocator,
    Group::Perfrun,
    Group::Other,
];

/// The share of each group with the flame graphs, and the functions with the most samples.
pub(super) fn tables(results: &ReportedRun<'_>) -> Vec<Table> {
    let profiles = results.profiles;
    if profiles.is_empty() {
        return vec![];
    }
    vec![shares(profiles), functions(profiles)]
}

fn shares(profiles: &[Profile]) -> Table {
    let row = |profile: &Profile| {
        let share = |group| -> Field {
            match profile.groups.get(&group) {
                Some(_) => percent(profile.share(group)).into(),
                None => NOTHING.into(),
            }
        };
        let graph = Field {
            text: profile.flame_graph.clone(),
            link: Some(profile.flame_graph.clone()),
            ..Field::default()
        };
        let mut row: Vec<Field> = vec![profile.cell.as_str().into(), profile.role.to_string().into()];
        row.extend(GROUPS.map(share));
        row.extend([profile.samples.to_string().into(), graph]);
        row
    };
    let groups = GROUPS.map(|group| group.to_string());
    let others = ["samples", "flame graph"].map(str::to_owned);
    let others = groups.into_iter().chain(others);
    Table::new(Kind::Detail, &["cell", "nodes"], others, profiles.iter().map(row)).called(
        "Profiles",
        "share of CPU time in one extra trial of each cell, which counts in no other table",
    )
}

fn functions(profiles: &[Profile]) -> Table {
    let rows = profiles.iter().flat_map(|profile| {
        let functions = profile.functions.iter().take(FUNCTIONS_MAX);
        functions.map(|(name, samples)| {
            let share = *samples as f64 / profile.samples.max(1) as f64;
            let role = profile.role.to_string();
            vec![
                profile.cell.as_str().into(),
                role.into(),
                name.as_str().into(),
                percent(share).into(),
            ]
        })
    });
    Table::new(Kind::Detail, &["cell", "nodes", "function"], ["share"], rows).called(
        "Functions with the most CPU time",
        "share of CPU time in the function itself, without the functions that it calls",
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use perfrun_contract::role::Role;

    use super::*;

    #[test]
    fn shares_are_of_the_samples_and_functions_stand_in_their_order() {
        let profile = Profile {
            cell: "raw.raw.tcp.ping-1".to_owned(),
            role: Role::Client,
            samples: 200,
            groups: [(Group::Kernel, 150), (Group::Perfrun, 50)].into(),
            functions: (0..9).map(|i| (format!("f{i}"), 20 - i)).collect(),
            flame_graph: "profiles/a.svg".to_owned(),
        };
        let shares = shares(std::slice::from_ref(&profile));
        let texts: Vec<&str> = shares.rows[0].iter().map(|cell| cell.text.as_str()).collect();
        let expected = [
            "raw.raw.tcp.ping-1",
            "client",
            "75.0 %",
            "–",
            "–",
            "–",
            "–",
            "25.0 %",
            "–",
            "200",
            "profiles/a.svg",
        ];
        assert_eq!(texts, expected);
        assert_eq!(shares.rows[0].len(), shares.header.len());
        assert_eq!(shares.rows[0][10].link.as_deref(), Some("profiles/a.svg"));

        let functions = functions(&[profile]);
        assert_eq!(functions.rows.len(), FUNCTIONS_MAX);
        assert_eq!(functions.rows[0][2].text, "f0");
        assert_eq!(functions.rows[0][3].text, "10.0 %");
    }
}
