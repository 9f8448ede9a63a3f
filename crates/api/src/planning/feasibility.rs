//! Runs that cannot succeed, as is known before their first node starts.
//!
//! A run that has begun is not checked: it may have begun with a version that allowed it, and what it has
//! measured counts.

use std::{collections::BTreeSet, time::Duration};

use perfrun_contract::{
    compare::{Bound, Expectation},
    limits::DIAL_TIMEOUT,
    matrix::Stack,
    metric::{Better, Metric},
    parameters::Parameters,
    plan::{Cell, Plan},
    quantity::ByteSize,
    role::Role,
    support::{dial_round_trips, why_pair_unsupported},
};
use perfrun_link::{Impairment, Loss, Ratio};

use super::Error;
use crate::spec::PerfRunSpec;

/// Refuses a plan whose trials cannot succeed, or that cannot end in their time or in that of the run.
pub fn check(spec: &PerfRunSpec, plan: &Plan) -> Result<(), Error> {
    for network in &plan.networks {
        if network.all().any(delivers_nothing) {
            return Err(Error::NothingArrives(network.name.clone()));
        }
    }
    for cell in &plan.cells {
        check_distance(plan, cell)?;
        check_relay_limits(cell)?;
        check_time(plan, cell, spec.timeouts.trial.into())?;
    }
    for (index, expectation) in plan.judging.expect.iter().enumerate() {
        check_metric(plan, expectation.metric)
            .and_then(|()| check_raw_reference(spec, plan, expectation))
            .map_err(|problem| Error::Expectation { index, problem })?;
    }
    let (limit, least) = (spec.timeouts.run.into(), plan.least_time());
    if least.time > limit {
        return Err(Error::TooLong { limit, least });
    }
    Ok(())
}

/// Refuses a metric that no cell can have.
fn check_metric(plan: &Plan, metric: Metric) -> Result<(), String> {
    let loads = || plan.cells.iter().map(|cell| &cell.parameters);
    let Some(load) = loads()
        .next()
        .filter(|_| !loads().any(|load| load.may_have(metric)))
    else {
        return Ok(());
    };
    let cost = match load.operation() {
        Some(_) => Metric::CpuSecondsPerOperation,
        None => Metric::CpuSecondsPerGiB,
    };
    let own: BTreeSet<Metric> = loads().flat_map(|load| load.own_metrics()).collect();
    let judged = own
        .into_iter()
        .filter(|metric| metric.better() != Better::Neither);
    Err(format!(
        "{} does not measure {metric}; it measures {}, and costs such as {cost}",
        load.workload(),
        Vec::from_iter(judged.map(|metric| metric.to_string())).join(", ")
    ))
}

/// Refuses a share of raw that is expected of cells of which none has a raw reference.
fn check_raw_reference(spec: &PerfRunSpec, plan: &Plan, expectation: &Expectation) -> Result<(), String> {
    let cells = || expectation.cells.iter().filter_map(|cell| plan.cells.get(*cell));
    let Bound::MinShareOfRaw(_) = expectation.bound else {
        return Ok(());
    };
    match cells().next() {
        Some(first) if !cells().any(|cell| plan.raw_of(cell).is_some()) => Err(format!(
            "no cell that it is about has a raw reference: {}",
            why_without_raw(spec, first)
        )),
        _ => Ok(()),
    }
}

/// Why a cell has no raw reference, and what to change.
fn why_without_raw(spec: &PerfRunSpec, cell: &Cell) -> String {
    if cell.is_raw() {
        "raw is not compared with itself; name cells of other stacks by where, or use min or max".to_owned()
    } else if let Some(reason) =
        why_pair_unsupported(Stack::Raw, Stack::Raw, cell.transport.raw(), &cell.parameters)
    {
        format!("{reason}; use min, max or maxRegression")
    } else if !spec.matrix.raw_reference {
        "matrix.rawReference is false; set it to true, or use min, max or maxRegression".to_owned()
    } else {
        "raw has the default congestion control, and settings choose another; name cells without such settings by \
         where, or use min, max or maxRegression"
            .to_owned()
    }
}

