//! Messages against bare loops: a window of them over raw TCP, and one at a time over commonware-p2p.

use std::{
    env,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use perfrun_contract::{metric::Metric, quantity::ByteSize, units};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter},
    net::{TcpListener, TcpStream},
};

use crate::{
    part::PART,
    testbed::{Testbed, Unit, inside, pair, print_ratio},
};

/// The target for a window over raw TCP.
const STREAM_TARGET: f64 = 0.97;
/// The target for one message at a time over commonware-p2p.
#[cfg(feature = "commonware")]
const SERIAL_TARGET: f64 = 0.98;
const WINDOW: u64 = 64;
/// Messages for each acknowledgement, as in the node: a quarter of the window.
const ACKNOWLEDGED_EACH: u64 = WINDOW / 4;
const SIZES: [u64; 3] = [64, 1 << 10, 16 << 10];

pub(crate) async fn run(rounds: u32, seconds: f64) -> Result<()> {
    for (mode, stack, bare_loop, target) in [
        ("stream", "raw", Loop::Stream, Some(STREAM_TARGET)),
        #[cfg(feature = "commonware")]
        ("serial", "commonware", Loop::Serial, Some(SERIAL_TARGET)),
        #[cfg(feature = "commonware")]
        ("serial", "commonware", Loop::SerialOutside, None),
    ] {
        let workload = format!(
            "messages: {{modes: [{mode}], sizes: [64, 1Ki, 16Ki], window: {WINDOW}, duration: {seconds}s}}"
        );
        let testbed = Testbed::of(stack, "tcp", &workload).await?;
        for bytes in SIZES {
            let cell = format!("{stack}.{stack}.tcp.{mode}-{}", ByteSize(bytes));
            let mut pairs = vec![];
            for round in 0..rounds {
                let bare = bare(&testbed, bare_loop, bytes, seconds);
                let ours = testbed.measure(&cell, Metric::MessagesPerSecond);
                pairs.push(pair(round, ours, bare).await?);
            }
            let what = format!(
                "{mode} messages of {} over {stack} against a bare loop{}",
                units::size(bytes),
                bare_loop.note()
            );
            print_ratio(&what, &pairs, Unit::Messages, target);
        }
        testbed.nodes.stop().await;
    }
    Ok(())
}

/// A loop without perfrun's node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Loop {
    Stream,
    /// In a task of the runtime that both peers have, as in perfrun's node.
    #[cfg(feature = "commonware")]
    Serial,
    /// On the thread that started that runtime, as in commonware's published benchmark. Each message then
    /// waits for two switches between threads.
    #[cfg(feature = "commonware")]
    SerialOutside,
}

impl Loop {
    fn note(self) -> &'static str {
        match self {
            Self::Stream => "",
            #[cfg(feature = "commonware")]
            Self::Serial => " in a task",
            #[cfg(feature = "commonware")]
            Self::SerialOutside => " on the starting thread, as published",
        }
    }

    /// The role of a program with both ends. `None` if the ends are two programs.
    fn role(self) -> Option<&'static str> {
        match self {
            Self::Stream => None,
            #[cfg(feature = "commonware")]
            Self::Serial => Some("serial"),
            #[cfg(feature = "commonware")]
            Self::SerialOutside => Some("serial-outside"),
        }
    }
}

/// Messages per second of a loop, in the namespaces of the nodes.
async fn bare(testbed: &Testbed, bare_loop: Loop, bytes: u64, seconds: f64) -> Result<f64> {
    let program = env::current_exe()?;
    let (server, client) = testbed.ends()?;
    let start = |slot, end: String| {
        let child = inside(slot, &program)?
            .env(PART, format!("messages {end}"))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        anyhow::Ok(child)
    };
    if let Some(role) = bare_loop.role() {
        return line(&mut start(server, format!("{role} {bytes} {seconds}"))?).await;
    }
    let mut listening = start(server, format!("server {} {bytes}", server.addresses().v4))?;
    let address: String = line(&mut listening).await?;
    let rate = line(&mut start(client, format!("client {address} {bytes} {seconds}"))?).await?;
    listening.wait().await?;
    Ok(rate)
}

