//! Links measured by other programs, where they are installed.

use std::{
    num::NonZeroU64,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use perfrun_link::{Backend, Impairment};
use perfrun_test_kit::{Need, skip, uml};

use super::{DELAYS, TCP_SHARE, delay, eventually, eventually_if_fit, median, tolerance};
use crate::{
    lab::{FAR, Lab, to_far},
    witness::beside,
};

fn is_installed(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        skip(Need::Programs, tool, "it is not installed");
    }
    found
}

pub(crate) fn ping_sees_the_delay(backend: Backend) {
    let Some(lab) = Lab::new(backend).filter(|_| is_installed("ping")) else {
        return;
    };
    let mut emulator = lab.emulator(&to_far(delay(1)));
    for milliseconds in DELAYS {
        emulator.set(&to_far(delay(milliseconds))).unwrap();
        let expected = milliseconds as f64;
        let mut ping = Command::new("ping");
        ping.args(["-c", "100", "-i", "0.005", FAR]);
        eventually_if_fit(
            &format!("median of ping over {milliseconds} ms"),
            || {
                let (output, lateness) = beside(|| lab.near.run(|| ping.output()).unwrap());
                let said = String::from_utf8(output.stdout).unwrap();
                let median = median(said.lines().map(round_trip).collect());
                let off = (median - expected).abs();
                (median, lateness.allows_median(tolerance(expected), off))
            },
            |median| (median - expected).abs() <= tolerance(expected),
        );
    }
}

/// In milliseconds, of `64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=10.1 ms`.
fn round_trip(line: &str) -> Option<f64> {
    let (_, time) = line.split_once(" time=")?;
    time.split(' ').next()?.parse().ok()
}

pub(crate) fn iperf3_gets_the_rate(backend: Backend) {
    let Some(lab) = Lab::new(backend).filter(|_| is_installed("iperf3")) else {
        return;
    };
    // At higher rates user-mode-linux measures something else each time.
    let megabits = if uml::is_here() { 20 } else { 200 };
    let limited = Impairment {
        rate_bits_per_second: NonZeroU64::new(megabits * 1_000_000),
        ..Impairment::default()
    };
    let _emulator = lab.emulator(&to_far(limited));
    eventually(
        "Mbit/s of iperf3",
        || {
            let mut server = Command::new("iperf3");
            server.args(["-s", "-1", "-B", FAR]).stdout(Stdio::null());
            let mut server = lab.far.run(|| server.spawn()).unwrap();
            thread::sleep(Duration::from_millis(300));
            let mut client = Command::new("iperf3");
            client.args(["-c", FAR, "-O", "1", "-t", "4", "--json"]);
            let output = lab.near.run(|| client.output()).unwrap();
            let _ = server.kill();
            server.wait().unwrap();
            let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            result["end"]["sum_received"]["bits_per_second"]
                .as_f64()
                .unwrap_or_default()
                / 1e6
        },
        |measured| (measured / (megabits as f64 * TCP_SHARE) - 1.0).abs() <= 0.03,
    );
}
