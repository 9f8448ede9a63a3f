//! Links measured by tools that others have written, where they are installed.

use std::num::NonZeroU64;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use perfrun_link::{Backend, Impairment};

use crate::lab::{FAR, Lab, to_far};
use crate::suite::{delay, eventually, eventually_if_fit};
use crate::witness::beside;
use perfrun_skip::skip;

fn is_installed(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        skip(tool, "it is not installed");
    }
    found
}

#[test]
fn ping_sees_the_delay() {
    let Some(lab) = Lab::new(Backend::Userspace).filter(|_| is_installed("ping")) else {
        return;
    };
    let mut emulator = lab.emulator(&to_far(delay(1)));
    for milliseconds in [10, 100] {
        emulator.set(&to_far(delay(milliseconds))).unwrap();
        let expected = milliseconds as f64;
        let mut ping = Command::new("ping");
        ping.args(["-q", "-c", "50", "-i", "0.01", FAR]);
        // An average, so one late packet of fifty counts.
        let tolerance = (expected * 0.01).max(0.6);
        eventually_if_fit(
            "average of ping",
            || {
                let (output, lateness) = beside(|| lab.near.run(|| ping.output()).unwrap());
                let text = String::from_utf8(output.stdout).unwrap();
                // rtt min/avg/max/mdev = 10.045/10.101/10.402/0.051 ms
                let times = text.rsplit(" = ").next().unwrap();
                let average = times.split('/').nth(1).unwrap().parse::<f64>().unwrap();
                (
                    average,
                    lateness.allows_mean(tolerance, (average - expected).abs()),
                )
            },
            |average| (average - expected).abs() <= tolerance,
        );
    }
}

#[test]
fn iperf3_gets_the_rate() {
    let Some(lab) = Lab::new(Backend::Userspace).filter(|_| is_installed("iperf3")) else {
        return;
    };
    let limited = Impairment {
        rate_bits_per_second: NonZeroU64::new(200_000_000),
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
            client.args(["-c", FAR, "-O", "1", "-t", "2", "--json"]);
            let output = lab.near.run(|| client.output()).unwrap();
            let _ = server.kill();
            server.wait().unwrap();
            let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            result["end"]["sum_received"]["bits_per_second"]
                .as_f64()
                .unwrap_or_default()
                / 1e6
        },
        // Headers are not payload.
        |megabits| (megabits / (200.0 * 1448.0 / 1514.0) - 1.0).abs() <= 0.03,
    );
}
