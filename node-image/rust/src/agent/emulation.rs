//! The current link, the packet counts since the agent started, and the state file for the successor of a
//! killed agent.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use error_reporter::Report;
use perfrun_contract::node::LinkRequest;
use perfrun_emulator::{Emulator, Options};
use perfrun_link::{Abilities, Ability, ActiveBackend, Backend, LinkState, PacketCounts, state::Traffic};

use crate::restart::instance;

/// The links of one interface.
pub(crate) struct Emulation {
    /// Identifies the emulation: it differs from that of an earlier agent, and changes after an emulator has
    /// failed.
    instance: u64,
    interface: String,
    abilities: Abilities,
    /// The state file, for an agent that replaces this one. `None` without such a file.
    file: Option<PathBuf>,
    active: Option<Active>,
    /// Whether the state of the interface is known: a killed agent or a failed emulator may have left
    /// something on it.
    is_known: bool,
    /// Counts of earlier links, and of the current link before its last reset.
    before: Totals,
}

struct Active {
    request: LinkRequest,
    backend: ActiveBackend,
    emulator: Emulator,
}

/// Counts since the agent started, over all links.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) packets: PacketCounts,
    /// Packets that the emulator dropped because it could not keep up.
    pub(crate) overflowed: u64,
}

impl Emulation {
    /// An emulation without a link.
    pub(crate) fn new(interface: &str, abilities: Abilities, file: Option<PathBuf>) -> Self {
        Self {
            instance: instance(),
            interface: interface.to_owned(),
            abilities,
            file,
            active: None,
            is_known: false,
            before: Totals::default(),
        }
    }

