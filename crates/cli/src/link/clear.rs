//! `perfrun link clear`.

use perfrun_emulator::Inspection;
use perfrun_link::Obstacle;

use super::{namespace::check_interface, words};
use crate::{args, output::write_to_stdout};

/// Removes the impairment that perfrun has set. Returns the exit status.
pub(super) fn clear(args: &args::ClearLink) -> anyhow::Result<u8> {
    let interface = &args.interface;
    let (found, cleared) = args.namespace.enter(|| {
        check_interface(interface)?;
        // An impairment that cannot be read can still be removed.
        let found = perfrun_emulator::inspect(interface).ok();
        let cleared = perfrun_emulator::clear(interface).map_err(|error| {
            let denied = error.is_denied();
            let error = anyhow::Error::from(error);
            if denied {
                error.context(Obstacle::NotPermitted)
            } else {
                error
            }
        })?;
        Ok((found, cleared))
    })?;
    write_to_stdout(&format!("{interface}: {}\n", text(found.as_ref(), cleared)))?;
    Ok(0)
}

fn text(found: Option<&Inspection>, cleared: bool) -> String {
    match found {
        _ if !cleared => "nothing to remove".to_owned(),
        Some(Inspection::Kernel(state)) => {
            format!("removed netem from the link to {}", words::all_peers(&state.link))
        }
        Some(Inspection::Closed { peers }) => format!(
            "removed the rules of a killed process; packets to {} pass again",
            words::peers(peers)
        ),
        Some(Inspection::Userspace { state, process }) => format!(
            "removed the rules for packets to {}; {}, which impaired them, still runs: stop it",
            words::all_peers(&state.link),
            words::process(*process)
        ),
        Some(Inspection::Silent { peers }) => format!(
            "removed the rules for packets to {}; the process that impaired them still runs: stop it",
            words::peers(peers)
        ),
        Some(Inspection::Unimpaired) | None => "removed".to_owned(),
    }
}
