//! Rules on workloads: which fields belong together.

use kube::core::Rule;
use perfrun_contract::limits::{CHUNK_MAX, ECHO_LINE_MAX, SERVER_STREAMS_MAX};

use crate::{
    rule,
    workload::{ECHO_PAUSE, Workload},
};

/// A run has one workload, so that all of its cells can be compared.
pub(super) fn one_workload() -> Rule {
    let names = Workload::ALL.map(|(name, _)| name);
    let set = names.map(|name| format!("has(self.{name})"));
    let [first @ .., last] = names;
    Rule::new(format!("[{}].filter(x, x).size() == 1", set.join(", ")))
        .message(format!("set exactly one workload: {} or {last}", first.join(", ")).as_str())
}

/// A transfer ends after its bytes or after its time.
pub(super) fn sizes_or_duration() -> Rule {
    Rule::new("(size(self.sizes) > 0) != has(self.duration)")
        .message("set either sizes, to transfer a number of bytes, or duration, to transfer for a time")
}

/// The protocol of a timed transfer must not need the number of bytes in advance.
pub(super) fn duration_needs_perf() -> Rule {
    Rule::new("!has(self.duration) || self.protocol == 'perf'").message(
        "duration requires protocol: perf, because litep2p-perf announces the number of bytes in advance",
    )
}

/// A transfer both ways would need a time for each, and a rule for what the second one sends.
pub(super) fn duration_needs_one_direction() -> Rule {
    Rule::new("!has(self.duration) || !self.directions.exists(d, d == 'both')")
        .message("duration requires directions upload or download: a timed transfer has one direction")
}

/// `burst` has no rate, and `paced` cannot do without.
pub(super) fn rate_if_paced() -> Rule {
    Rule::new("(self.mode == 'paced') == has(self.rate)")
        .message("mode: paced requires rate, and no other mode has one")
}

/// A trial ends after a number of connections or after its time.
pub(super) fn count_or_duration() -> Rule {
    Rule::new("has(self.count) != has(self.duration)").message("set either count or duration")
}

/// A stream sends its next line a time after the answer, or at fixed times.
pub(super) fn pause_or_period() -> Rule {
    Rule::new("!has(self.pause) || !has(self.period)").message("set pause or period, not both")
}

/// Between two lines a stream is silent, which must not count as a failure.
pub(super) fn pace_before_deadline() -> Rule {
    Rule::new(format!(
        "duration((has(self.period) ? self.period : (has(self.pause) ? self.pause : '{}ms')).replace('µs', 'us')) \
         < duration(self.deadline.replace('µs', 'us'))",
        ECHO_PAUSE.as_millis()
    ))
    .message(
        "pause or period must be shorter than deadline: the server resets a stream that is silent for that long",
    )
}

/// A load is a published one, or both of its numbers.
pub(super) fn preset_or_numbers() -> Rule {
    Rule::new(
        "has(self.preset) ? !has(self.connections) && !has(self.streamsPerConnection) : \
         has(self.connections) && has(self.streamsPerConnection)",
    )
    .message("set either preset, or both connections and streamsPerConnection")
}

/// The streams of a load fit into a server.
pub(super) fn echo_streams() -> Rule {
    Rule::new(format!(
        "!has(self.connections) || !has(self.streamsPerConnection) || \
         self.connections * self.streamsPerConnection <= {SERVER_STREAMS_MAX}"
    ))
    .message(format!("must have at most {SERVER_STREAMS_MAX} streams in total").as_str())
}

/// Bytes of one write or read, of which a node keeps a buffer for each stream.
pub(super) fn chunk() -> Rule {
    rule::size("1", &CHUNK_MAX.to_string())
}

