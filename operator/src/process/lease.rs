//! Leadership by a Lease: of several operators, one acts.
//!
//! This is own code, because the available libraries need other versions of kube or write without checking
//! the resource version, so that two operators can both believe to lead. The rules are those of client-go's
//! leader election. A holder counts as gone when its Lease has not changed for the Lease's duration by the
//! *local* clock, and every write names the version that it replaces.
//!
//! [`Election`] has the rules, without a clock or a request; [`Leadership`] has the loops.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    api::call::{CallError, within},
    process::{
        fence::{GIVE_UP_AFTER, Term},
        health::Health,
    },
};

/// A holder whose Lease has not changed for this long counts as gone.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Pause between two renewals.
const RENEW_PAUSE: Duration = Duration::from_secs(2);
/// How long an attempt may take. A connection that died unnoticed costs one attempt, and not the Lease.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Epochs of a Lease that was created a second later are larger by this.
const EPOCHS_PER_SECOND: u64 = 1_000_000;

/// An operator that leads, or waits to lead.
pub(crate) struct Leadership {
    api: Api<Lease>,
    election: Election,
    health: Arc<Health>,
    /// Renews the term. `None` while this operator does not lead.
    term: Option<watch::Sender<Instant>>,
}

impl Leadership {
    /// Leadership by the Lease of this name. `holder` must be unique to this process.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        name: &str,
        holder: String,
        health: Arc<Health>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            election: Election {
                name: name.to_owned(),
                holder,
                last_lease: None,
            },
            health,
            term: None,
        }
    }

    /// Waits until this operator leads, and returns its term.
    pub(crate) async fn acquire(&mut self) -> Term {
        loop {
            self.health.note_lease_attempt();
            let requested = Instant::now();
            match self.attempt(ATTEMPT_TIMEOUT).await {
                Ok(ElectionOutcome::Leads) => {
                    let (sender, term) = Term::begin(self.election.epoch(), requested);
                    self.term = Some(sender);
                    return term;
                }
                Ok(ElectionOutcome::Waits | ElectionOutcome::Lost) => {}
                Err(error) => {
                    tracing::warn!(lease = self.election.name, %error, "failed to acquire the lease");
                }
            }
            sleep(RENEW_PAUSE).await;
        }
    }

    /// Renews the Lease. Returns when this operator may no longer be the only one that leads: then the term
    /// has ended.
    pub(crate) async fn keep_renewing(&mut self) {
        let Some(term) = self.term.take() else { return };
        loop {
            sleep(RENEW_PAUSE).await;
            self.health.note_lease_attempt();
            // Others count from the time at which the API server wrote the Lease, which is later.
            let requested = Instant::now();
            let left = GIVE_UP_AFTER.saturating_sub(term.borrow().elapsed());
            if left.is_zero() {
                return;
            }
            match self.attempt(left.min(ATTEMPT_TIMEOUT)).await {
                Ok(ElectionOutcome::Leads) => drop(term.send_replace(requested)),
                Ok(ElectionOutcome::Waits | ElectionOutcome::Lost) => return,
                Err(error) => tracing::warn!(lease = self.election.name, %error, "failed to renew the lease"),
            }
        }
    }

    /// Lets another operator lead immediately.
    pub(crate) async fn release(self) {
        let Some(lease) = self.election.without_holder() else {
            return;
        };
        let name = &self.election.name;
        let params = PostParams::default();
        let released = self.api.replace(name, &params, &lease);
        if let Err(error) = within(ATTEMPT_TIMEOUT, released).await {
            tracing::warn!(lease = name, %error, "failed to release the lease; others wait until it expires");
        }
    }

    /// Reads the Lease, and writes it if this operator may lead.
    async fn attempt(&mut self, limit: Duration) -> Result<ElectionOutcome, CallError> {
        let Self { api, election, .. } = self;
        let attempt = async {
            let current = api.get_opt(&election.name).await?;
            let exists = current.is_some();
            let lease = match election.decide(current, Instant::now(), Timestamp::now()) {
                Step::Write(lease) => lease,
                Step::Wait => return Ok(ElectionOutcome::Waits),
                Step::Lost => return Ok(ElectionOutcome::Lost),
            };
            let written = if exists {
                api.replace(&election.name, &PostParams::default(), &lease).await
            } else {
                api.create(&PostParams::default(), &lease).await
            };
            match written {
                Ok(lease) => {
                    election.remember(lease, Instant::now());
                    Ok(ElectionOutcome::Leads)
                }
                // Another operator was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(ElectionOutcome::Lost),
                Err(error) => Err(error),
            }
        };
        within(limit, attempt).await
    }
}

