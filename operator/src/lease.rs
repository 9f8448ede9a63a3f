//! Leadership by a Lease: of several operators, one acts.
//!
//! Own code, since the libraries that exist are for other versions of kube or write without looking at the resource
//! version, so that two operators can both believe to lead. The rules are those of client-go's leader election: a
//! holder counts as gone when its Lease has not changed for the Lease's duration by *our* clock, and every write names
//! the version that it replaces.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout};

/// After so long without a sign of the holder, another may lead.
const DURATION: Duration = Duration::from_secs(15);
/// Between two signs.
const RENEW: Duration = Duration::from_secs(2);
/// A holder that could not give a sign for so long no longer acts: well before another may.
const GIVE_UP: Duration = Duration::from_secs(10);

/// An operator's claim to lead.
pub struct Leadership {
    api: Api<Lease>,
    name: String,
    holder: String,
    /// The Lease as it was last seen, and when it was first seen so.
    seen: Option<(Lease, Instant)>,
}

impl Leadership {
    /// A claim in a namespace, under a name that is this process's own.
    pub fn new(client: Client, namespace: &str, name: &str, holder: String) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            holder,
            seen: None,
        }
    }

    /// Waits until this operator leads.
    pub async fn acquire(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = self.name, %error, "failed to ask for the lease"),
            }
            sleep(RENEW).await;
        }
    }

    /// Goes on leading; returns when that cannot be made sure any more.
    pub async fn keep(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < GIVE_UP {
            sleep(RENEW).await;
            match timeout(GIVE_UP.saturating_sub(renewed.elapsed()), self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(lease = self.name, %error, "failed to renew the lease"),
                Err(_) => return,
            }
        }
    }

    /// Lets another lead at once.
    pub async fn release(mut self) {
        if let Some((mut lease, _)) = self.seen.take().filter(|(lease, _)| holder(lease) == self.holder) {
            lease.spec.get_or_insert_default().holder_identity = Some(String::new());
            if let Err(error) = self.api.replace(&self.name, &PostParams::default(), &lease).await {
                tracing::warn!(lease = self.name, %error, "failed to release the lease; others wait until it expires");
            }
        }
    }

    /// Takes the Lease if it is free, renews it if it is ours; whether it is ours now.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let current = self.api.get_opt(&self.name).await?;
        let written = match current {
            None => self.api.create(&PostParams::default(), &self.lease(None)).await,
            Some(current) => {
                self.look(&current);
                let expired = self
                    .seen
                    .as_ref()
                    .is_some_and(|(_, since)| since.elapsed() >= DURATION);
                let held = holder(&current);
                if !(held == self.holder || held.is_empty() || expired) {
                    return Ok(false);
                }
                let lease = self.lease(Some(current));
                self.api.replace(&self.name, &PostParams::default(), &lease).await
            }
        };
        match written {
            Ok(lease) => {
                self.look(&lease);
                Ok(true)
            }
            // Another was quicker.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn look(&mut self, lease: &Lease) {
        if self.seen.as_ref().is_none_or(|(seen, _)| seen != lease) {
            self.seen = Some((lease.clone(), Instant::now()));
        }
    }

    /// The Lease as ours.
    fn lease(&self, current: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
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
        let ours = before.holder_identity.as_ref() == Some(&self.holder);
        let transitions = before.lease_transitions.unwrap_or(0);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                acquire_time: before.acquire_time.filter(|_| ours).or(Some(now.clone())),
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                lease_transitions: Some(if ours { transitions } else { transitions + 1 }),
                renew_time: Some(now),
                ..before
            }),
        }
    }
}

fn holder(lease: &Lease) -> String {
    let spec = lease.spec.clone().unwrap_or_default();
    spec.holder_identity.unwrap_or_default()
}
