//! `perfrun link show`.

use perfrun_emulator::{Inspection, abilities};
use perfrun_link::{Abilities, Ability, ActiveBackend, LinkState};
use serde_json::{Value, json};

use super::{namespace::check_interface, words};
use crate::{args, output::write_to_stdout};

/// Shows how an interface is impaired, or what could impair it. Returns the exit status.
pub(super) fn show(args: &args::ShowLink) -> anyhow::Result<u8> {
    let interface = &args.interface;
    let (found, abilities) = args.namespace.enter(|| {
        check_interface(interface)?;
        let found = perfrun_emulator::inspect(interface)?;
        let wants_abilities = args.capabilities || found == Inspection::Unimpaired;
        Ok((found, wants_abilities.then(|| abilities::detect(interface))))
    })?;
    if args.json {
        write_to_stdout(&(object(interface, &found, abilities.as_ref()).to_string() + "\n"))?;
        return Ok(0);
    }
    let mut text = text(interface, &found);
    if let Some(abilities) = &abilities {
        text += &backends(abilities);
    }
    write_to_stdout(&text)?;
    Ok(0)
}

fn object(interface: &str, found: &Inspection, abilities: Option<&Abilities>) -> Value {
    let mut object = match found {
        Inspection::Unimpaired => json!({"interface": interface, "found": "nothing"}),
        Inspection::Kernel(state) => {
            let mut object = words::state_object(interface, state);
            // The distribution in the state is only the default.
            if has_jitter(state) {
                object["untold"] = json!(["distribution"]);
            }
            object
        }
        Inspection::Userspace { state, process } => {
            let mut object = words::state_object(interface, state);
            object["process"] = json!(process);
            object
        }
        Inspection::Silent { peers } => json!({"interface": interface, "found": "silent", "peers": peers}),
        Inspection::Closed { peers } => json!({"interface": interface, "found": "closed", "peers": peers}),
    };
    if let Some(abilities) = abilities {
        object["capabilities"] = json!(abilities);
    }
    object
}

fn has_jitter(state: &LinkState) -> bool {
    let mut routes = state.link.routes().iter();
    routes.any(|route| route.impairment.jitter.is_some())
}

fn text(interface: &str, found: &Inspection) -> String {
    match found {
        Inspection::Unimpaired => format!("{interface}: nothing is impaired\n"),
        Inspection::Kernel(state) => {
            let note = if has_jitter(state) {
                "The kernel does not report the distribution of the delay.\n"
            } else {
                ""
            };
            words::state(interface, state, None) + note
        }
        Inspection::Userspace { state, process } => words::state(interface, state, Some(*process)),
        Inspection::Silent { peers } => format!(
            "{interface}: packets to {} are impaired by a process that does not answer\n",
            words::peers(peers)
        ),
        Inspection::Closed { peers } => format!(
            "{interface}: the process that impaired packets to {} has died, and none of them pass: \
             run `perfrun link clear` to let them pass, or `perfrun link set` to impair them again\n",
            words::peers(peers)
        ),
    }
}

fn backends(abilities: &Abilities) -> String {
    let Abilities {
        kernel,
        userspace,
        real_time,
    } = abilities;
    let line = |name: &str, ability: &Ability| match ability {
        Ability::Available => format!("  {name}: works\n"),
        Ability::Unavailable { reason, detail } => format!("  {name}: {reason} ({detail})\n"),
    };
    format!(
        "Backends that could impair this interface:\n{}{}{}",
        line(&format!("the {}", ActiveBackend::Kernel), kernel),
        line("user space", userspace),
        line("user space with real-time priority", real_time)
    )
}

#[cfg(test)]
mod tests {
    use perfrun_link::{Impairment, Mode, Obstacle, OutgoingLinks, state::Traffic};

    use super::*;

    fn kernel() -> Inspection {
        let impairment = Impairment {
            delay: std::time::Duration::from_millis(25),
            ..Impairment::default()
        };
        Inspection::Kernel(LinkState {
            link: OutgoingLinks::to(["10.0.0.2".parse().unwrap()], impairment).unwrap(),
            backend: ActiveBackend::Kernel,
            mode: Mode::SuperPackets,
            traffic: vec![Traffic::Kernel {
                packets_out: 7,
                dropped: 0,
                held: 2,
            }],
            worker: None,
        })
    }

    #[test]
    fn a_dead_emulator_comes_with_advice() {
        let closed = Inspection::Closed {
            peers: vec!["10.0.0.2".parse().unwrap(), "10.0.0.3".parse().unwrap()],
        };
        let shown = text("eth0", &closed);
        assert!(shown.contains("10.0.0.2 and 10.0.0.3 has died"), "{shown}");
        assert!(shown.contains("perfrun link clear"), "{shown}");
        assert_eq!(object("eth0", &closed, None)["peers"][1], "10.0.0.3");
    }

    #[test]
    fn each_route_of_a_link_is_a_line() {
        let shown = text("eth0", &kernel());
        assert_eq!(
            shown,
            "eth0: impaired by the kernel; merged packets stay merged\n\
             TO         IMPAIRMENT   PACKETS OUT   DROPPED   HELD\n\
             10.0.0.2   delay 25ms   7             0         2\n"
        );
        let object = object("eth0", &kernel(), None);
        assert_eq!(object["found"], "kernel");
        assert_eq!(object["state"]["traffic"][0]["packetsOut"], 7);
        assert_eq!(object["untold"], Value::Null);
    }

    #[test]
    fn an_unavailable_backend_is_shown_with_its_reason() {
        let shown = backends(&Abilities {
            kernel: Ability::Unavailable {
                reason: Obstacle::NoNetem,
                detail: "tried".to_owned(),
            },
            userspace: Ability::Available,
            real_time: Ability::Available,
        });
        assert!(
            shown.contains("the kernel: this kernel has no netem: run `modprobe sch_netem`"),
            "{shown}"
        );
        assert!(shown.contains("user space: works\n"), "{shown}");
    }
}
