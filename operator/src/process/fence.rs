//! What an operator that no longer leads cannot do, even before it has noticed.
//!
//! A process may stand still for any time between two of its steps: it was stopped, its machine was paused,
//! or its threads had no CPU time. When it runs again, its conductors may run before the loop that finds the
//! Lease lost. So a request that changes something at the API server is sent only a short time after the
//! Lease was renewed, and calls to nodes carry the epoch of the term, which nodes compare. What was sent
//! before the process stood still is harmless: it creates, deletes by UID, or names the version that it
//! replaces.

use std::{future, time::Duration};

use http::{Method, Request};
use kube::{Client, client::Body};
use thiserror::Error;
use tokio::{sync::watch, time::Instant};
use tower::{BoxError, service_fn};

/// A holder that could not renew for this long stops acting: well before another operator may begin.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// The time during which an operator leads.
#[derive(Clone)]
pub(crate) struct Term {
    /// Larger than that of all terms before.
    pub(crate) epoch: u64,
    renewed: watch::Receiver<Instant>,
}

/// The operator no longer leads.
#[derive(Debug, Error)]
#[error("this operator has not renewed its lease in time, so another may lead")]
struct LeadershipLost;

impl Term {
    /// A term that was won at this time. The sender renews it, and ends it when it is dropped.
    pub(crate) fn begin(epoch: u64, won: Instant) -> (watch::Sender<Instant>, Self) {
        let (sender, renewed) = watch::channel(won);
        (sender, Self { epoch, renewed })
    }

    /// Whether no other operator can lead.
    pub(crate) fn is_current(&self) -> bool {
        self.renewed.has_changed().is_ok() && self.renewed.borrow().elapsed() < GIVE_UP_AFTER
    }

    /// Waits until the Lease is renewed by a request that is sent after this call. Never returns if the term
    /// ends.
    pub(crate) async fn wait_for_renewal(&self) {
        let called = Instant::now();
        let mut renewed = self.renewed.clone();
        if renewed.wait_for(|renewed| *renewed > called).await.is_err() {
            future::pending::<()>().await;
        }
    }

    /// A client that changes nothing after the term.
    pub(crate) fn fenced(&self, client: &Client) -> Client {
        let (term, all) = (self.clone(), client.clone());
        let send = move |request: Request<Body>| {
            let (term, all) = (term.clone(), all.clone());
            async move {
                if request.method() != Method::GET && !term.is_current() {
                    return Err(BoxError::from(LeadershipLost));
                }
                all.send(request).await.map_err(BoxError::from)
            }
        };
        Client::new(service_fn(send), client.default_namespace())
    }

    /// A term that does not end, for tests.
    #[cfg(test)]
    pub(crate) fn endless() -> Self {
        let (sender, term) = Self::begin(7, Instant::now() + Duration::from_secs(1 << 30));
        Box::leak(Box::new(sender));
        term
    }
}

#[cfg(test)]
mod tests;