fn delivers_nothing(impairment: &Impairment) -> bool {
    let corrupts_all = impairment
        .corrupt
        .as_ref()
        .is_some_and(|chance| chance.ratio == Ratio::ONE);
    corrupts_all
        || match impairment.loss {
            None => false,
            Some(Loss::Random { ratio, .. }) => ratio == Ratio::ONE,
            Some(Loss::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_in_bad,
                loss_in_good,
            }) => {
                let stays_bad = leave_bad.is_zero() && !enter_bad.is_zero();
                loss_in_bad == Ratio::ONE && (stays_bad || loss_in_good == Ratio::ONE)
            }
        }
}

/// Refuses a cell whose network is too far for its stacks or for its duration.
fn check_distance(plan: &Plan, cell: &Cell) -> Result<(), Error> {
    let Some(network) = plan.network(&cell.network) else {
        return Ok(());
    };
    let ways = cell.impairments_of_ways(network);
    let round_trip: Duration = ways.iter().flatten().map(|impairment| impairment.delay).sum();
    let round_trips = dial_round_trips(cell.client_stack, cell.transport);
    if round_trip * round_trips >= DIAL_TIMEOUT {
        return Err(Error::TooFarToDial {
            network: network.name.clone(),
            stack: cell.client.clone(),
            transport: cell.transport,
            round_trip,
            round_trips,
        });
    }
    let load = &cell.parameters;
    let (duration, round_trips) = (load.duration(), load.round_trips_before_a_value());
    if let Some(field) = load.field_of_duration()
        && duration <= round_trip * round_trips
    {
        return Err(Error::TooShort {
            field,
            network: network.name.clone(),
            duration,
            round_trip,
            round_trips,
        });
    }
    let transits = ways
        .iter()
        .flatten()
        .map(|impairment| impairment.shortest_transit());
    let shortest: Duration = transits.sum();
    match load {
        Parameters::Echo(echo) if echo.deadline() <= shortest => Err(Error::DeadlineTooShort {
            network: network.name.clone(),
            round_trip: shortest,
            deadline: echo.deadline(),
        }),
        _ => Ok(()),
    }
}

/// Refuses limits of a relay with which no transfer ends. The proxy in place of a relay, raw, has none.
fn check_relay_limits(cell: &Cell) -> Result<(), Error> {
    let load = &cell.parameters;
    if !load.is_relayed() || matches!(cell.stack_of(Role::Relay).0, Stack::Raw) {
        return Ok(());
    }
    let (workload, limits) = (load.workload(), load.limits());
    let counts = [
        ("reservations", "reservation", limits.reservations),
        ("circuits", "circuit", limits.circuits),
        ("circuitsPerPeer", "circuit", limits.circuits_per_peer),
    ];
    for (limit, refused, most) in counts {
        if most == Some(0) {
            return Err(Error::RelayRefusesAll {
                workload,
                limit,
                refused,
            });
        }
    }
    let bytes = ByteSize(load.served_bytes());
    match limits.circuit_bytes {
        Some(most) if most <= bytes => Err(Error::CircuitTooSmall {
            workload,
            field: match load {
                Parameters::RelayStress(_) => "transferBytes",
                _ => "sizes",
            },
            most,
            bytes,
        }),
        _ => Ok(()),
    }
}

/// Refuses a cell whose trials take longer over its network than they may. A trial has the duration of its
/// load, and `timeout`.
fn check_time(plan: &Plan, cell: &Cell, timeout: Duration) -> Result<(), Error> {
    let duration = cell.parameters.duration();
    let least = plan.least_time_of(cell);
    match least > timeout.saturating_add(duration) {
        true => Err(Error::TooSlow {
            cell: cell.id.clone(),
            network: cell.network.clone(),
            least,
            duration,
            timeout,
        }),
        false => Ok(()),
    }
}
