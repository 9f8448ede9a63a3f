//! Messages from each peer of a client to its server, or to all servers.

use std::sync::Arc;

use futures::future::try_join_all;
use perfrun_contract::{
    distribution::Distribution,
    histogram::{Recorder, recorder},
    node::{Reason, Transfer},
    parameters::{Messages, Workload},
    workload::MessageMode,
};
use perfrun_stack::{self as stack, Connection, messenger::BoxMessenger};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{
    failed::{Failed, failure},
    handover::{Handover, ServerEnd},
    measurements::Measurements,
    peer::{ConnectedServer, Peer},
    setup::Setup,
};
use crate::{
    observer::Observer,
    wire::{
        self, Arrival, Counters,
        messages::{self, Exchanged, Framed},
    },
};

/// Sends messages from all peers at the same time. Exchanges are open before the clock starts.
pub(super) async fn run(
    setup: &Setup,
    peers: &[Peer],
    load: &Messages,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    if load.mode == MessageMode::Broadcast {
        return broadcast(setup, peers, load, measurements).await;
    }
    let (distribution, exchanges) = if setup.parameters.is_in_process() {
        let mut opened = vec![];
        for peer in peers {
            opened.push(InProcessExchange::open(setup, peer).await?);
        }
        let tasks = opened
            .into_iter()
            .zip(peers)
            .map(|(exchange, peer)| peer.host.runtime().spawn(exchange.run(*load)));
        (Distribution::OneWay, joined(tasks).await?)
    } else {
        let opens = peers
            .iter()
            .map(|peer| async { exchange_with(setup, peer.first_connected_server()?).await });
        let messengers = try_join_all(opens).await?;
        // A task for each peer: inside one task, all of them would share one core.
        let tasks = messengers.into_iter().map(|mut messenger| {
            let (observer, load) = (setup.observer.clone(), *load);
            let exchange = async move {
                let mut trips = recorder();
                let exchanged = messages::run(&mut *messenger, &load, &observer.counters, &mut trips).await?;
                Ok::<_, Failed>((exchanged, trips))
            };
            tokio::spawn(exchange)
        });
        (Distribution::RoundTrip, joined(tasks).await?)
    };
    measurements.upload = Some(as_one_transfer(exchanges.iter().map(|(exchanged, _)| *exchanged)));
    for (_, times) in &exchanges {
        measurements.add(distribution, times);
    }
    Ok(())
}

/// Sends the messages of each peer to all of its servers. Every exchange is open before the clock starts.
async fn broadcast(
    setup: &Setup,
    peers: &[Peer],
    load: &Messages,
    measurements: &mut Measurements,
) -> Result<(), Failed> {
    let mut ready = vec![];
    for peer in peers {
        let opens = peer
            .connected_servers
            .iter()
            .map(|server| exchange_with(setup, server));
        ready.push((try_join_all(opens).await?, peer.host.broadcaster()));
    }
    let tasks = ready.into_iter().map(|(mut messengers, all)| {
        let (observer, load) = (setup.observer.clone(), *load);
        let run = async move {
            let broadcast = messages::broadcast(&mut messengers, all, &load, &observer.counters).await?;
            let to_all = broadcast.sent * messengers.len() as u64;
            let exchanged = Exchanged {
                bytes: to_all * load.message_bytes.0,
                time: broadcast.time,
            };
            Ok::<_, Failed>((exchanged, broadcast.refused))
        };
        tokio::spawn(run)
    });
    let broadcasts = joined(tasks).await?;
    measurements.upload = Some(as_one_transfer(
        broadcasts.iter().map(|(exchanged, _)| *exchanged),
    ));
    for (_, refused) in broadcasts.iter().filter(|(_, refused)| *refused > 0) {
        measurements.count_refusals("message", "the stack does not accept it", *refused);
    }
    Ok(())
}

/// Waits for tasks, all of which must succeed.
async fn joined<T>(tasks: impl Iterator<Item = JoinHandle<Result<T, Failed>>>) -> Result<Vec<T>, Failed> {
    let ended = try_join_all(tasks).await;
    let ended = ended.map_err(|error| Failed(failure(Reason::Internal, error)))?;
    ended.into_iter().collect()
}

/// The exchanges of all peers as one transfer: they begin together.
fn as_one_transfer(exchanges: impl Iterator<Item = Exchanged>) -> Transfer {
    exchanges.fold(Transfer::default(), |all, exchanged| Transfer {
        bytes: all.bytes + exchanged.bytes,
        seconds: all.seconds.max(exchanged.time.as_secs_f64()),
        ..all
    })
}

/// Opens an exchange and waits until the server's end has begun.
async fn exchange_with(setup: &Setup, server: &ConnectedServer) -> Result<BoxMessenger, Failed> {
    let mut messenger = open(setup, &*server.connection).await?;
    messages::open(&mut *messenger, server.clock).await?;
    Ok(messenger)
}

/// This end of an exchange: the stack's, or else messages framed on a stream.
async fn open(setup: &Setup, connection: &dyn Connection) -> Result<BoxMessenger, stack::Error> {
    let messenger = match connection.messenger().await? {
        Some(messenger) => messenger,
        None => Box::new(Framed::new(connection.open().await?)),
    };
    Counters::add(&setup.observer.counters.streams, 1);
    Ok(messenger)
}

/// An exchange whose two ends are in this process.
struct InProcessExchange {
    client: BoxMessenger,
    server: ServerEnd,
    observer: Arc<Observer>,
}

impl InProcessExchange {
    /// Opens an exchange and takes the server's end. Some stacks do not report a stream before its first
    /// message, so that message is sent here.
    async fn open(setup: &Setup, peer: &Peer) -> Result<Self, Failed> {
        let mut client = open(setup, peer.connection()?).await?;
        messages::begin(&mut *client, None).await?;
        let server = setup.handover.take.lock().await.recv().await;
        let server = server.ok_or_else(|| Failed(failure(Reason::Internal, "the server is gone")))?;
        Ok(Self {
            client,
            server,
            observer: setup.observer.clone(),
        })
    }

    async fn run(mut self, load: Messages) -> Result<(Exchanged, Recorder), Failed> {
        let mut times = recorder();
        let counters = [&*self.observer.counters, &*self.server.observer.counters];
        let (exchanged, arrival) = messages::serial(
            &mut *self.client,
            &mut *self.server.messenger,
            &load,
            counters,
            &mut times,
        )
        .await?;
        // Without a receiver, the server has failed and says why.
        let _ = self.server.arrival.send(arrival);
        Ok((exchanged, times))
    }
}

/// Serves one exchange until its last message, or gives it to the client in this process. `times` gets the
/// one-way delays.
pub(super) async fn serve(
    mut messenger: BoxMessenger,
    load: Messages,
    handover: Handover,
    observer: Arc<Observer>,
    times: Arc<parking_lot::Mutex<Recorder>>,
) -> Result<Arrival, wire::Error> {
    if !load.is_in_process() {
        let mut own = recorder();
        let served = match load.mode {
            MessageMode::Broadcast => {
                messages::serve_broadcast(&mut *messenger, &load, &observer.counters, &mut own).await
            }
            _ => messages::serve(&mut *messenger, &load, &observer.counters, &mut own).await,
        };
        times
            .lock()
            .add(own)
            .expect("a recorder that resizes takes every value");
        return served;
    }
    let (arrival, arrived) = oneshot::channel();
    let server_end = ServerEnd {
        messenger,
        observer,
        arrival,
    };
    // Without a client, nothing arrives.
    let _ = handover.give.send(server_end);
    Ok(arrived.await.unwrap_or_default())
}
