//! Bounds of a trial's status.
//!
//! A run may name any program as its node, so an answer is as untrusted as the words of a peer. What exceeds
//! a bound cannot come from a measurement. Checked values cannot overflow a sum over all nodes of a run.

use std::{collections::BTreeMap, fmt::Display};

use super::{
    Distribution, EchoSample, Failure, Measured, Outcome, Plateau, Reason, Resources, Sample, Transfer,
    TrialStatus, UdpBuffers,
};
use crate::{machine::MachineTime, text};

/// Highest count, of bytes for example. Up to this, every whole number is a number of JSON (RFC 8259, section
/// 6).
pub const COUNT_MAX: u64 = 1 << 53;

/// Longest time, in seconds: 31 years.
pub const SECONDS_MAX: f64 = 1e9;

/// Most samples of a node in a trial.
pub const SAMPLES_MAX: usize = 4097;

/// Most addresses of a node: one for each of its peers.
pub const ADDRESSES_MAX: usize = 16_384;

/// Longest address, and longest name of what was refused, in bytes.
pub const NAME_MAX: usize = 1024;

/// Most kinds of what was refused.
pub const KINDS_MAX: usize = 64;

impl TrialStatus {
    /// The status, with messages that are short and cannot control a terminal.
    ///
    /// # Errors
    ///
    /// Says which bound a value exceeds.
    pub fn checked(mut self) -> Result<Self, String> {
        let Self {
            state: _,
            addresses,
            bytes_sent,
            bytes_received,
            outcome,
        } = &mut self;
        at_most("addresses", addresses.len(), ADDRESSES_MAX)?;
        for address in addresses {
            at_most("bytes of an address", address.len(), NAME_MAX)?;
        }
        counts([*bytes_sent, *bytes_received])?;
        if let Some(outcome) = outcome {
            outcome.check()?;
        }
        Ok(self)
    }
}

impl Outcome {
    fn check(&mut self) -> Result<(), String> {
        let Self {
            failure,
            measured,
            served,
        } = self;
        if let Some(Failure { reason: _, message }) = failure {
            *message = text::message(message);
        }
        [&*measured]
            .into_iter()
            .chain(served.as_ref())
            .try_for_each(Measured::check)
    }
}

impl Measured {
    fn check(&self) -> Result<(), String> {
        let Self {
            // An offset between clocks, which may start anywhere, is applied to it.
            started_nanoseconds: _,
            bytes_sent,
            bytes_received,
            connections,
            streams,
            failures,
            errors,
            seconds: time,
            upload,
            download,
            refused,
            most_circuits,
            histograms,
            plateau,
            udp_buffers,
            congestion_control,
            resources,
            samples,
        } = self;
        counts([
            *bytes_sent,
            *bytes_received,
            *connections,
            *streams,
            *failures,
            *most_circuits,
        ])?;
        seconds([*time])?;
        reasons(errors)?;
        // Their contents are read within bounds of their own.
        for distribution in histograms.keys() {
            known(distribution, matches!(distribution, Distribution::Newer(_)))?;
        }
        at_most("kinds of what was refused", refused.len(), KINDS_MAX)?;
        for what in refused.keys() {
            at_most("bytes of what was refused", what.len(), NAME_MAX)?;
        }
        total(refused)?;
        if let Some(name) = congestion_control {
            at_most("bytes of the congestion control", name.len(), NAME_MAX)?;
        }
        upload.iter().chain(download).try_for_each(Transfer::check)?;
        plateau.iter().try_for_each(Plateau::check)?;
        udp_buffers.iter().try_for_each(UdpBuffers::check)?;
        resources.check()?;
        at_most("samples", samples.len(), SAMPLES_MAX)?;
        samples.iter().try_for_each(Sample::check)
    }
}

impl Transfer {
    fn check(&self) -> Result<(), String> {
        let Self {
            bytes,
            seconds: time,
            bytes_after_first,
            first_to_last_seconds,
        } = *self;
        counts([bytes].into_iter().chain(bytes_after_first))?;
        seconds([time].into_iter().chain(first_to_last_seconds))
    }
}

impl Plateau {
    fn check(&self) -> Result<(), String> {
        let Self {
            ramp_seconds,
            ramp_lateness_seconds,
            seconds: time,
            round_trips,
        } = *self;
        counts([round_trips])?;
        seconds([ramp_seconds, ramp_lateness_seconds, time])
    }
}

