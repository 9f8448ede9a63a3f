//! Links in words.

use perfrun_link::{
    Impairment, Link, Loss, Mode, Prefix, Ratio, Scheduling, State,
    state::{Lateness, Traffic, Worker},
};

/// A link at work, with a line for each of its routes and one for each concern. In user space by a process, if it is not
/// this one.
pub(super) fn state(interface: &str, state: &State, process: Option<Option<u32>>) -> String {
    let who = match (&state.worker, process) {
        (None, _) => "by the kernel".to_owned(),
        (Some(_), Some(process)) => format!("in user space by {}", self::process(process)),
        (Some(_), None) => "in user space".to_owned(),
    };
    let mode = match state.mode {
        Mode::PerPacket => "each packet for itself",
        Mode::SuperPackets => "merged packets stay merged",
    };
    let mut text = format!("{interface}: impaired {who}; {mode}\n");
    text += &table(state);
    if let Some(worker) = &state.worker {
        text += &worker_line(worker);
    }
    for concern in state.concerns() {
        text += &format!("Careful: {concern}\n");
    }
    text
}

/// A process of which perhaps only the existence is known.
pub(super) fn process(process: Option<u32>) -> String {
    process.map_or_else(
        || "another process".to_owned(),
        |process| format!("process {process}"),
    )
}

/// Everybody to whom a link leads.
pub(super) fn everybody(link: &Link) -> String {
    let all = link.routes().iter().flat_map(|route| &route.peers);
    peers(&all.copied().collect::<Vec<_>>())
}