    /// Restores the link of an earlier agent from the state file, if it exists.
    pub(crate) fn restored(mut self) -> anyhow::Result<Self> {
        let Some(file) = &self.file else { return Ok(self) };
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self),
            Err(error) => return Err(error).with_context(|| format!("failed to read {}", file.display())),
        };
        let request = serde_json::from_slice(&text)
            .with_context(|| format!("{} was not written by an agent: delete it", file.display()))?;
        self.set(request)?;
        Ok(self)
    }

    /// Sets the link, and starts the random decisions of the seed, if there is one. Setting the current link
    /// again only resets its counts otherwise.
    pub(crate) fn set(&mut self, mut request: LinkRequest) -> anyhow::Result<()> {
        let seed = request.seed.take();
        self.impair(request)?;
        match (seed, &mut self.active) {
            (Some(seed), Some(active)) => active.emulator.reseed(seed).map_err(|error| explained(&error)),
            _ => Ok(()),
        }
    }

    fn impair(&mut self, request: LinkRequest) -> anyhow::Result<()> {
        if !request.link.impairs() {
            return self.stop_impairing(request);
        }
        self.add_to_totals();
        if let Some(active) = self.active.as_mut().filter(|active| active.request == request)
            && active.emulator.reset_counts().is_ok()
        {
            return Ok(());
        }
        // First, so that a successor restores the last requested link, even if this agent fails to set it.
        self.write_state_file(&request)?;
        let backend = self.choose(&request)?;
        if let Some(active) = self.active.as_mut().filter(|active| active.backend == backend) {
            match active.emulator.set(&request.link) {
                Ok(()) => {
                    active.request = request;
                    return Ok(());
                }
                Err(error) => {
                    // The emulator may still work, and its settings may be in the way of the requested link.
                    let refused = self.active.take();
                    self.fail(&explained(&error));
                    drop(refused);
                }
            }
        }
        self.active = None;
        let requested = match backend {
            ActiveBackend::Kernel => Backend::Kernel,
            ActiveBackend::Userspace => Backend::Userspace,
        };
        let options = Options {
            backend: requested,
            seed: None,
        };
        let emulator =
            Emulator::start(&self.interface, &request.link, options).map_err(|error| explained(&error))?;
        self.active = Some(Active {
            request,
            backend,
            emulator,
        });
        self.is_known = true;
        Ok(())
    }

    /// The instance and its verified state. The state is `None` if the link does not impair, or the emulator
    /// has failed.
    pub(crate) fn verified(&mut self) -> (u64, Option<LinkState>) {
        let state = self.verified_state().unwrap_or_else(|error| {
            self.fail(&error);
            None
        });
        (self.instance, state)
    }

    /// The state of the emulator. `None` if the link does not impair.
    pub(crate) fn state(&mut self) -> anyhow::Result<Option<LinkState>> {
        let Some(active) = self
            .active
            .as_mut()
            .filter(|active| active.request.link.impairs())
        else {
            return Ok(None);
        };
        Ok(Some(active.emulator.state().map_err(|error| explained(&error))?))
    }

    fn verified_state(&mut self) -> anyhow::Result<Option<LinkState>> {
        if let Some(active) = &mut self.active {
            active.emulator.verify().map_err(|error| explained(&error))?;
        }
        self.state()
    }

    /// The counts since the agent started, with those of the current state.
    pub(crate) fn totals(&self, state: Option<&LinkState>) -> Totals {
        self.before.plus(state.map(Totals::of).unwrap_or_default())
    }

    /// Lets packets pass unchanged, and keeps the emulator for the next link.
    fn stop_impairing(&mut self, request: LinkRequest) -> anyhow::Result<()> {
        self.add_to_totals();
        let Some(active) = &mut self.active else {
            return self.remove();
        };
        match active.emulator.set(&request.link) {
            Ok(()) => {
                active.request = request;
                self.remove_state_file()
            }
            Err(error) => {
                self.fail(&explained(&error));
                self.remove()
            }
        }
    }

    /// Removes the emulator, so that packets pass unchanged.
    pub(crate) fn remove(&mut self) -> anyhow::Result<()> {
        self.add_to_totals();
        match self.active.take() {
            Some(active) => active.emulator.remove().map_err(|error| explained(&error))?,
            // An agent that cannot impair has nothing to remove, and must not try.
            None if !self.is_known && self.can_impair() => {
                perfrun_emulator::clear(&self.interface).map_err(|error| explained(&error))?;
            }
            None => {}
        }
        self.is_known = true;
        self.remove_state_file()
    }

    fn remove_state_file(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("failed to remove {}", file.display()))
            }
            _ => Ok(()),
        }
    }

    fn can_impair(&self) -> bool {
        let Abilities {
            kernel, userspace, ..
        } = &self.abilities;
        [kernel, userspace].contains(&&Ability::Available)
    }

    fn choose(&self, request: &LinkRequest) -> anyhow::Result<ActiveBackend> {
        match request.backend {
            Backend::Kernel => Ok(ActiveBackend::Kernel),
            Backend::Userspace => Ok(ActiveBackend::Userspace),
            Backend::Auto => Ok(self.abilities.choose(&request.link)?),
        }
    }

    /// Adds the counts of the current link to the totals before they are reset.
    fn add_to_totals(&mut self) {
        match self.verified_state() {
            Ok(state) => self.before = self.totals(state.as_ref()),
            Err(error) => self.fail(&error),
        }
    }

    /// Gives up a failed emulator and its counts. Its links must be measured again, hence the new instance.
    /// Until the next emulator starts, packets do not pass unimpaired, unless another program has changed the
    /// interface.
    fn fail(&mut self, error: &anyhow::Error) {
        tracing::warn!(%error, "the emulator has failed");
        if let Some(active) = self.active.take() {
            active.emulator.abandon();
        }
        self.is_known = false;
        self.instance = instance();
    }

    fn write_state_file(&self, request: &LinkRequest) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        write_whole(file, &serde_json::to_vec(request)?)
            .with_context(|| format!("failed to write {}", file.display()))
    }
}

impl Totals {
    fn of(state: &LinkState) -> Self {
        let packets = state
            .traffic
            .iter()
            .fold(PacketCounts::default(), |sum, traffic| match traffic {
                Traffic::Userspace(counts) => plus(sum, *counts),
                Traffic::Kernel {
                    packets_out, dropped, ..
                } => plus(
                    sum,
                    PacketCounts {
                        packets_in: packets_out + dropped,
                        packets_out: *packets_out,
                        lost: *dropped,
                        ..PacketCounts::default()
                    },
                ),
            });
        Self {
            packets,
            overflowed: state
                .worker
                .map_or(0, |worker| worker.overflowed + worker.refused),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            packets: plus(self.packets, other.packets),
            overflowed: self.overflowed + other.overflowed,
        }
    }
}

fn plus(a: PacketCounts, b: PacketCounts) -> PacketCounts {
    PacketCounts {
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
    anyhow::Error::msg(Report::new(error).to_string())
}

/// Writes a file completely or not at all, even if this process is killed.
fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = file.with_extension("new");
    fs::write(&draft, bytes)?;
    fs::rename(draft, file)
}
