//! What is impaired now, what was done since the agent began, and what a killed agent's successor reads of it.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use perfrun_contract::node::LinkRequest;
use perfrun_emulator::{Emulator, Options};
use perfrun_link::{Ability, Backend, Capabilities, Kind, State, Tally, state::Traffic};

/// The links of one interface.
pub struct Emulation {
    /// Who impairs: another number than that of an agent before this one, and another one after an emulator has failed.
    instance: u64,
    interface: String,
    capabilities: Capabilities,
    /// Where what is set is kept, for an agent that is started in place of this one.
    file: Option<PathBuf>,
    active: Option<Active>,
    /// Whether all that there is on the interface is known: not what a killed agent or a failed emulator has left there.
    known: bool,
    /// What was done under links that are gone, or was counted before.
    before: Totals,
}

struct Active {
    request: LinkRequest,
    kind: Kind,
    emulator: Emulator,
}

/// What was done since the agent began, over all links.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// What was done to packets.
    pub tally: Tally,
    /// Packets that the emulator lost on its own account.
    pub overflowed: u64,
}

impl Emulation {
    /// Nothing is impaired yet.
    pub fn new(interface: &str, capabilities: Capabilities, file: Option<PathBuf>) -> Self {
        Self {
            instance: instance(),
            interface: interface.to_owned(),
            capabilities,
            file,
            active: None,
            known: false,
            before: Totals::default(),
        }
    }

    /// Impairs what an agent before this one was asked to, if the file says so.
    pub fn restored(mut self) -> anyhow::Result<Self> {
        let Some(file) = &self.file else { return Ok(self) };
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self),
            Err(error) => return Err(error).with_context(|| format!("failed to read {}", file.display())),
        };
        let request = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not what an agent wrote: delete it", file.display()))?;
        self.set(request)?;
        Ok(self)
    }

    /// Impairs as asked from now on; what is asked again only begins to be counted anew.
    pub fn set(&mut self, request: LinkRequest) -> anyhow::Result<()> {
        if !request.link.impairs() {
            return self.rest(request);
        }
        self.count();
        if let Some(active) = self.active.as_mut().filter(|active| active.request == request)
            && active.emulator.recount().is_ok()
        {
            return Ok(());
        }
        // First, so that a successor does what was asked for last, however little of it was done.
        self.keep(&request)?;
        let kind = self.choose(&request)?;
        if let Some(active) = self.active.as_mut().filter(|active| active.kind == kind) {
            match active.emulator.set(&request.link) {
                Ok(()) => {
                    active.request = request;
                    return Ok(());
                }
                Err(error) => {
                    // It may be as sound as before, and what it has set in the way of what is asked for.
                    let refused = self.active.take();
                    self.fail(&explained(&error));
                    drop(refused);
                }
            }
        }
        self.active = None;
        let backend = match kind {
            Kind::Kernel => Backend::Kernel,
            Kind::Userspace => Backend::Userspace,
        };
        let options = Options { backend, seed: None };
        let emulator =
            Emulator::start(&self.interface, &request.link, options).map_err(|error| explained(&error))?;
        self.active = Some(Active {
            request,
            kind,
            emulator,
        });
        self.known = true;
        Ok(())
    }

    /// Who impairs, and how it goes; nothing, if packets pass as they are, or the emulator has failed.
    pub fn look(&mut self) -> (u64, Option<State>) {
        let state = self.verified_state().unwrap_or_else(|error| {
            self.fail(&error);
            None
        });
        (self.instance, state)
    }

    /// How it goes; nothing, if packets pass as they are.
    pub fn state(&mut self) -> anyhow::Result<Option<State>> {
        let Some(active) = self
            .active
            .as_mut()
            .filter(|active| active.request.link.impairs())
        else {
            return Ok(None);
        };
        Ok(Some(active.emulator.state().map_err(|error| explained(&error))?))
    }

    fn verified_state(&mut self) -> anyhow::Result<Option<State>> {
        if let Some(active) = &mut self.active {
            active.emulator.verify().map_err(|error| explained(&error))?;
        }
        self.state()
    }

    /// What was done since the agent began, of which this is the last.
    pub fn totals(&self, state: Option<&State>) -> Totals {
        self.before.plus(state.map(Totals::of).unwrap_or_default())
    }

    /// Lets packets pass as they are, ready to impair again.
    fn rest(&mut self, request: LinkRequest) -> anyhow::Result<()> {
        self.count();
        let Some(active) = &mut self.active else {
            return self.remove();
        };
        match active.emulator.set(&request.link) {
            Ok(()) => {
                active.request = request;
                self.forget()
            }
            Err(error) => {
                self.fail(&explained(&error));
                self.remove()
            }
        }
    }

    /// Lets packets pass as they are.
    pub fn remove(&mut self) -> anyhow::Result<()> {
        self.count();
        match self.active.take() {
            Some(active) => active.emulator.remove().map_err(|error| explained(&error))?,
            // Who may not impair may not remove either, and has nothing to.
            None if !self.known && self.can_impair() => {
                perfrun_emulator::clear(&self.interface).map_err(|error| explained(&error))?;
            }
            None => {}
        }
        self.known = true;
        self.forget()
    }

    fn forget(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("failed to remove {}", file.display()))
            }
            _ => Ok(()),
        }
    }

    fn can_impair(&self) -> bool {
        let Capabilities {
            kernel, userspace, ..
        } = &self.capabilities;
        [kernel, userspace].contains(&&Ability::Available)
    }

    fn choose(&self, request: &LinkRequest) -> anyhow::Result<Kind> {
        match request.backend {
            Backend::Kernel => Ok(Kind::Kernel),
            Backend::Userspace => Ok(Kind::Userspace),
            Backend::Auto => Ok(self.capabilities.choose(&request.link)?),
        }
    }

    /// Takes what was counted into account before it is lost.
    fn count(&mut self) {
        match self.verified_state() {
            Ok(state) => self.before = self.totals(state.as_ref()),
            Err(error) => self.fail(&error),
        }
    }

    /// An emulator that has failed makes room for another, whose links nobody has measured. What it counted is lost, and until
    /// then nothing passes unimpaired, unless somebody else has seen to that.
    fn fail(&mut self, error: &anyhow::Error) {
        tracing::warn!(%error, "the emulator has failed");
        if let Some(active) = self.active.take() {
            active.emulator.abandon();
        }
        self.known = false;
        self.instance = instance();
    }

    fn keep(&self, request: &LinkRequest) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        write_whole(file, &serde_json::to_vec(request)?)
            .with_context(|| format!("failed to write {}", file.display()))
    }
}

