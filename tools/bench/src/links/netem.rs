//! netem as perfrun sets it, against netem set by tc: what one TCP connection carries over a link with delay.
//! Where this kernel has no netem, user-mode-linux boots one that has, in which this program runs once more.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use perfrun_emulator::{Emulator, Options, abilities};
use perfrun_link::{ActiveBackend, Backend, Impairment, OutgoingLinks};
use perfrun_test_kit::uml;

use super::{link, pair::VethPair, tcp::Flow, warm_up};
use crate::testbed::{Unit, print_ratio};

const TARGET: f64 = 0.95;

/// Runs the benchmark here, or in user-mode-linux.
pub(crate) fn run(rounds: u32, seconds: f64) -> Result<()> {
    if abilities::detect("lo").choose(&OutgoingLinks::default()) == Ok(ActiveBackend::Kernel) {
        return compare(rounds, Duration::from_secs_f64(seconds));
    }
    ensure!(
        uml::is_installed(),
        "this kernel has no netem: install one that has (`apt-get install user-mode-linux`)"
    );
    let printed = uml::boot(&format!("{rounds} {seconds}"))?;
    print!("{}", printed.output);
    Ok(())
}

/// Acts as the first process of user-mode-linux.
pub(crate) fn first_process() -> ! {
    uml::first_process(|guest, arguments| {
        let (rounds, seconds) = arguments.split_once(' ').context("no arguments")?;
        guest.load_links(uml::U32)?;
        guest.run(&["netem", "--rounds", rounds, "--seconds", seconds])
    })
}

fn compare(rounds: u32, time: Duration) -> Result<()> {
    let pair = VethPair::create()?;
    let delayed = Impairment {
        delay: Duration::from_millis(10),
        ..Impairment::default()
    };
    let mut pairs = vec![];
    for _ in 0..rounds {
        tc(&pair, "qdisc add dev eth0 root netem delay 10ms limit 100000")?;
        let by_tc = carried(&pair, &delayed, time)?;
        tc(&pair, "qdisc del dev eth0 root")?;
        let options = Options {
            backend: Backend::Kernel,
            seed: None,
        };
        let link = link(&delayed)?;
        let emulator = pair.near.run(|| Emulator::start("eth0", &link, options))?;
        pairs.push((carried(&pair, &delayed, time)?, by_tc));
        emulator.remove()?;
    }
    print_ratio(
        "TCP over netem of 10 ms set by perfrun, against set by tc",
        &pairs,
        Unit::Bits,
        Some(TARGET),
    );
    Ok(())
}

fn carried(pair: &VethPair, impairment: &Impairment, time: Duration) -> Result<f64> {
    let flow = Flow::start(pair)?;
    flow.carry(warm_up(impairment))?;
    Ok(flow.carry(time)?.bits_per_second())
}

fn tc(pair: &VethPair, arguments: &str) -> Result<()> {
    let output = pair
        .near
        .run(|| Command::new("tc").args(arguments.split(' ')).output())
        .context("failed to start tc: install the package iproute2")?;
    ensure!(
        output.status.success(),
        "tc {arguments} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
