//! Footnotes: what limits the trust in values.

use perfrun_contract::{
    node::Reason,
    record::{
        ACHIEVED_MIN, Flag, LATE_START_SECONDS, NOTABLE_SHARE, Standstill, TrialRecord, WINDOW_LIMITED,
    },
    role::Role,
};

/// The footnotes of a table, numbered as they come up.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    pub(super) fn index(&mut self, text: String) -> usize {
        self.0.iter().position(|known| *known == text).unwrap_or_else(|| {
            self.0.push(text);
            self.0.len() - 1
        })
    }
}

impl From<Notes> for Vec<String> {
    fn from(Notes(texts): Notes) -> Self {
        texts
    }
}

/// Completed trials of a cell in which a node stood still.
#[derive(Default)]
pub(super) struct Standstills<'a> {
    pub(super) trials: u32,
    /// The number of these trials that nothing else disturbed.
    pub(super) only: u32,
    pub(super) longest: Option<&'a Standstill>,
}

impl<'a> Standstills<'a> {
    pub(super) fn of(completed: impl Iterator<Item = &'a TrialRecord>) -> Self {
        let mut all = Self::default();
        for record in completed {
            let Some(found) = &record.standstill else { continue };
            all.trials += 1;
            all.only += u32::from(!record.disturbance.is_some_and(|other| other.is_too_much()));
            if all.longest.is_none_or(|longest| longest.seconds < found.seconds) {
                all.longest = Some(found);
            }
        }
        all
    }
}

/// What [`Flag::PartialFailures`] means in the trials of [`lost_ends`].
pub(super) const LOST_ENDS: &str =
    "ends of streams did not arrive at a server; the numbers include these streams";

/// How many completed trials lost ends of streams at servers, and nothing else.
pub(super) fn lost_ends<'a>(completed: impl Iterator<Item = &'a TrialRecord>) -> u32 {
    completed.map(|record| u32::from(lost_only_ends(record))).sum()
}

/// A server counts an end as a timeout, and so does an echo a line. But if a line was late, its client counts
/// a failure, too.
fn lost_only_ends(record: &TrialRecord) -> bool {
    let nodes = record.nodes.values();
    let mut failing = nodes.filter(|node| node.measured.failures > 0).peekable();
    failing.peek().is_some()
        && failing.all(|node| {
            let ends = node.measured.errors.get(&Reason::Timeout);
            node.role == Role::Server && ends == Some(&node.measured.failures)
        })
}

/// Flags of a busy machine. Most values of its runs have them, so a note about one has only two forms.
pub(super) const BUSY: [Flag; 3] = [Flag::Disturbed, Flag::ImpairmentLate, Flag::ImpairmentDrops];

/// The note about trials with a flag of [`BUSY`].
pub(super) fn busy(flag: Flag, trials: u32, of: u32) -> String {
    let many = if trials > of / 2 {
        "more than half"
    } else {
        "up to half"
    };
    format!("{many} of the trials: {}", explained(flag))
}

/// What a flag means, for people.
pub(super) fn explained(flag: Flag) -> String {
    match flag {
        Flag::LateStart => {
            format!(
                "a client started more than {:.0} ms, and {:.0} % of the trial's time, after the requested moment",
                LATE_START_SECONDS * 1e3,
                NOTABLE_SHARE * 1e2
            )
        }
        Flag::Throttled => format!(
            "a control group held a node back for at least {:.0} % of the time (CPU limit)",
            NOTABLE_SHARE * 1e2
        ),
        Flag::Retried => "measured in a second attempt, after a node was lost".to_owned(),
        Flag::PartialFailures => "some operations failed; the numbers are of the others".to_owned(),
        Flag::DebugBuild => "a node was a debug build".to_owned(),
        Flag::ImpairmentLate => {
            "packets left an impaired link later than they should have (busy machine)".to_owned()
        }
        Flag::ImpairmentDrops => {
            "an impaired link lost packets that it should not have (busy machine)".to_owned()
        }
        Flag::BelowNominal => format!(
            "streams echoed, or messages arrived, at less than {:.0} % of the nominal rate",
            ACHIEVED_MIN * 1e2
        ),
        Flag::Disturbed => {
            "other processes or the hypervisor kept the machine busy, or a node had to wait for its CPUs"
                .to_owned()
        }
        Flag::WindowLimited => WINDOW_LIMITED.to_owned(),
        Flag::UdpBuffersLimited => {
            "the kernel let UDP sockets have smaller buffers than the stack wants".to_owned()
        }
        Flag::Newer(name) => format!("{name}, a flag of a newer version of perfrun"),
    }
}
