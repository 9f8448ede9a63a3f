//! Ctrl-C as a terminal sends it, while xtask waits for cargo.

use std::{
    fs::{self, Permissions},
    io::Read,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};

#[test]
fn ctrl_c_ends_cargo_and_a_second_one_also_a_cargo_that_ignores_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (name, prepare, presses) in [("obedient", "", 1), ("deaf", "trap '' INT", 2)] {
        let cargo = folder.path().join(name);
        fs::write(&cargo, format!("#!/bin/sh\n{prepare}\necho\nsleep 600\n")).unwrap();
        fs::set_permissions(&cargo, Permissions::from_mode(0o755)).unwrap();
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        // Does not need root, and builds a program first.
        xtask.args(["lab", "kubeconfig"]);
        xtask.env("CARGO", &cargo).env_remove("PERFRUN_XTASK_NESTED");
        xtask.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut xtask = xtask.process_group(0).spawn().unwrap();
        let mut stdout = xtask.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        for _ in 0..presses {
            kill_process_group(Pid::from_child(&xtask), Signal::INT).unwrap();
            // Signals within a second count as one.
            thread::sleep(Duration::from_millis(1_200));
        }
        // Each of the processes keeps it open.
        stdout.read_to_end(&mut vec![]).unwrap();
        assert_eq!(xtask.wait().unwrap().code(), Some(130), "{name}");
    }
}