/// The first line that a program writes.
async fn line<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    child: &mut tokio::process::Child,
) -> Result<T> {
    let output = child.stdout.take().context("the output is a pipe")?;
    let line = BufReader::new(output).lines().next_line().await?;
    Ok(line.context("the loop ended early")?.parse()?)
}

/// One end of a loop, or both.
pub(crate) fn end(end: &str, arguments: &str) -> Result<()> {
    let runtime = || tokio::runtime::Runtime::new();
    match (end, &arguments.split(' ').collect::<Vec<_>>()[..]) {
        ("server", [ip, bytes]) => runtime()?.block_on(server(ip, bytes.parse()?)),
        ("client", [address, bytes, seconds]) => {
            runtime()?.block_on(client(address, bytes.parse()?, seconds.parse()?))
        }
        #[cfg(feature = "commonware")]
        ("serial", [bytes, seconds]) => commonware::serial(bytes.parse()?, seconds.parse()?),
        #[cfg(feature = "commonware")]
        ("serial-outside", [bytes, seconds]) => commonware::serial_outside(bytes.parse()?, seconds.parse()?),
        _ => bail!("{end:?} with {arguments:?} is not an end of a loop"),
    }
}

/// Reads messages and acknowledges them.
async fn server(ip: &str, bytes: usize) -> Result<()> {
    let listener = TcpListener::bind((ip, 0)).await?;
    println!("{}", listener.local_addr()?);
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::with_capacity(64 << 10, read);
    let mut message = vec![0; bytes];
    let mut due = 1;
    loop {
        let length = match read.read_u32().await {
            Ok(length) => length,
            Err(_) => return Ok(()),
        };
        ensure!(length as usize == bytes, "a message of another length");
        read.read_exact(&mut message).await?;
        // The client leaves when its time is up, with messages in flight.
        if due % ACKNOWLEDGED_EACH == 0 && write.write_all(&u64::to_be_bytes(due)).await.is_err() {
            return Ok(());
        }
        due += 1;
    }
}

/// Sends messages with a window of them in flight.
async fn client(address: &str, bytes: usize, seconds: f64) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut read, write) = stream.into_split();
    let mut write = BufWriter::with_capacity(64 << 10, write);
    let message = vec![0; bytes];
    let (mut sent, mut acknowledged) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
        while sent - acknowledged < WINDOW {
            write.write_u32(bytes as u32).await?;
            write.write_all(&message).await?;
            sent += 1;
        }
        write.flush().await?;
        acknowledged = read.read_u64().await?;
    }
    println!("{}", acknowledged as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(feature = "commonware")]
mod commonware {
    use std::{
        net::{Ipv4Addr, SocketAddr, TcpListener},
        num::{NonZeroU32, NonZeroUsize},
        time::{Duration, Instant},
    };

    use anyhow::{Result, anyhow, ensure};
    use commonware_cryptography::{
        ChaCha20Poly1305, Signer,
        ed25519::{PrivateKey, PublicKey},
    };
    use commonware_p2p::{
        Address, AddressableManager, Receiver as _, Recipients, Sender as _,
        authenticated::lookup::{Config, Network, Receiver, Sender},
    };
    use commonware_runtime::{
        IoBuf, Quota, Runner as _, Supervisor as _,
        tokio::{self as runtime, Context},
    };
    use commonware_stream::{
        cups::{self, Cups},
        sake::{self, Sake},
    };
    use commonware_utils::ordered::Map;
    use tempfile::TempDir;
    use tokio::time::timeout;

    type Ends = [(Sender<PublicKey, Context>, Receiver<PublicKey>); 2];

    fn keys() -> [PrivateKey; 2] {
        [21, 22].map(PrivateKey::from_seed)
    }

