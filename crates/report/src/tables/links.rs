//! Links: their configuration beside their measurements.

use perfrun_contract::{
    record::{Leg, LinkCheck},
    reported_run::ReportedRun,
    units::Unit,
};
use perfrun_link::probe::{Judgement, Quantity, QuantityFinding, Rate};

use crate::{
    order::distinct,
    table::{Kind, NOTHING, Table},
    units,
};

/// A row for each network: the ranges of the values measured each time the links were set.
pub(super) fn table(results: &ReportedRun<'_>) -> Option<Table> {
    let checks: Vec<&LinkCheck> = results
        .trials
        .iter()
        .filter_map(|record| record.links.as_ref())
        .collect();
    let rows = results.plan.networks.iter().map(|network| {
        let checks: Vec<_> = checks
            .iter()
            .copied()
            .filter(|check| check.network == network.name)
            .collect();
        let range = |quantity, scale: fn(f64, &QuantityFinding) -> f64, text: fn(f64) -> String| {
            let values = findings(&checks, quantity).map(|(sent, finding)| scale(sent, finding));
            range(values, text).into()
        };
        let share: fn(f64, &QuantityFinding) -> f64 = |sent, finding| finding.measured / sent.max(1.0);
        let plain: fn(f64, &QuantityFinding) -> f64 = |_, finding| finding.measured;
        let percent: fn(f64) -> String = |share| format!("{:.2} %", share * 100.0);
        let outside = checks.iter().filter(|check| !check.is_effective()).count();
        let verdict = match (checks.len(), outside) {
            (0, _) => "not set".to_owned(),
            (_, 0) => as_configured(&checks).to_owned(),
            (all, outside) => format!("{outside} of {all} times not as configured"),
        };
        vec![
            network.name.as_str().into(),
            network.to_string().into(),
            range(Quantity::RoundTripMedian, plain, |milliseconds| {
                format!("{milliseconds:.2} ms")
            }),
            range(Quantity::LossForward, share, percent),
            range(Quantity::LossBackward, share, percent),
            rates(&checks, Quantity::RateForward, |leg| leg.measured.rate).into(),
            rates(&checks, Quantity::RateBackward, |leg| leg.rate_to_client).into(),
            backends(results, &network.name).into(),
            verdict.into(),
        ]
    });
    let others = [
        "Configured",
        "Round trip\np50",
        "Lost\nto server",
        "Lost\nto client",
        "Rate\nto server",
        "Rate\nto client",
        "Impaired\nby",
        "Measured links were",
    ];
    let caption = "what a probe measured each time the links were set, lowest to highest; ≥: nearly everything that was sent arrived";
    Table::new(Kind::Main, &["Network"], others, rows)
        .called("Links", caption)
        .unless_empty()
}

/// The measurements of a check in one line.
pub fn line(check: &LinkCheck) -> String {
    let findings: Vec<String> = check
        .legs
        .first()
        .into_iter()
        .flat_map(|leg| &leg.findings)
        .filter(|finding| finding.judgement != Judgement::NotJudged)
        .map(|finding| format!("{} {:.2}", finding.quantity, finding.measured))
        .collect();
    let verdict = match check.outside().next() {
        None => as_configured(&[check]).to_owned(),
        Some((leg, finding)) => format!("not as configured ({} to {}: {finding})", leg.client, leg.server),
    };
    let took = check.set_seconds + check.probe_seconds;
    format!(
        "links: {}, {}; {verdict}, in {took:.1} s",
        check.network,
        findings.join(", ")
    )
}

fn as_configured(checks: &[&LinkCheck]) -> &'static str {
    let losses = [Quantity::LossForward, Quantity::LossBackward];
    let mut losses = losses.into_iter().flat_map(|quantity| findings(checks, quantity));
    if losses.any(|(_, finding)| finding.judgement == Judgement::NotJudged) {
        "as configured, too little loss to judge"
    } else {
        "as configured"
    }
}

/// The values of a quantity, each with the number of datagrams sent to measure it. Losses too small to judge
/// are included.
pub(crate) fn findings<'a>(
    checks: &'a [&LinkCheck],
    quantity: Quantity,
) -> impl Iterator<Item = (f64, &'a QuantityFinding)> {
    let legs = checks.iter().flat_map(|check| &check.legs);
    legs.flat_map(move |leg| {
        let sent = match quantity {
            Quantity::LossBackward => leg.measured.backward.sent,
            _ => leg.measured.forward.sent,
        };
        let matching = leg.findings.iter().filter(move |finding| {
            finding.quantity == quantity
                && (finding.judgement != Judgement::NotJudged || quantity.is_loss() && sent > 0)
        });
        matching.map(move |finding| (f64::from(sent), finding))
    })
}

fn range(values: impl Iterator<Item = f64>, text: fn(f64) -> String) -> String {
    let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
        Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    });
    match ends.map(|(low, high)| (text(low), text(high))) {
        None => NOTHING.to_owned(),
        Some((low, high)) if low == high => low,
        Some((low, high)) => format!("{low} to\n{high}"),
    }
}

/// The judged rates. Without a configured rate, the rate that the link carried, or a lower bound if no link
/// was full.
fn rates(checks: &[&LinkCheck], quantity: Quantity, available: fn(&Leg) -> Option<Rate>) -> String {
    let text = |bits| units::text(Unit::BitsPerSecond, bits);
    let judged = range(
        findings(checks, quantity).map(|(_, finding)| finding.measured * 1e6),
        text,
    );
    let legs = checks.iter().flat_map(|check| &check.legs);
    let unset = legs.filter(|leg| leg.findings.iter().all(|finding| finding.quantity != quantity));
    let rates: Vec<Rate> = unset.filter_map(available).collect();
    if judged != NOTHING || rates.is_empty() {
        return judged;
    }
    let received = rates.iter().map(|rate| rate.received_bits_per_second as f64);
    if rates.iter().any(Rate::is_limit) {
        return range(received, text);
    }
    format!("≥ {}", text(received.fold(f64::INFINITY, f64::min)))
}

/// The backends that impaired links in trials on this network.
fn backends(results: &ReportedRun<'_>, network: &str) -> String {
    let cells = &results.plan.cells;
    let records = results.trials.iter().filter(|record| {
        let cell = cells.get(record.trial.cell);
        cell.is_some_and(|cell| cell.network == network)
    });
    let nodes = records.flat_map(|record| record.nodes.values());
    let links = nodes.filter_map(|node| node.link.as_ref());
    let backends = distinct(links.map(|link| link.backend.to_string()));
    if backends.is_empty() {
        NOTHING.to_owned()
    } else {
        backends.join(", ")
    }
}
