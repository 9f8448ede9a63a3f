//! Bounds of a trial's status.
//!
//! A run may name any program as its node, so an answer is as untrusted as the words of a peer. What exceeds
//! a bound cannot come from a measurement. Checked values cannot overflow a sum over all nodes of a run.

pub(super) mod reading;

use std::{collections::BTreeMap, fmt::Display};

use super::{
    Distribution, EchoSample, Info, Measured, Outcome, Plateau, Reason, Resources, Sample, Transfer,
    TrialStatus, UdpBuffers,
};
use crate::{capabilities::Capabilities, limits::COUNT_MAX, machine::MachineTime, text};

/// Longest time, in seconds: 31 years.
pub const SECONDS_MAX: f64 = 1e9;

/// Most samples of a node in a trial.
pub const SAMPLES_MAX: usize = 4097;

/// Most addresses of a node: one for each of its peers.
pub const ADDRESSES_MAX: usize = 16_384;

/// Longest address, and longest name of a refusal, in bytes.
pub const NAME_MAX: usize = 1024;

/// Most kinds of refusals.
pub const KINDS_MAX: usize = 64;

/// Most stacks of a node.
pub const STACKS_MAX: usize = 16;

/// Most words of what all stacks of a node can do. The conductor keeps them for the whole run.
pub const WORDS_MAX: usize = 512;

impl Info {
    /// What the node says of itself, if it is within the bounds.
    ///
    /// # Errors
    ///
    /// Says which bound it exceeds.
    pub fn checked(self) -> Result<Self, String> {
        let words: usize = self.capabilities.values().map(words).sum();
        at_most("words of what its stacks can do", words, WORDS_MAX)?;
        Ok(self)
    }
}

fn words(stack: &Capabilities) -> usize {
    let Capabilities {
        wire: _,
        transports,
        workloads,
        protocols,
        roles,
        negotiation,
        identities,
        paces,
        settings,
    } = stack;
    let lists = [
        workloads,
        protocols,
        roles,
        negotiation,
        identities,
        paces,
        settings,
    ];
    transports.len() + lists.iter().map(|list| list.len()).sum::<usize>()
}

impl TrialStatus {
    /// The status, with messages that are short and cannot control a terminal.
    ///
    /// # Errors
    ///
    /// Says which bound a value exceeds.
    pub fn checked(mut self) -> Result<Self, String> {
        self.check()?;
        if let Some(failure) = self.outcome.as_mut().and_then(|outcome| outcome.failure.as_mut()) {
            failure.message = text::message(&failure.message);
        }
        Ok(self)
    }
}

/// What has bounds.
trait Bounded {
    fn check(&self) -> Result<(), String>;
}

impl Bounded for u64 {
    fn check(&self) -> Result<(), String> {
        at_most("a count", *self, COUNT_MAX)
    }
}

impl Bounded for f64 {
    fn check(&self) -> Result<(), String> {
        match (0.0..=SECONDS_MAX).contains(self) {
            true => Ok(()),
            false => Err(format!(
                "a time is {self:e} s, and must be 0 to {SECONDS_MAX:e} s"
            )),
        }
    }
}

impl<T: Bounded> Bounded for Option<T> {
    fn check(&self) -> Result<(), String> {
        self.iter().try_for_each(T::check)
    }
}

/// Checks each field of a struct by its type, or by what stands after it. A new field must be added here.
macro_rules! bounded {
    ($($type:ident { $($field:ident $(: $check:ident)?),+ $(,)? })+) => {$(
        impl Bounded for $type {
            fn check(&self) -> Result<(), String> {
                let Self { $($field),+ } = self;
                $(bounded!(@ $field $($check)?)?;)+
                Ok(())
            }
        }
    )+};
    (@ $field:ident) => { $field.check() };
    (@ $field:ident $check:ident) => { $check($field) };
}

bounded! {
    TrialStatus { state: any, addresses: names, bytes_sent, bytes_received, outcome }
    // The message of a failure is cut.
    Outcome { failure: any, measured, served }
    Measured {
        // An offset between clocks, which may start anywhere, is applied to it.
        started_nanoseconds: any,
        bytes_sent, bytes_received, connections, streams, failures, most_circuits, seconds,
        errors: reasons,
        // Their contents are read within bounds of their own.
        histograms: distributions,
        refused: kinds,
        congestion_control: algorithm,
        upload, download, plateau, udp_buffers, resources,
        samples: intervals,
    }
    Transfer { bytes, seconds, bytes_after_first, first_to_last_seconds }
    Plateau { ramp_seconds, ramp_lateness_seconds, seconds, round_trips }
    UdpBuffers { wanted_bytes, receive_bytes, send_bytes }
    Resources {
        cpu_user_seconds, cpu_system_seconds, throttled_seconds,
        rss_start_bytes, rss_peak_bytes, allocated_peak_bytes,
        cpu_cycles: cycles,
        context_switches_voluntary, context_switches_involuntary,
        tcp_retransmits, interface_received_bytes, interface_sent_bytes, machine,
    }
    Sample {
        at_seconds, interval_seconds, cpu_seconds, bytes_sent, bytes_received, operations, rss_bytes, circuits,
        interface_received_bytes, interface_sent_bytes, allocated_bytes, echo,
        errors: reasons,
    }
    EchoSample { active_streams, echoing_streams, round_trip_p50_seconds, round_trip_p99_seconds }
    MachineTime {
        cpus: any,
        total_seconds, busy_seconds, interrupt_seconds, steal_seconds, memory_stalled_seconds,
    }
}

