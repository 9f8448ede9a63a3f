//! Why links cannot be used, for a trial or at all.

use std::collections::BTreeSet;

use perfrun_contract::{
    network::NetworkImpairments,
    node::Reason,
    record::{LinkCheck, TrialFailure},
};
use perfrun_link::{Abilities, Ability, Backend, Impairment, OutgoingLinks};

use crate::client::Error;

/// A link that loses at least this share of packets may let no measurement of it succeed.
const LOSS_THAT_HIDES: f64 = 0.5;

/// Why links are not ready for a trial.
#[derive(Debug)]
pub(crate) struct LinksNotReady {
    pub failure: TrialFailure,
    /// The links as they were measured, if they were.
    pub check: Option<Box<LinkCheck>>,
    /// Nodes whose agents do not answer any more.
    pub lost: BTreeSet<String>,
}

impl LinksNotReady {
    pub(super) fn ineffective(message: String, check: Option<LinkCheck>) -> Self {
        Self {
            failure: failure(None, message),
            check: check.map(Box::new),
            lost: BTreeSet::new(),
        }
    }

    /// Agents restart faster than links are measured.
    pub(crate) fn unstable() -> Self {
        let message = "link agents were started again while links were measured, and again: see their logs";
        Self::ineffective(message.to_owned(), None)
    }

    /// Names the loss of a network as the cause, if it lets too little pass to measure the link.
    pub(super) fn over_loss(mut self, network: &str, directions: [&Impairment; 2]) -> Self {
        let losses = directions
            .into_iter()
            .filter_map(|direction| direction.loss.as_ref()?.ratio());
        let most = losses.fold(0.0, f64::max);
        if most >= LOSS_THAT_HIDES && self.failure.reason == Reason::ImpairmentNotEffective {
            self.failure.message = format!(
                "network {network} loses {:.0} % of packets, so too few datagrams of a probe arrived: lower its loss ({})",
                most * 100.0,
                self.failure.message
            );
        }
        self
    }

    pub(super) fn of_call(name: &str, what: &str, error: &Error) -> Self {
        let message = format!("{name}: failed to {what}: {}", error.describe());
        let lost = matches!(error, Error::Unreachable(_)).then(|| name.to_owned());
        Self {
            failure: TrialFailure {
                node: Some(name.to_owned()),
                reason: if lost.is_some() {
                    Reason::NodeLost
                } else {
                    Reason::ImpairmentNotEffective
                },
                message,
                other_limit: false,
            },
            check: None,
            lost: lost.into_iter().collect(),
        }
    }
}

pub(super) fn failure(node: Option<&str>, message: String) -> TrialFailure {
    TrialFailure {
        node: node.map(str::to_owned),
        reason: Reason::ImpairmentNotEffective,
        message,
        other_limit: false,
    }
}

/// All answers, or the first failure and all nodes that were lost.
pub(super) fn all_or_first_failure<T>(
    answers: Vec<Result<T, LinksNotReady>>,
) -> Result<Vec<T>, LinksNotReady> {
    let (mut good, mut first) = (vec![], None::<LinksNotReady>);
    for answer in answers {
        match (answer, &mut first) {
            (Ok(answer), _) => good.push(answer),
            (Err(not_ready), Some(first)) => first.lost.extend(not_ready.lost),
            (Err(not_ready), None) => first = Some(not_ready),
        }
    }
    first.map_or(Ok(good), Err)
}

/// Why the agent of a node cannot be used.
#[derive(Debug)]
pub(crate) enum AgentError {
    /// The requested impairment is not available.
    Unsupported(String),
    /// An agent does not answer.
    Unreachable(String),
}

/// Why a node cannot impair as requested. `None` if it can.
pub(super) fn why_unsupported(
    name: &str,
    impairments: &NetworkImpairments,
    abilities: &Abilities,
) -> Option<AgentError> {
    let refusal = |ability: &Ability| match ability {
        Ability::Available => None,
        Ability::Unavailable { reason, detail } => Some(format!("{reason} ({detail})")),
    };
    let why = match impairments.backend {
        Backend::Kernel => refusal(&abilities.kernel),
        Backend::Userspace => refusal(&abilities.userspace),
        Backend::Auto => abilities
            .choose(&OutgoingLinks::default())
            .err()
            .map(|error| error.to_string()),
    }?;
    Some(AgentError::Unsupported(format!(
        "network {} on {name}: {why}",
        impairments.name
    )))
}
