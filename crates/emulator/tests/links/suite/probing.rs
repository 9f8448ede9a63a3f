//! Links measured by the crate's own probe.

use std::net::UdpSocket;

use tokio::runtime::{Builder, Runtime};

use super::*;

fn bind(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn runtime() -> Runtime {
    let mut two = Builder::new_multi_thread();
    two.worker_threads(2).enable_all().build().unwrap()
}

/// The crate's own probe, which also detects that a link is not as claimed.
pub(crate) fn the_probe_tells_a_correct_link_from_a_wrong_one(backend: Backend) {
    use perfrun_emulator::probe::{measure, serve};
    use perfrun_link::probe::{Measurement, ProbePlan, judge};

    let Some(lab) = Lab::new(backend) else { return };
    let server = lab.far.run(|| bind(FAR));
    let to = server.local_addr().unwrap();
    let runtime = runtime();
    runtime.spawn({
        let _inside = runtime.enter();
        serve(tokio::net::UdpSocket::from_std(server).unwrap())
    });
    let probe = |plan: &ProbePlan| -> Measurement {
        let client = lab.near.run(|| bind("0.0.0.0"));
        runtime.block_on(async {
            let client = tokio::net::UdpSocket::from_std(client).unwrap();
            measure(client, to, plan).await.unwrap()
        })
    };
    let none = Impairment::default();
    // User-mode Linux does not always send 100 Mbit/s beside other tests: its CPU would be the bottleneck.
    let rate = if uml::is_here() { 20_000_000 } else { 100_000_000 };
    let lossy = Impairment {
        rate_bits_per_second: NonZeroU64::new(rate),
        ..lossy(2.0)
    };
    let planned = |impairment: &Impairment| {
        let mut plan = ProbePlan::new(impairment, &none);
        if uml::is_here() {
            // One datagram takes as long there as ten do here.
            (plan.echo_interval, plan.echoes_at_once, plan.echoes) = (Duration::from_millis(5), 1, 400);
        }
        plan
    };
    // The round trip without an impairment, as it is between machines.
    let base = || Duration::from_nanos(probe(&planned(&none)).round_trip.unwrap().p50_ns);
    let bases: Vec<_> = (0..3).map(|_| base()).collect();
    let base = *bases.iter().min().unwrap();
    let mut emulator = lab.emulator(&to_far(delay(20)));
    // A slow and long link holds few packets, and echoes count like any other although they are small.
    let narrow = Impairment {
        rate_bits_per_second: NonZeroU64::new(10_000_000),
        ..delay(100)
    };
    for impairment in [delay(20), lossy, narrow] {
        let plan = planned(&impairment);
        eventually_if_fit(
            "findings of a link that is as set",
            || {
                emulator.set(&to_far(impairment.clone())).unwrap();
                let (measured, lateness) = beside(|| probe(&plan));
                let verdict = judge(&impairment, &none, base, &plan, &measured);
                let p50 = Duration::from_nanos(measured.round_trip.unwrap().p50_ns);
                let off = p50.abs_diff(base + impairment.delay).as_secs_f64() * 1e3;
                let expected = impairment.delay.as_secs_f64() * 1e3;
                (
                    verdict,
                    lateness.allows_median(tolerance(expected.max(20.0)), off),
                )
            },
            |verdict| verdict.is_effective(),
        );
        // The measurement of this link, judged as another one.
        let other_loss = impairment.loss.is_none().then(|| Loss::Random {
            ratio: percent(3.0),
            correlation: Ratio::ZERO,
        });
        let claimed = Impairment {
            loss: other_loss,
            ..delay(25)
        };
        let verdict = judge(&claimed, &none, base, &plan, &probe(&plan));
        assert!(verdict.outside().count() >= 2, "{verdict:?}");
    }
}
