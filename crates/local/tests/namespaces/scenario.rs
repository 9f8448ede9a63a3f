//! Perfrun, as far as these tests need it.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::process::ExitStatusExt,
    path::Path,
    process,
    time::{Duration, Instant},
};

use perfrun_local::{Addresses, Launcher, LocalIsolation, LocalNetwork, NodeProcess, Privilege, privilege};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    argument,
    held::{CHURNED_BY, Held, id},
    node::{ask_control, log_says, node, own_links, shell},
    support::{TEST_TIMEOUT, eventually, within},
    user::SKIPPED,
};

pub(crate) fn play(name: &str) {
    match name {
        "scenario_probe" => drop(acquire()),
        "scenario_refused" => refused(),
        "scenario_crowded" => crowded(),
        "scenario_write" => {
            print!("{:?}", acquire());
            fs::write(argument(), "a result").unwrap();
        }
        _ => {
            acquire();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let launcher = Launcher::start().unwrap();
                match name {
                    "scenario_reach" => reach(&launcher).await,
                    "scenario_links" => links().await,
                    "scenario_settings" => settings(&launcher).await,
                    "scenario_replace" => replace(&launcher).await,
                    "scenario_fast" => fast().await,
                    "scenario_drop" => drop_all(&launcher).await,
                    "scenario_hold" => hold(&launcher).await,
                    "scenario_churn" => churn(&launcher).await,
                    unknown => panic!("no scenario {unknown}"),
                }
            });
        }
    }
}

async fn reach(launcher: &Launcher) {
    let network = namespaces(2).await;
    let other = namespaces(2).await;
    let [listening, dialling] = network.slots() else {
        panic!("two slots")
    };
    let Addresses { v4, v6 } = listening.addresses();
    assert_eq!(v4.to_string(), "10.99.0.1");
    let hosts = [Some(IpAddr::from(v4)), v6.map(IpAddr::from)]
        .into_iter()
        .flatten();
    assert!(v6.is_none() || Path::new("/proc/sys/net/ipv6").exists());
    for (host, port) in hosts.zip(4001..) {
        let target = SocketAddr::new(host, port);
        let server = launcher
            .spawn(node("node_echo", &target.to_string()), listening)
            .await
            .unwrap();
        log_says(&server, "listening").await;

        let client = launcher
            .spawn(node("node_dial", &target.to_string()), dialling)
            .await
            .unwrap();
        let exit = within(client.exited()).await;
        assert_eq!(exit.status.unwrap().code(), Some(0), "{exit}");

        let stranger = launcher
            .spawn(node("node_dial", &target.to_string()), &other.slots()[1])
            .await
            .unwrap();
        let refused = within(stranger.exited()).await.last_lines.join("\n");
        assert!(
            refused.contains("Connection refused"),
            "another run's network has the same addresses: {refused}"
        );
        within(server.stop(TEST_TIMEOUT)).await;
    }

    let server = launcher.spawn(node("node_control", ""), listening).await.unwrap();
    let answer = ask_control(&server);
    assert_eq!(answer["token"], server.token().as_str());
    assert_eq!(answer["namespace"], format!("net:[{}]", id(listening)));
    assert_eq!(answer["links"], "eth0 lo");
    assert_eq!(answer["files"], "5", "the standard ones, socket and token");
}

async fn links() {
    let before = own_links();
    let network = namespaces(3).await;
    assert_eq!(own_links(), before);
    drop(network);
    assert_eq!(own_links(), before);
}

async fn settings(launcher: &Launcher) {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let before = fs::read_to_string(path).unwrap();
    let network = namespaces(1).await;
    let rejected: Vec<_> = network
        .rejected_settings()
        .iter()
        .map(ToString::to_string)
        .collect();
    let slot = &network.slots()[0];
    let node = launcher.spawn(node("node_control", ""), slot).await.unwrap();
    let answer = ask_control(&node);
    if rejected.is_empty() {
        assert_eq!(
            (answer["ports"].as_str(), answer["reuse"].as_str()),
            ("1024\t65535", "1")
        );
    } else {
        eprintln!("not permitted here: {rejected:?}"); // a container with a read-only /proc/sys
    }
    assert_eq!(fs::read_to_string(path).unwrap(), before);
}