    fn sockets() -> Result<[SocketAddr; 2]> {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr();
        Ok([free()?, free()?])
    }

    fn runner(storage: &TempDir) -> runtime::Runner {
        let config = runtime::Config::new()
            .with_worker_threads(2)
            .with_storage_directory(storage.path());
        runtime::Runner::new(config)
    }

    /// Two networks in one runtime, one message at a time, in a task of that runtime.
    pub(super) fn serial(bytes: usize, seconds: f64) -> Result<()> {
        let rate = with_ends(bytes, |ends| async move {
            tokio::spawn(exchange(ends, bytes, seconds)).await?
        })?;
        println!("{rate}");
        Ok(())
    }

    /// The loop of commonware's published benchmark (`lookup/benches/steady_state.rs`, of an earlier
    /// version): the same on the thread that starts the runtime.
    pub(super) fn serial_outside(bytes: usize, seconds: f64) -> Result<()> {
        println!("{}", with_ends(bytes, |ends| exchange(ends, bytes, seconds))?);
        Ok(())
    }

    /// Runs a loop on the thread that starts a runtime with both networks.
    fn with_ends<F: Future<Output = Result<f64>>>(bytes: usize, run: impl FnOnce(Ends) -> F) -> Result<f64> {
        let storage = tempfile::tempdir()?;
        let sockets = sockets()?;
        runner(&storage).start(|context| run([0, 1].map(|end| start(&context, &keys(), sockets, end, bytes))))
    }

    /// Sends one message at a time from the first network to the second. Returns messages per second.
    async fn exchange(ends: Ends, bytes: usize, seconds: f64) -> Result<f64> {
        let [(mut sender, _kept), (_, mut receiver)] = ends;
        let to = Recipients::One(keys()[1].public_key());
        let message = IoBuf::from(vec![0xCD; bytes]);
        // Until they are connected, messages vanish.
        let begun = Instant::now();
        loop {
            sender.send(to.clone(), message.clone(), true);
            if timeout(Duration::from_millis(20), receiver.recv()).await.is_ok() {
                break;
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(20),
                "the peers do not connect"
            );
        }
        while timeout(Duration::from_millis(100), receiver.recv()).await.is_ok() {}
        let (begun, mut count) = (Instant::now(), 0_u64);
        while begun.elapsed().as_secs_f64() < seconds {
            let accepted = sender.send(to.clone(), message.clone(), true);
            ensure!(!accepted.is_empty(), "a message was refused");
            receiver.recv().await.map_err(|error| anyhow!("{error}"))?;
            count += 1;
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }

    fn start(
        context: &Context,
        keys: &[PrivateKey; 2],
        sockets: [SocketAddr; 2],
        end: usize,
        bytes: usize,
    ) -> (Sender<PublicKey, Context>, Receiver<PublicKey>) {
        let handshake = Sake {
            signer: keys[end].clone(),
            synchrony_bound: Duration::from_secs(5),
            max_handshake_age: Duration::from_secs(10),
            version: sake::Version::V1,
        };
        let interval = Duration::from_millis(20);
        let config = Config {
            dial_frequency: interval,
            peer_connection_cooldown: interval,
            ..Config::local(
                Cups::<_, ChaCha20Poly1305>::new(handshake, cups::Version::V1),
                b"perfrun-bench",
                sockets[end],
                NonZeroUsize::MIN.saturating_add(1),
                2 * bytes as u32,
                NonZeroUsize::MIN.saturating_add(8191),
            )
        };
        let (mut network, mut oracle) = Network::new(context.child("network"), config);
        let peers = keys.iter().zip(sockets);
        let peers = peers.map(|(key, socket)| (key.public_key(), Address::from(socket)));
        oracle.track(0, Map::from_iter_dedup(peers));
        let quota = Quota::per_second(NonZeroU32::MIN.saturating_add(99_999));
        let channel = network.register(0, quota);
        network.start();
        channel
    }
}
