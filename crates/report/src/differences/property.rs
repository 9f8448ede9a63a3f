//! What runs have: equal or not by its value, and only then text.

use std::{fmt, time::Duration};

use serde_json::Value;

use crate::{tables::environment::buffers, units};

/// What a run, a part of it or its document has.
#[derive(Clone, PartialEq)]
pub(super) enum Property {
    Text(String),
    Number(f64),
    Time(Duration),
    Json(Value),
    Bytes(u64),
    /// The limits of buffers for receiving and for sending, in bytes.
    Limits([u64; 2]),
    Switch(bool),
    /// All nodes share one machine, whatever their names are.
    OneMachine,
    /// The nodes of each machine.
    Machines(Vec<Vec<String>>),
}

impl fmt::Display for Property {
    /// Exact, not rounded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(Duration::ZERO) => f.write_str("0s"),
            Self::Time(time) => write!(f, "{time:?}"),
            Self::Json(value) => write!(f, "{value}"),
            Self::Bytes(bytes) => f.write_str(&units::size(*bytes)),
            Self::Limits(limits) => f.write_str(&buffers(*limits, units::size)),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::OneMachine => f.write_str("one machine"),
            Self::Machines(machines) => {
                let machines = machines.iter().map(|names| names.join(", "));
                f.write_str(&Vec::from_iter(machines).join(" | "))
            }
        }
    }
}