impl UdpBuffers {
    fn check(&self) -> Result<(), String> {
        let Self {
            wanted_bytes,
            receive_bytes,
            send_bytes,
        } = *self;
        counts([wanted_bytes, receive_bytes, send_bytes])
    }
}

impl Resources {
    fn check(&self) -> Result<(), String> {
        let Self {
            cpu_user_seconds,
            cpu_system_seconds,
            rss_start_bytes,
            rss_peak_bytes,
            allocated_peak_bytes,
            cpu_cycles,
            context_switches_voluntary,
            context_switches_involuntary,
            throttled_seconds,
            tcp_retransmits,
            interface_received_bytes,
            interface_sent_bytes,
            machine,
        } = *self;
        let always = [
            rss_start_bytes,
            rss_peak_bytes,
            context_switches_voluntary,
            context_switches_involuntary,
        ];
        let perhaps = [
            allocated_peak_bytes,
            tcp_retransmits,
            interface_received_bytes,
            interface_sent_bytes,
        ];
        counts(always.into_iter().chain(perhaps.into_iter().flatten()))?;
        // A day of 100 CPUs has more than 2⁵³ of them.
        at_most("CPU cycles", cpu_cycles.unwrap_or(0), COUNT_MAX << 2)?;
        let times = [cpu_user_seconds, cpu_system_seconds];
        seconds(times.into_iter().chain(throttled_seconds))?;
        machine.iter().try_for_each(check_machine)
    }
}

impl Sample {
    fn check(&self) -> Result<(), String> {
        let Self {
            at_seconds,
            interval_seconds,
            bytes_sent,
            bytes_received,
            operations,
            cpu_seconds,
            rss_bytes,
            circuits,
            interface_received_bytes,
            interface_sent_bytes,
            allocated_bytes,
            echo,
            errors,
        } = self;
        let always = [bytes_sent, bytes_received, operations, rss_bytes, circuits];
        let perhaps = [interface_received_bytes, interface_sent_bytes, allocated_bytes];
        counts(always.into_iter().chain(perhaps.into_iter().flatten()).copied())?;
        seconds([*at_seconds, *interval_seconds, *cpu_seconds])?;
        reasons(errors)?;
        echo.iter().try_for_each(EchoSample::check)
    }
}

impl EchoSample {
    fn check(&self) -> Result<(), String> {
        let Self {
            active_streams,
            echoing_streams,
            round_trip_p50_seconds,
            round_trip_p99_seconds,
        } = *self;
        counts([active_streams, echoing_streams])?;
        seconds(
            [round_trip_p50_seconds, round_trip_p99_seconds]
                .into_iter()
                .flatten(),
        )
    }
}

fn check_machine(machine: &MachineTime) -> Result<(), String> {
    let MachineTime {
        cpus: _,
        total_seconds,
        busy_seconds,
        interrupt_seconds,
        steal_seconds,
        memory_stalled_seconds,
    } = *machine;
    let always = [total_seconds, busy_seconds, interrupt_seconds, steal_seconds];
    seconds(always.into_iter().chain(memory_stalled_seconds))
}

fn counts(counts: impl IntoIterator<Item = u64>) -> Result<(), String> {
    counts
        .into_iter()
        .try_for_each(|count| at_most("a count", count, COUNT_MAX))
}

fn reasons(errors: &BTreeMap<Reason, u64>) -> Result<(), String> {
    for reason in errors.keys() {
        known(reason, matches!(reason, Reason::Newer(_)))?;
    }
    total(errors)
}

/// Refuses a name of a newer version, which only records may have: nobody would notice a misspelt one.
fn known(name: impl Display, is_newer: bool) -> Result<(), String> {
    match is_newer {
        false => Ok(()),
        true => Err(format!("this version of perfrun does not know the name {name}")),
    }
}

fn total<K>(by_kind: &BTreeMap<K, u64>) -> Result<(), String> {
    let total = by_kind
        .values()
        .fold(0_u64, |total, count| total.saturating_add(*count));
    counts([total])
}

fn seconds(times: impl IntoIterator<Item = f64>) -> Result<(), String> {
    let right = |time: &f64| (0.0..=SECONDS_MAX).contains(time);
    match times.into_iter().find(|time| !right(time)) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "a time is {wrong:e} s, and must be 0 to {SECONDS_MAX:e} s"
        )),
    }
}