async fn replace(launcher: &Launcher) {
    let network = namespaces(1).await;
    let slot = &network.slots()[0];
    let first = launcher.spawn(node("node_control", ""), slot).await.unwrap();
    ask_control(&first);
    kill_process(pid(&first), Signal::KILL).unwrap();
    let exit = within(first.exited()).await;
    assert_eq!((exit.status.unwrap().signal(), exit.killed), (Some(9), false));
    let second = launcher.spawn(node("node_control", ""), slot).await.unwrap();
    assert_eq!(ask_control(&second)["links"], "eth0 lo");
}

async fn fast() {
    // The best of three: other programs use this machine as well.
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let network = namespaces(2).await;
        best = best.min(begun.elapsed());
        drop(network);
    }
    eprintln!("two nodes have their network after {best:?}");
    // Milliseconds on an idle machine; the bound only says that nothing waits for a timer.
    assert!(best < Duration::from_secs(2), "{best:?}");
}

async fn drop_all(launcher: &Launcher) {
    let network = namespaces(2).await;
    let mut nodes = Vec::new();
    for slot in network.slots() {
        nodes.push(launcher.spawn(node("node_control", ""), slot).await.unwrap());
    }
    let held = Held::of(&network, &nodes);
    drop(network);
    assert_eq!(held.present(), held.namespaces, "nodes keep theirs");
    drop(nodes);
    eventually("nothing is left", || {
        held.alive().is_empty() && held.present().is_empty()
    });
}

async fn hold(launcher: &Launcher) {
    let network = namespaces(2).await;
    let mut nodes = Vec::new();
    for slot in network.slots() {
        nodes.push(launcher.spawn(node("node_control", ""), slot).await.unwrap());
        ask_control(nodes.last().unwrap());
    }
    Held::of(&network, &nodes).write();
    within(std::future::pending::<()>()).await;
}

/// Starts and stops nodes until it is killed. They carry its process id, by which the test finds them.
async fn churn(launcher: &Launcher) {
    println!("ready");
    let mut running = Vec::new();
    loop {
        let network = namespaces(2).await;
        let mut nodes = Vec::new();
        for slot in network.slots() {
            let mut command = shell("exec sleep 1000");
            command
                .env
                .push((CHURNED_BY.into(), process::id().to_string().into()));
            nodes.push(launcher.spawn(command, slot).await.unwrap());
        }
        drop(std::mem::replace(&mut running, nodes));
    }
}

/// Enters a user namespace that may hold a limited number of further namespaces of each of these kinds.
fn limit(kinds: &[&str], number: u32) {
    acquire();
    // SAFETY: this process has one thread; its descriptor table stays as it is.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }.unwrap();
    for kind in kinds {
        fs::write(
            format!("/proc/sys/user/max_{kind}_namespaces"),
            number.to_string(),
        )
        .unwrap();
    }
}

/// In a user namespace that has room for one network namespace.
fn crowded() {
    limit(&["net"], 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let created = runtime.block_on(LocalNetwork::create(LocalIsolation::Namespaces, 2, None));
    let error = created.map(drop).unwrap_err().to_string();
    assert!(
        error.starts_with("failed to create the network namespace of "),
        "{error}"
    );
    assert!(
        error.ends_with("the limit of network namespaces is reached (sysctl user.max_net_namespaces is 1)"),
        "{error}"
    );
}

/// In a user namespace that may hold no further namespaces.
fn refused() {
    limit(&["user", "net"], 0);
    let before = fs::read_link("/proc/self/ns/user").unwrap();
    let error = privilege::acquire().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unable to create network namespaces: the limit of user namespaces is reached \
         (sysctl user.max_user_namespaces is 0)"
    );
    assert_eq!(fs::read_link("/proc/self/ns/user").unwrap(), before);
}

fn acquire() -> Privilege {
    privilege::acquire().unwrap_or_else(|error| {
        let source = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        eprintln!("{error}: {source}");
        process::exit(SKIPPED);
    })
}

async fn namespaces(nodes: usize) -> LocalNetwork {
    let network = LocalNetwork::create(LocalIsolation::Namespaces, nodes, None)
        .await
        .unwrap();
    assert_eq!(
        (network.isolation(), network.slots().len()),
        (LocalIsolation::Namespaces, nodes)
    );
    network
}

fn pid(node: &NodeProcess) -> Pid {
    Pid::from_raw(node.pid().try_into().unwrap()).unwrap()
}
