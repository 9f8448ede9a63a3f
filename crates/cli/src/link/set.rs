//! `perfrun link set`.

use std::{
    io::{Write, stderr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use perfrun_emulator::{Emulator, Options, Status, capabilities};
use perfrun_link::{Ability, Backend, Link, State};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use super::{place::check_interface, show, words};
use crate::{args, block_on, print};

/// How often it is looked whether the emulator is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Impairs a link: for good in the kernel, until it is ended in user space. Returns the exit status.
pub(super) fn set(args: &args::SetLink) -> anyhow::Result<u8> {
    let impairment = args.figures.impairment()?;
    ensure!(
        !impairment.is_none(),
        "nothing is to be impaired: say how, with --delay, --loss or another figure; `perfrun link clear` removes an \
         impairment"
    );
    let link = Link::to(args.to.iter().copied(), impairment)?;
    let interface = &args.interface;
    let (mut emulator, state) = args.place.enter(|| start(interface, &link, args.backend))?;
    tell(args, &state)?;
    let Some(left) = emulator.take().and_then(Emulator::leave) else {
        return Ok(0);
    };
    let shared = Shared(Arc::new(Mutex::new(Some(left))));
    let asked = shared.clone();
    // Without it the link is impaired all the same, but nobody else can see how.
    let _status = args
        .place
        .enter(|| {
            Status::serve(interface, move || asked.state())
                .context("failed to listen for those who ask how the link is doing")
        })
        .inspect_err(|error| warn(&format!("{error:#}")));
    warn("the link is impaired while this runs; Ctrl-C ends it");
    let ended = block_on(wait(shared.clone()));
    let last = shared.state();
    let emulator = shared.take();
    if let Some(state) = last {
        tell(args, &state)?;
    }
    if let Some(emulator) = emulator {
        emulator.remove()?;
    }
    ended?;
    warn("the link is as it was");
    Ok(0)
}

fn start(interface: &str, link: &Link, backend: Backend) -> anyhow::Result<(Option<Emulator>, State)> {
    check_interface(interface)?;
    // The automatic choice says by itself why there is none.
    let capabilities = capabilities::probe(interface);
    let chosen = match backend {
        Backend::Kernel => &capabilities.kernel,
        Backend::Userspace => &capabilities.userspace,
        Backend::Auto => &Ability::Available,
    };
    if let Ability::Unavailable { reason, detail } = chosen {
        bail!("links cannot be impaired by --backend {backend} here: {reason} ({detail})");
    }
    let options = Options { backend, seed: None };
    let mut emulator = Emulator::start(interface, link, options)?;
    let state = emulator.state()?;
    Ok((Some(emulator), state))
}

/// The emulator, which is asked by others and removed at the end.
#[derive(Clone)]
struct Shared(Arc<Mutex<Option<Emulator>>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Emulator>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> Option<State> {
        self.lock().as_mut().and_then(|emulator| emulator.state().ok())
    }

    fn check(&self) -> anyhow::Result<()> {
        let mut emulator = self.lock();
        let emulator = emulator.as_mut().context("it was removed")?;
        emulator.state()?;
        Ok(())
    }

    fn take(&self) -> Option<Emulator> {
        self.lock().take()
    }
}

/// Until somebody ends it, or it ends itself.
async fn wait(emulator: Shared) -> anyhow::Result<u8> {
    let listen = |kind| signal(kind).context("failed to listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    // The terminal was closed.
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(0),
            _ = terminate.recv() => return Ok(0),
            _ = hang_up.recv() => return Ok(0),
            _ = looks.tick() => emulator.check()?,
        }
    }
}

fn tell(args: &args::SetLink, state: &State) -> anyhow::Result<()> {
    if args.json {
        print(&(show::state_object(&args.interface, state).to_string() + "\n"))
    } else {
        print(&words::state(&args.interface, state, None))
    }
}

fn warn(words: &str) {
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(stderr(), "perfrun: {words}");
}