/// `10.0.0.2, 10.0.0.3 and 10.1.0.0/16`
pub(super) fn peers(peers: &[Prefix]) -> String {
    let names: Vec<String> = peers.iter().map(ToString::to_string).collect();
    match names.split_last() {
        None => "nobody".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Words as in the options of `perfrun link set`.
pub(super) fn impairment(impairment: &Impairment) -> String {
    let Impairment {
        delay,
        jitter,
        loss,
        duplicate,
        corrupt,
        reorder,
        rate_bits_per_second,
        limit_packets,
    } = impairment;
    let correlated = |correlation: Ratio| {
        if correlation.is_zero() {
            String::new()
        } else {
            format!(" (correlation {})", percent(correlation))
        }
    };
    let mut words = Vec::new();
    if !delay.is_zero() {
        words.push(format!("delay {delay:?}"));
    }
    if let Some(jitter) = jitter {
        words.push(format!(
            "jitter {:?} {}{}",
            jitter.amount,
            jitter.distribution,
            correlated(jitter.correlation)
        ));
    }
    match loss {
        None => {}
        Some(Loss::Random { ratio, correlation }) => {
            words.push(format!("loss {}{}", percent(*ratio), correlated(*correlation)));
        }
        Some(Loss::GilbertElliott {
            enter_bad,
            leave_bad,
            loss_in_bad,
            loss_in_good,
        }) => {
            let shares = [enter_bad, leave_bad, loss_in_bad, loss_in_good].map(|ratio| percent(*ratio));
            words.push(format!("burst {}", shares.join(",")));
        }
    }
    for (name, chance) in [("duplicate", duplicate), ("corrupt", corrupt)] {
        if let Some(chance) = chance {
            words.push(format!(
                "{name} {}{}",
                percent(chance.ratio),
                correlated(chance.correlation)
            ));
        }
    }
    if let Some(reorder) = reorder {
        let gap = match reorder.gap.get() {
            1 => String::new(),
            gap => format!(", one of {gap} at most"),
        };
        words.push(format!(
            "reorder {}{gap}{}",
            percent(reorder.ratio),
            correlated(reorder.correlation)
        ));
    }
    if let Some(rate) = rate_bits_per_second {
        words.push(format!("rate {}", bit_rate(rate.get())));
    }
    if words.is_empty() {
        return "none".to_owned();
    }
    if let Some(limit) = limit_packets {
        words.push(format!("queue {limit}"));
    }
    words.join(", ")
}

/// Without the digits that 64 bits add.
pub(super) fn percent(ratio: Ratio) -> String {
    format!("{}%", (ratio.get() * 1e11).round() / 1e9)
}

/// In the largest unit that needs no digits behind a point.
pub(super) fn bit_rate(bits_per_second: u64) -> String {
    let units = [("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("kbit", 1_000)];
    let whole = units
        .into_iter()
        .find(|(_, factor)| bits_per_second.is_multiple_of(*factor));
    whole.map_or_else(
        || format!("{bits_per_second}bit"),
        |(unit, factor)| format!("{}{unit}", bits_per_second / factor),
    )
}

/// Three digits that count, and a unit.
pub(super) fn short_time(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000_000 => (nanoseconds as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Rows in columns as wide as they need, as kubectl prints them.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells.map(|(cell, width)| format!("{cell:<width$}   ")).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn table(state: &State) -> String {
    let counted: &[&str] = match state.traffic.first() {
        Some(Traffic::Kernel { .. }) => &["PACKETS OUT", "DROPPED", "HELD"],
        _ => &["PACKETS IN", "OUT", "LOST", "OVER LIMIT"],
    };
    let head = ["TO", "IMPAIRMENT"].iter().chain(counted);
    let mut rows = vec![head.map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
    for (route, traffic) in state.link.routes().iter().zip(&state.traffic) {
        let counts = match traffic {
            Traffic::Userspace(tally) => {
                vec![tally.packets_in, tally.packets_out, tally.lost, tally.over_limit]
            }
            Traffic::Kernel {
                packets_out,
                dropped,
                held,
            } => vec![*packets_out, *dropped, u64::from(*held)],
        };
        let words = [peers(&route.peers), impairment(&route.impairment)];
        let counts = counts.iter().map(ToString::to_string);
        rows.push(words.into_iter().chain(counts).collect());
    }
    columns(&rows)
}

fn worker_line(worker: &Worker) -> String {
    let scheduling = match worker.scheduling {
        Scheduling::RealTime => "with real-time priority",
        Scheduling::ShortSlice => "without real-time priority",
        Scheduling::Ordinary => "without any priority",
    };
    let Lateness {
        frames,
        p50_ns,
        p99_ns,
        max_ns,
    } = worker.lateness;
    if frames == 0 {
        return format!("Its thread runs {scheduling}.\n");
    }
    let [p50, p99, max] = [p50_ns, p99_ns, max_ns].map(short_time);
    format!(
        "Its thread runs {scheduling}; {frames} frames left late by {p50} (median), {p99} (p99), {max} (at most).\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Expected;

    #[test]
    fn an_impairment_is_told_in_the_words_that_set_it() {
        for (set, told) in [
            ("", "none"),
            ("queue=7", "none"),
            ("delay=25ms,loss=0.07%", "delay 25ms, loss 0.07%"),
            (
                "delay=1.5s,jitter=2ms,distribution=normal,correlation=25%",
                "delay 1.5s, jitter 2ms normal (correlation 25%)",
            ),
            ("burst=1%,25%,90%", "burst 1%,25%,90%,0%"),
            (
                "delay=1ms,reorder=1%,reorder-gap=5,rate=1500kbit,queue=1000",
                "delay 1ms, reorder 1%, one of 5 at most, rate 1500kbit, queue 1000",
            ),
            (
                "duplicate=1%,corrupt=2%,rate=10Gbit",
                "duplicate 1%, corrupt 2%, rate 10Gbit",
            ),
        ] {
            let expected: Expected = set.parse().unwrap();
            assert_eq!(impairment(&expected.0), told);
        }
    }

    #[test]
    fn times_have_three_digits() {
        let times = [7, 999_000, 1_234_567, 50_160_000, 101_000_000, 2_500_000_000];
        let told = times.map(short_time);
        assert_eq!(
            told,
            ["0.01 us", "999 us", "1.23 ms", "50.2 ms", "101 ms", "2.50 s"]
        );
    }
}