fn at_most<N: Display + PartialOrd>(what: &str, found: N, most: N) -> Result<(), String> {
    match found > most {
        false => Ok(()),
        true => Err(format!("{what}: {found}, and at most {most} are allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        histogram::{Histogram, recorder},
        newer::NewerName,
        node::TrialState,
    };

    fn finished(measured: Measured) -> TrialStatus {
        TrialStatus {
            state: TrialState::Finished,
            addresses: vec![],
            bytes_sent: 0,
            bytes_received: 0,
            outcome: Some(Outcome {
                failure: None,
                measured: Measured::default(),
                // Both are checked.
                served: Some(measured),
            }),
        }
    }

    fn with(change: impl FnOnce(&mut Measured)) -> TrialStatus {
        let mut measured = Measured::default();
        change(&mut measured);
        finished(measured)
    }

    #[test]
    fn what_nodes_measure_is_accepted_unchanged() {
        let status = with(|measured| {
            measured.bytes_sent = COUNT_MAX;
            measured.seconds = SECONDS_MAX;
            measured.samples = vec![Sample::default(); SAMPLES_MAX];
            measured.resources.machine = Some(MachineTime::default());
        });
        assert_eq!(status.clone().checked(), Ok(status));
    }

    #[test]
    fn a_name_that_this_version_does_not_know_is_refused() {
        let name = NewerName::new("Overheated").unwrap();
        let errors = || BTreeMap::from([(Reason::Newer(name), 1)]);
        let sample = Sample {
            errors: errors(),
            ..Sample::default()
        };
        let histograms = || [(Distribution::Newer(name), Histogram::from(&recorder()))].into();
        for status in [
            with(|measured| measured.errors = errors()),
            with(|measured| measured.samples = vec![sample]),
            with(|measured| measured.histograms = histograms()),
        ] {
            let why = "this version of perfrun does not know the name Overheated";
            assert_eq!(status.checked(), Err(why.to_owned()));
        }
    }

    #[test]
    fn what_no_node_measures_is_refused_with_the_bound() {
        let sample = |change: fn(&mut Sample)| {
            with(|measured| {
                let mut sample = Sample::default();
                change(&mut sample);
                measured.samples.push(sample);
            })
        };
        let many = |kinds: u64, count| (0..kinds).map(move |kind| (kind.to_string(), count)).collect();
        for (status, words) in [
            (
                with(|measured| measured.bytes_sent = COUNT_MAX + 1),
                "a count: 9007199254740993, and at most 9007199254740992 are allowed",
            ),
            (
                with(|measured| measured.seconds = -1.0),
                "a time is -1e0 s, and must be 0 to 1e9 s",
            ),
            (
                with(|measured| measured.resources.cpu_user_seconds = 1e308),
                "a time is 1e308 s",
            ),
            (
                with(|measured| measured.resources.throttled_seconds = Some(f64::NAN)),
                "a time is NaN s",
            ),
            (
                with(|measured| measured.samples = vec![Sample::default(); SAMPLES_MAX + 1]),
                "samples: 4098, and at most 4097 are allowed",
            ),
            (
                sample(|sample| sample.cpu_seconds = f64::INFINITY),
                "a time is inf s",
            ),
            (sample(|sample| sample.circuits = u64::MAX), "a count"),
            (
                with(|measured| measured.refused = many(65, 1)),
                "kinds of what was refused: 65",
            ),
            (
                with(|measured| measured.refused = many(2, COUNT_MAX)),
                "a count: 18014398509481984",
            ),
            (
                with(|measured| measured.refused = [("x".repeat(NAME_MAX + 1), 1)].into()),
                "bytes of what was refused",
            ),
            (
                TrialStatus {
                    addresses: vec![String::new(); ADDRESSES_MAX + 1],
                    ..with(|_| {})
                },
                "addresses: 16385",
            ),
            (
                TrialStatus {
                    bytes_sent: u64::MAX,
                    ..with(|_| {})
                },
                "a count",
            ),
        ] {
            let refused = status.checked().expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn a_failure_keeps_its_reason_and_loses_what_controls_a_terminal() {
        let mut status = with(|_| {});
        status.outcome.as_mut().expect("it has ended").failure = Some(Failure {
            reason: Reason::DialFailed,
            message: format!("\x1b]52;c;AA\x07{}", "x".repeat(5000)),
        });
        let failure = status
            .checked()
            .expect("a long message is cut")
            .outcome
            .and_then(|outcome| outcome.failure)
            .expect("it has failed");
        assert_eq!(failure.reason, Reason::DialFailed);
        assert!(failure.message.starts_with(" ]52;c;AA x"), "{}", failure.message);
        assert_eq!(failure.message.chars().count(), text::MESSAGE_MAX);
    }
}