fn any<T>(_: &T) -> Result<(), String> {
    Ok(())
}

fn names(addresses: &[String]) -> Result<(), String> {
    at_most("addresses", addresses.len(), ADDRESSES_MAX)?;
    let mut lengths = addresses.iter().map(String::len);
    lengths.try_for_each(|length| at_most("bytes of an address", length, NAME_MAX))
}

fn algorithm(name: &Option<String>) -> Result<(), String> {
    let length = name.as_ref().map_or(0, String::len);
    at_most("bytes of the congestion control", length, NAME_MAX)
}

/// A day of 100 CPUs has more than 2⁵³ of them.
fn cycles(cycles: &Option<u64>) -> Result<(), String> {
    at_most("CPU cycles", cycles.unwrap_or(0), COUNT_MAX << 2)
}

fn intervals(samples: &[Sample]) -> Result<(), String> {
    at_most("samples", samples.len(), SAMPLES_MAX)?;
    samples.iter().try_for_each(Sample::check)
}

fn distributions<T>(histograms: &BTreeMap<Distribution, T>) -> Result<(), String> {
    let mut names = histograms.keys();
    names.try_for_each(|name| known(name, matches!(name, Distribution::Newer(_))))
}

fn reasons(errors: &BTreeMap<Reason, u64>) -> Result<(), String> {
    errors
        .keys()
        .try_for_each(|reason| known(reason, matches!(reason, Reason::Newer(_))))?;
    total(errors)
}

fn kinds(refused: &BTreeMap<String, u64>) -> Result<(), String> {
    at_most("kinds of refusals", refused.len(), KINDS_MAX)?;
    refused
        .keys()
        .try_for_each(|what| at_most("bytes of the name of a refusal", what.len(), NAME_MAX))?;
    total(refused)
}

/// Refuses a name of a newer version, which only records may have: nobody would notice a misspelt one.
fn known(name: impl Display, is_newer: bool) -> Result<(), String> {
    match is_newer {
        false => Ok(()),
        true => Err(format!("this version of perfrun does not know the name {name}")),
    }
}

fn total<K>(by_kind: &BTreeMap<K, u64>) -> Result<(), String> {
    let total = by_kind.values();
    total
        .fold(0, |total: u64, count| total.saturating_add(*count))
        .check()
}

fn at_most<N: Display + PartialOrd>(what: &str, found: N, most: N) -> Result<(), String> {
    match found > most {
        false => Ok(()),
        true => Err(format!("{what}: {found}, and at most {most} are allowed")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        histogram::{Histogram, recorder},
        newer::NewerName,
        node::{Failure, TrialState},
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
    fn values_within_the_bounds_are_accepted_unchanged() {
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
    fn a_value_outside_of_its_bounds_is_refused_with_the_bound() {
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
                "kinds of refusals: 65",
            ),
            (
                with(|measured| measured.refused = many(2, COUNT_MAX)),
                "a count: 18014398509481984",
            ),
            (
                with(|measured| measured.refused = [("x".repeat(NAME_MAX + 1), 1)].into()),
                "bytes of the name of a refusal",
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
    fn what_stacks_can_do_is_said_in_a_bounded_number_of_words() {
        let node = |count: usize| {
            let words: Vec<_> = (0..count).map(|i| i.to_string()).collect();
            let stack =
                json!({"wire": "own", "transports": {}, "workloads": [], "protocols": words, "roles": []});
            let info = json!({
                "capabilities": {"own": stack}, "cpu": "abacus", "cpus": 1, "host": "here", "kernel": "6.1",
                "listenIp": "127.0.0.1", "profile": "release", "stacks": {}, "version": "1",
            });
            serde_json::from_value::<Info>(info).unwrap().checked()
        };
        assert!(node(WORDS_MAX).is_ok());
        let why = node(WORDS_MAX + 1).unwrap_err();
        assert!(why.starts_with("words of what its stacks can do: 513"), "{why}");
    }

    #[test]
    fn a_failure_keeps_its_reason_and_loses_control_characters() {
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
