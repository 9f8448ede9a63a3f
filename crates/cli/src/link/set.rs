//! `perfrun link set`.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use perfrun_emulator::{AddressLocation, Emulator, Options, Status, abilities, locate};
use perfrun_link::{Ability, ActiveBackend, Backend, LinkState, OutgoingLinks};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use super::{namespace::check_interface, words};
use crate::{
    args::{self, InvalidCommandLine},
    output::{block_on, write_line_to_stderr, write_to_stdout},
    signals::HangUp,
};

/// How often to check that the emulator still works.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Impairs a link, in the kernel until it is cleared, in user space until this process stops. Returns the
/// exit status.
pub(super) fn set(args: &args::SetLink) -> anyhow::Result<u8> {
    let impairment = args.impairment.to_impairment();
    let impairment = impairment.map_err(|problem| InvalidCommandLine(problem.to_string()))?;
    if impairment.is_none() {
        let problem = "no impairment given: add --delay, --loss or another option; `perfrun link clear` removes an impairment";
        return Err(InvalidCommandLine(problem.to_owned()).into());
    }
    let links = OutgoingLinks::to(args.to.iter().copied(), impairment)?;
    let interface = &args.interface;
    let (mut emulator, state) = args.namespace.enter(|| start(interface, &links, args.backend))?;
    if state.backend == ActiveBackend::Kernel {
        print_state(args, &state)?;
    }
    let Some(left) = emulator.take().and_then(Emulator::leave) else {
        return Ok(0);
    };
    let shared = SharedEmulator(Arc::new(Mutex::new(Some(left))));
    let served = shared.clone();
    // If this fails, the link is impaired nevertheless, but other processes cannot show its state.
    let _status = args
        .namespace
        .enter(|| {
            Status::serve(interface, move || served.state())
                .context("failed to serve the state of the link to other processes")
        })
        .inspect_err(|error| warn(&format!("{error:#}")));
    // Only now, because its reader may ask for the state immediately.
    if let Err(error) = print_state(args, &state) {
        drop(shared.take());
        return Err(error);
    }
    warn("the link is impaired while this command runs; press Ctrl-C to stop");
    let ended = block_on(wait(shared.clone()));
    let last = shared.state();
    let emulator = shared.take();
    if let Some(state) = last {
        print_state(args, &state)?;
    }
    if let Some(emulator) = emulator {
        emulator.remove()?;
    }
    ended?;
    warn("the impairment has been removed");
    Ok(0)
}

fn start(
    interface: &str,
    links: &OutgoingLinks,
    backend: Backend,
) -> anyhow::Result<(Option<Emulator>, LinkState)> {
    check_interface(interface)?;
    check_peers(interface, links)?;
    // The automatic choice explains on its own why no backend works.
    let abilities = abilities::detect(interface);
    let chosen = match backend {
        Backend::Kernel => &abilities.kernel,
        Backend::Userspace => &abilities.userspace,
        Backend::Auto => &Ability::Available,
    };
    if let Ability::Unavailable { reason, detail } = chosen {
        bail!("--backend {backend} does not work here: {reason} ({detail})");
    }
    let options = Options { backend, seed: None };
    let mut emulator = Emulator::start(interface, links, options)?;
    let state = emulator.state()?;
    Ok((Some(emulator), state))
}

/// Refuses a peer that no packet reaches through any interface, and warns of one behind another interface.
fn check_peers(interface: &str, links: &OutgoingLinks) -> anyhow::Result<()> {
    let hosts = links.peers().into_iter().filter(|(peer, _)| peer.is_host());
    for (peer, _) in hosts {
        match locate(interface, peer.address())? {
            AddressLocation::Behind => {}
            AddressLocation::Own => bail!(
                "{peer} is an address of this network namespace, and packets to it pass no interface: name the \
                 address of a peer with --to"
            ),
            AddressLocation::Elsewhere => warn(&format!(
                "packets to {peer} do not leave through {interface}, so nothing impairs them; choose another \
                 interface with --interface"
            )),
        }
    }
    Ok(())
}

/// The emulator, which other processes query and which is removed at the end.
#[derive(Clone)]
struct SharedEmulator(Arc<Mutex<Option<Emulator>>>);

impl SharedEmulator {
    fn state(&self) -> Option<LinkState> {
        self.0.lock().as_mut().and_then(|emulator| emulator.state().ok())
    }

    fn check(&self) -> anyhow::Result<()> {
        let mut emulator = self.0.lock();
        let emulator = emulator.as_mut().context("the emulator was removed")?;
        emulator.state()?;
        Ok(())
    }

    fn take(&self) -> Option<Emulator> {
        self.0.lock().take()
    }
}

/// Waits for a signal, or an error of the emulator.
async fn wait(emulator: SharedEmulator) -> anyhow::Result<u8> {
    let listen = |kind| signal(kind).context("failed to listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = HangUp::listen().context("failed to listen for signals")?;
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(0),
            _ = terminate.recv() => return Ok(0),
            () = hang_up.recv() => return Ok(0),
            _ = checks.tick() => emulator.check()?,
        }
    }
}

fn print_state(args: &args::SetLink, state: &LinkState) -> anyhow::Result<()> {
    if args.json {
        write_to_stdout(&(words::state_object(&args.interface, state).to_string() + "\n"))
    } else {
        write_to_stdout(&words::state(&args.interface, state, None))
    }
}

fn warn(text: &str) {
    write_line_to_stderr(format_args!("perfrun: {text}"));
}