impl Totals {
    fn of(state: &State) -> Self {
        let tally = state
            .traffic
            .iter()
            .fold(Tally::default(), |sum, traffic| match traffic {
                Traffic::Userspace(tally) => plus(sum, *tally),
                Traffic::Kernel {
                    packets_out, dropped, ..
                } => plus(
                    sum,
                    Tally {
                        packets_in: packets_out + dropped,
                        packets_out: *packets_out,
                        lost: *dropped,
                        ..Tally::default()
                    },
                ),
            });
        Self {
            tally,
            overflowed: state
                .worker
                .map_or(0, |worker| worker.overflowed + worker.refused),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            tally: plus(self.tally, other.tally),
            overflowed: self.overflowed + other.overflowed,
        }
    }
}

fn plus(a: Tally, b: Tally) -> Tally {
    Tally {
        packets_in: a.packets_in + b.packets_in,
        packets_out: a.packets_out + b.packets_out,
        lost: a.lost + b.lost,
        duplicated: a.duplicated + b.duplicated,
        corrupted: a.corrupted + b.corrupted,
        reordered: a.reordered + b.reordered,
        over_limit: a.over_limit + b.over_limit,
    }
}

fn explained(error: &perfrun_emulator::Error) -> anyhow::Error {
    anyhow::Error::msg(error.explained())
}

/// The process' number does not do: in a container it may be that of the process before it.
fn instance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Complete or not at all, whenever this process is killed.
fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = file.with_extension("new");
    fs::write(&draft, bytes)?;
    fs::rename(draft, file)
}