/// How an attempt to lead ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ElectionOutcome {
    Leads,
    Waits,
    Lost,
}

/// What this operator knows of the Lease, and the rules by which it leads.
struct Election {
    name: String,
    holder: String,
    /// The Lease as it was last read or written, and since when it has been so.
    last_lease: Option<(Lease, Instant)>,
}

/// What to do about the Lease as it was read.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Write this: the Lease is free, has expired, or is held by this operator.
    Write(Box<Lease>),
    /// Another operator holds the Lease.
    Wait,
    /// Another operator took the Lease from this one.
    Lost,
}

impl Election {
    /// Decides about the Lease. `now` is the local clock, `time` is for people who read the Lease.
    fn decide(&mut self, current: Option<Lease>, now: Instant, time: Timestamp) -> Step {
        let Some(current) = current else {
            return Step::Write(Box::new(self.lease(None, time)));
        };
        let held_before = self.is_holder();
        self.remember(current.clone(), now);
        let since = self.last_lease.as_ref().map_or(now, |(_, since)| *since);
        let expired = now.duration_since(since) >= LEASE_DURATION;
        let current_holder = holder(&current);
        if current_holder == self.holder || current_holder.is_empty() || expired {
            Step::Write(Box::new(self.lease(Some(current), time)))
        } else if held_before {
            Step::Lost
        } else {
            Step::Wait
        }
    }

    /// Remembers the Lease, and since when it has been so.
    fn remember(&mut self, lease: Lease, now: Instant) {
        if self
            .last_lease
            .as_ref()
            .is_none_or(|(last_lease, _)| *last_lease != lease)
        {
            self.last_lease = Some((lease, now));
        }
    }

    /// Whether this operator held the Lease when it was last read or written.
    fn is_holder(&self) -> bool {
        self.last_lease
            .as_ref()
            .is_some_and(|(lease, _)| holder(lease) == self.holder)
    }

    /// The epoch of a term that begins now: larger than that of all terms before, also if the Lease was
    /// deleted in the meantime.
    fn epoch(&self) -> u64 {
        let lease = self.last_lease.as_ref().map(|(lease, _)| lease);
        let created = lease.and_then(|lease| lease.metadata.creation_timestamp.as_ref());
        let created = created.map_or(0, |created| created.0.as_second());
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let transitions = spec.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        u64::try_from(created).unwrap_or(0) * EPOCHS_PER_SECOND + u64::try_from(transitions).unwrap_or(0)
    }

    /// The Lease without a holder. `None` if another operator holds it.
    fn without_holder(&self) -> Option<Lease> {
        let (lease, _) = self.last_lease.as_ref().filter(|_| self.is_holder())?;
        let mut lease = lease.clone();
        lease.spec.get_or_insert_default().holder_identity = Some(String::new());
        Some(lease)
    }

    /// The Lease, held by this operator.
    fn lease(&self, current: Option<Lease>, time: Timestamp) -> Lease {
        let now = MicroTime(time);
        let (metadata, before) = match current {
            Some(lease) => (lease.metadata, lease.spec.unwrap_or_default()),
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                };
                (metadata, LeaseSpec::default())
            }
        };
        let renews = before.holder_identity.as_ref() == Some(&self.holder);
        let transitions = before.lease_transitions.unwrap_or(0);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                acquire_time: before.acquire_time.filter(|_| renews).or(Some(now.clone())),
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                lease_transitions: Some(if renews { transitions } else { transitions + 1 }),
                renew_time: Some(now),
                ..before
            }),
        }
    }
}

fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
