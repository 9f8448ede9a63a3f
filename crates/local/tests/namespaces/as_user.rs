//! As the user who runs the tests, and as nobody.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt},
    thread,
    time::Duration,
};

use crate::{
    held::{Held, started_by},
    support::eventually,
    user::User,
};

#[test]
fn two_nodes_reach_each_other_and_nothing_else() {
    for user in User::available() {
        user.run("scenario_reach");
    }
}

#[test]
fn the_namespace_of_perfrun_gets_no_link() {
    for user in User::available() {
        user.run("scenario_links");
    }
}

#[test]
fn settings_are_those_of_the_nodes_alone() {
    for user in User::available() {
        user.run("scenario_settings");
    }
}

#[test]
fn a_slot_takes_another_node_after_the_first_was_killed() {
    for user in User::available() {
        user.run("scenario_replace");
    }
}

#[test]
fn two_nodes_have_their_network_without_waiting() {
    for user in User::available() {
        user.run("scenario_fast");
    }
}

#[test]
fn dropping_the_network_removes_its_namespaces() {
    for user in User::available() {
        user.run("scenario_drop");
    }
}

#[test]
fn killing_perfrun_leaves_no_process_and_no_namespace() {
    for user in User::available() {
        if !user.can_have_namespaces() {
            continue;
        }
        let mut perfrun = user.start("scenario_hold");
        let held = Held::read(perfrun.stdout.as_mut().unwrap());
        assert_eq!(held.pids.len(), 2);
        assert_eq!(held.namespaces.len(), 2);
        assert_eq!(held.alive(), held.pids, "the nodes run before the kill");
        assert_eq!(
            held.present(),
            held.namespaces,
            "the namespaces exist before the kill"
        );

        perfrun.kill().unwrap();
        perfrun.wait().unwrap();
        eventually("nodes die with perfrun", || held.alive().is_empty());
        eventually("namespaces go with the nodes", || held.present().is_empty());
    }
}

#[test]
fn killing_perfrun_while_it_starts_nodes_leaves_nothing() {
    for user in User::available() {
        if !user.can_have_namespaces() {
            continue;
        }
        for delay in [0, 1, 2, 4, 7, 12, 20, 35, 60].map(Duration::from_millis) {
            let mut perfrun = user.start("scenario_churn");
            let mut ready = String::new();
            BufReader::new(perfrun.stdout.take().unwrap())
                .read_line(&mut ready)
                .unwrap();
            assert_eq!(ready, "ready\n");
            let tag = perfrun.id();
            eventually("nodes are started", || !started_by(tag).is_empty());
            thread::sleep(delay);
            perfrun.kill().unwrap();
            perfrun.wait().unwrap();
            eventually("nodes die with perfrun", || started_by(tag).is_empty());
        }
    }
}

#[test]
fn an_ordinary_user_becomes_root_of_the_nodes_only() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("result");
    for user in User::available() {
        let Some(output) = user.output_of("scenario_write", file.to_str().unwrap()) else {
            continue;
        };
        if user.uid() != 0 {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "UserNamespace");
        }
        assert_eq!(fs::metadata(&file).unwrap().uid(), user.uid());
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_refused_namespace_names_the_limit_to_raise_and_changes_nothing() {
    for user in User::available() {
        user.run("scenario_refused");
        user.run("scenario_crowded");
    }
}