/// Bytes of the line that a stream echoes: at least one character and the end of the line.
pub(super) fn echo_line() -> Rule {
    rule::size("2", &ECHO_LINE_MAX.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rule::evaluation::judges;

    #[test]
    fn a_run_has_one_workload() {
        let message = "set exactly one workload: bandwidth, substreams, handshakes, ping, echo, relay, \
                       relayStress or messages";
        judges(&one_workload(), &json!({"ping": {}}), &json!({}), message);
        judges(
            &one_workload(),
            &json!({"relayStress": {}}),
            &json!({"ping": {}, "echo": {}}),
            message,
        );
    }

    #[test]
    fn every_workload_is_in_the_list_of_all() {
        let schema = schemars::schema_for!(Workload).to_value();
        let fields = schema["properties"].as_object().unwrap();
        assert_eq!(fields.len(), Workload::ALL.len());
        assert!(Workload::ALL.iter().all(|(name, _)| fields.contains_key(*name)));
    }

    #[test]
    fn a_transfer_has_sizes_or_a_duration() {
        let message = "set either sizes, to transfer a number of bytes, or duration, to transfer for a time";
        let both = json!({"sizes": ["1Ki"], "duration": "1s"});
        judges(&sizes_or_duration(), &json!({"sizes": ["1Ki"]}), &both, message);
        let neither = json!({"sizes": []});
        judges(
            &sizes_or_duration(),
            &json!({"sizes": [], "duration": "1s"}),
            &neither,
            message,
        );
    }

    #[test]
    fn a_timed_transfer_uses_perf() {
        judges(
            &duration_needs_perf(),
            &json!({"protocol": "perf", "duration": "1s"}),
            &json!({"protocol": "litep2p-perf", "duration": "1s"}),
            "duration requires protocol: perf, because litep2p-perf announces the number of bytes in advance",
        );
    }

    #[test]
    fn a_timed_transfer_has_one_direction() {
        let timed = |directions: Value| json!({"duration": "1s", "directions": directions});
        judges(
            &duration_needs_one_direction(),
            &timed(json!(["upload", "download"])),
            &timed(json!(["upload", "both"])),
            "duration requires directions upload or download: a timed transfer has one direction",
        );
    }

    #[test]
    fn a_rate_belongs_to_paced() {
        let message = "mode: paced requires rate, and no other mode has one";
        judges(
            &rate_if_paced(),
            &json!({"mode": "paced", "rate": 1}),
            &json!({"mode": "paced"}),
            message,
        );
        judges(
            &rate_if_paced(),
            &json!({"mode": "burst"}),
            &json!({"mode": "burst", "rate": 1}),
            message,
        );
    }

    #[test]
    fn handshakes_have_a_count_or_a_duration() {
        let message = "set either count or duration";
        judges(&count_or_duration(), &json!({"count": 1}), &json!({}), message);
        judges(
            &count_or_duration(),
            &json!({"duration": "1s"}),
            &json!({"count": 1, "duration": "1s"}),
            message,
        );
    }

    #[test]
    fn a_stream_pauses_or_has_a_period() {
        judges(
            &pause_or_period(),
            &json!({"period": "1s"}),
            &json!({"pause": "1s", "period": "1s"}),
            "set pause or period, not both",
        );
    }

    #[test]
    fn a_stream_is_silent_for_less_than_its_deadline() {
        let message = "pause or period must be shorter than deadline: the server resets a stream that is silent for \
                       that long";
        for pace in ["pause", "period"] {
            let echo = |silent: &str| json!({pace: silent, "deadline": "5s"});
            judges(&pace_before_deadline(), &echo("4999999µs"), &echo("5s"), message);
        }
        judges(
            &pace_before_deadline(),
            &json!({"deadline": "501ms"}),
            &json!({"deadline": "500ms"}),
            message,
        );
    }

    #[test]
    fn a_load_is_a_preset_or_two_numbers() {
        let message = "set either preset, or both connections and streamsPerConnection";
        judges(
            &preset_or_numbers(),
            &json!({"preset": "scenario-1"}),
            &json!({"preset": "scenario-1", "connections": 3}),
            message,
        );
        judges(
            &preset_or_numbers(),
            &json!({"connections": 3, "streamsPerConnection": 4}),
            &json!({"connections": 3}),
            message,
        );
    }

    #[test]
    fn the_streams_of_a_load_fit_into_a_server() {
        let load = |streams: u32| json!({"connections": 4096, "streamsPerConnection": streams});
        judges(
            &echo_streams(),
            &load(16),
            &load(17),
            "must have at most 65536 streams in total",
        );
    }

    #[test]
    fn a_chunk_fits_into_memory() {
        judges(
            &chunk(),
            &json!("16Mi"),
            &json!("17Mi"),
            "must be a number of bytes from 1 to 16Mi, written as 1500, 64Ki, 10M or 1Gi",
        );
    }

    #[test]
    fn a_line_has_a_character_and_fits_into_memory() {
        let message = "must be a number of bytes from 2 to 1Mi, written as 1500, 64Ki, 10M or 1Gi";
        judges(&echo_line(), &json!(2), &json!(1), message);
        judges(&echo_line(), &json!("1Mi"), &json!("2Mi"), message);
    }
}
