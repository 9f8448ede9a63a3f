//! What is compared: the findings of a run are corrected for the number of these.

use perfrun_contract::{
    compare::{Bound, CellPair, TOLERANCE},
    metric::Metric,
    parameters::Parameters,
    plan::Plan,
    workload::{Direction, MessageMode, RelayPath},
};

/// A metric of a pair of cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    /// Index of the pair of cells in the plan.
    pub(crate) cell_pair: usize,
    pub(crate) metric: Metric,
    /// Differences within this share count as no difference.
    pub(crate) tolerance: f64,
}

/// What a plan compares: of each pair of cells the metrics that have an expectation of at most some
/// regression, or if there are none, those that stand for its workload.
pub(crate) fn of(plan: &Plan) -> Vec<Member> {
    let mut members = vec![];
    for (cell_pair, cells) in plan.judging.cell_pairs.iter().enumerate() {
        let before = members.len();
        for expectation in &plan.judging.expect {
            let (Bound::MaxRegression(tolerance), true) =
                (expectation.bound, expectation.cells.contains(&cells.candidate))
            else {
                continue;
            };
            let metric = expectation.metric;
            match members[before..]
                .iter_mut()
                .find(|member: &&mut Member| member.metric == metric)
            {
                Some(member) => member.tolerance = tolerance.min(member.tolerance),
                None => members.push(Member {
                    cell_pair,
                    metric,
                    tolerance,
                }),
            }
        }
        if members.len() == before {
            let parameters = plan.cells.get(cells.baseline).map(|cell| &cell.parameters);
            let metrics = parameters.map(primary).unwrap_or_default().into_iter();
            let metrics = metrics.filter(|metric| is_alike(plan, *cells, *metric));
            members.extend(metrics.map(|metric| Member {
                cell_pair,
                metric,
                tolerance: TOLERANCE,
            }));
        }
    }
    members
}

/// Whether a metric is the same quantity in both cells of a pair of cells. What programs of two kinds have
/// allocated is not: in Go, for example, it includes what the garbage collector has not found yet.
fn is_alike(plan: &Plan, cell_pair: CellPair, metric: Metric) -> bool {
    let program = |cell: usize| plan.cells.get(cell).map(|cell| cell.client_stack.program());
    metric != Metric::ClientAllocatedPerStream || program(cell_pair.baseline) == program(cell_pair.candidate)
}

/// The metrics that stand for a workload: what it is for, and what that costs. Each more makes the others
/// harder to show.
pub(crate) fn primary(parameters: &Parameters) -> Vec<Metric> {
    match parameters {
        Parameters::Bandwidth { direction, .. } => match direction {
            Direction::Upload => vec![Metric::UploadGoodput, Metric::CpuSecondsPerGiB],
            Direction::Download => vec![Metric::DownloadGoodput, Metric::CpuSecondsPerGiB],
            Direction::Both => vec![
                Metric::UploadGoodput,
                Metric::DownloadGoodput,
                Metric::CpuSecondsPerGiB,
            ],
        },
        // Of a burst, the rate is that of its slowest substream: it varies too much.
        Parameters::Substreams { .. } => vec![Metric::OpenP50, Metric::CpuSecondsPerOperation],
        Parameters::Handshakes { in_flight: 0..=1, .. } => {
            vec![Metric::HandshakeFirstByteP50, Metric::CpuSecondsPerOperation]
        }
        Parameters::Handshakes { .. } => vec![Metric::HandshakesPerSecond, Metric::CpuSecondsPerOperation],
        Parameters::Ping { .. } => vec![Metric::RoundTripP50, Metric::CpuSecondsPerOperation],
        Parameters::Relay {
            path: RelayPath::Direct,
            ..
        } => vec![Metric::DownloadGoodput, Metric::CpuSecondsPerGiB],
        Parameters::Relay { .. } | Parameters::RelayStress { .. } => {
            vec![Metric::DownloadGoodput, Metric::RelayCpuSecondsPerGiB]
        }
        Parameters::Echo(_) => vec![
            Metric::RoundTripP50,
            Metric::CpuSecondsPerOperation,
            Metric::ClientAllocatedPerStream,
        ],
        Parameters::Messages(load) => {
            let speed = match (load.mode, load.rate) {
                (MessageMode::Serial, _) | (MessageMode::Broadcast, Some(_)) => Metric::OneWayP50,
                (MessageMode::SerialAck, _) | (MessageMode::Stream, Some(_)) => Metric::RoundTripP50,
                (MessageMode::Stream | MessageMode::Broadcast, None) => Metric::MessagesPerSecond,
            };
            vec![speed, Metric::CpuSecondsPerMessage]
        }
    }
}
