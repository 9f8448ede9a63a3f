//! The relay of a trial.

use std::{future::Future, sync::atomic::Ordering, time::Duration};

use perfrun_contract::node::Reason;
use perfrun_stack::{self as stack, HostConfig, Inbound, RelayEvent, Relaying};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{
    failed::{Failed, failure},
    measurements::Measurements,
    setup::Setup,
};
use crate::wire::{Counters, ping};

/// How long a trial waits for the relay's host to close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(20);

/// Pings that a relay answers at the same time.
const PINGS_MAX: usize = 65_536;

/// Relays until `finish` resolves.
pub(crate) async fn serve(
    setup: &Setup,
    ready: impl FnOnce(Vec<String>),
    finish: impl Future<Output = ()>,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    setup.check_files(|parameters, each| parameters.relay_files(each))?;
    let (inbound, mut events) = mpsc::unbounded_channel();
    let config = HostConfig {
        relaying: Relaying::Relay(setup.parameters.limits()),
        ..setup.host(Some(setup.listen))
    };
    let host = stack::start(setup.stack, config, inbound).await?;
    ready(host.addresses().to_vec());
    let counters = &setup.observer.counters;
    let mut pings = JoinSet::new();
    let mut has_begun = false;
    tokio::pin!(finish);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(Inbound::Connection) => Counters::add(&counters.connections, 1),
                // No peer has a reason to open a stream to the relay itself.
                Some(Inbound::Stream(_) | Inbound::Messenger(_)) => {}
                Some(Inbound::Ping(stream)) => if pings.len() < PINGS_MAX {
                    pings.spawn(async move { ping::serve(stream, &Counters::default()).await });
                },
                Some(Inbound::Relay(RelayEvent::CircuitOpened)) => {
                    // Where circuits are opened before the start, the workload begins after the last one.
                    // Otherwise it begins with the first one.
                    if !has_begun || setup.parameters.connects_before_start() {
                        setup.observer.begin();
                    }
                    has_begun = true;
                    Counters::add(&counters.streams, 1);
                    let live = counters.circuits.fetch_add(1, Ordering::Relaxed) + 1;
                    measurements.most_circuits = measurements.most_circuits.max(live);
                    setup.observer.metrics.set_circuits(live);
                }
                Some(Inbound::Relay(RelayEvent::CircuitClosed)) => {
                    let live = counters.circuits.fetch_sub(1, Ordering::Relaxed) - 1;
                    setup.observer.metrics.set_circuits(live);
                }
                Some(Inbound::Relay(RelayEvent::Refused { what, status })) => {
                    counters.count_failure(Reason::Refused);
                    setup.observer.metrics.count_refusal(what, status);
                    measurements.count_refusal(what, status);
                }
                None => return Err(Failed(failure(Reason::Internal, "the stack stopped listening"))),
            },
            Some(_) = pings.join_next() => {}
            () = &mut finish => break,
        }
    }
    setup.observer.finish();
    setup.observer.metrics.set_circuits(0);
    pings.shutdown().await;
    // A close that takes longer continues in the background.
    let _ = timeout(CLOSE_TIMEOUT, tokio::spawn(host.close())).await;
    Ok(())
}
