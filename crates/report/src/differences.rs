//! What must be equal for runs to be compared.

mod fields;
mod property;

use std::collections::{BTreeMap, BTreeSet};

use perfrun_contract::{
    network::NetworkImpairments,
    node::Info,
    plan::{Cell, Plan},
    record::LinkCheck,
    reported_run::ReportedRun,
    role::Role,
};
use perfrun_judge::Statistics;
use perfrun_link::{
    Backend,
    probe::{Quantity, QuantityFinding},
};
use serde_json::json;
use strum::{Display, EnumIter, EnumString, IntoEnumIterator, VariantNames};

use self::{
    fields::{Fields, differing_fields, fields, workload},
    property::Property::{self, Bytes, Limits, Machines, Number, OneMachine, Switch, Text},
};
use crate::{
    order::grouped,
    runs::ComparedRuns,
    table::{Kind, NOTHING, Table},
    tables::{environment::NodeAnswers, links},
    terminal,
};

/// The measured quantities of links that must be alike.
const MEASURED: [Quantity; 5] = [
    Quantity::RoundTripMedian,
    Quantity::LossForward,
    Quantity::LossBackward,
    Quantity::RateForward,
    Quantity::RateBackward,
];

/// The allocator of nodes that do not name theirs: before they did, perfrun-node had no other.
const JEMALLOC: &str = "jemalloc";

/// Something that must be equal in all runs, by the name that `--allow` has for it.
#[derive(Clone, Copy, Debug, Display, EnumIter, EnumString, Eq, PartialEq, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Field {
    /// The version of perfrun, which computes metrics.
    Perfrun,
    /// The version of the node contract.
    Contract,
    /// What keeps nodes apart.
    Isolation,
    /// Numbers of nodes and peers.
    Topology,
    /// Which nodes share a machine.
    Placement,
    /// What trials do, timing included.
    Workload,
    /// Stacks of cells, and their settings.
    Settings,
    /// Environment variables of variants of stacks.
    Env,
    /// First arguments of the programs of variants.
    Arguments,
    /// Settings of pods that affect what is measured.
    Pods,
    /// Impairments of networks.
    Network,
    /// Round trip, loss and rate of links, as measured.
    Links,
    /// The order of trials.
    Order,
    /// When nodes restart.
    Renew,
    /// The model of the CPU.
    Cpu,
    /// CPUs that a node may use.
    Cpus,
    /// CPUs that the control group grants.
    CpuLimit,
    /// Memory that the control group grants.
    MemoryLimit,
    /// The release of the kernel.
    Kernel,
    /// The CPU frequency governor.
    Governor,
    /// Whether CPUs share cores.
    Smt,
    /// The hypervisor.
    Hypervisor,
    /// Mitigations of vulnerabilities of the CPU.
    Mitigations,
    /// The MTU of the interface.
    Mtu,
    /// TCP congestion control.
    CongestionControl,
    /// The largest TCP windows.
    TcpWindows,
    /// The largest buffers of UDP sockets.
    UdpBuffers,
    /// The profile that nodes were built with.
    Profile,
    /// The compiler of nodes.
    Compiler,
    /// Features of CPUs that the compiler used.
    TargetFeatures,
    /// What allocates the memory of nodes.
    Allocator,
    /// Versions of stacks. That of one stack may differ: it is what is compared.
    Stacks,
}

/// Something that is not equal in all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// What differs.
    pub field: Field,
    /// The cell, variant, network, stack or part of the document that has it; empty for the run as a whole.
    pub subject: String,
    /// What each run has, those of the baseline first. `None` if its results do not say.
    pub values: Vec<Option<String>>,
}

/// What differs between runs that measure the cells of a plan which they share. What results of an older
/// version do not say differs from what others say.
pub fn differences(shared: &Plan, runs: ComparedRuns<'_>) -> Vec<Difference> {
    let all = runs.all();
    let runs = all.as_slice();
    let cells: Vec<&Cell> = (shared.judging.cell_pairs.iter())
        .map(|cell_pair| &shared.cells[cell_pair.candidate])
        .collect();
    let of_runs =
        Field::iter().filter_map(|field| difference(field, "", runs, |run| of_run(field, run), texts));
    let of_cells = cells.iter().flat_map(|Cell { id, .. }| {
        let of = |field, value: fn(&Cell) -> Fields| {
            let value = |run: &ReportedRun<'_>| run.plan.cell(id).map(value);
            difference(field, id, runs, value, differing_fields)
        };
        [
            of(Field::Workload, |cell| workload(&cell.parameters)),
            of(Field::Settings, settings),
            of(Field::Topology, topology),
        ]
    });
    let ids: BTreeSet<&String> = cells.iter().map(|cell| &cell.id).collect();
    let variants: BTreeSet<&str> = runs.iter().flat_map(|run| variants(run.plan, &ids)).collect();
    let of_variants = variants.into_iter().flat_map(|name| {
        let env = |run: &ReportedRun<'_>| run.inputs.env.get(name).map(fields);
        let arguments = |run: &ReportedRun<'_>| run.inputs.arguments.get(name).map(|all| json!(all));
        [
            difference(Field::Env, name, runs, env, differing_fields),
            difference(Field::Arguments, name, runs, arguments, texts),
        ]
    });
    let parts: BTreeSet<&str> = runs
        .iter()
        .flat_map(|run| run.inputs.pods.keys().copied())
        .collect();
    let of_pods = parts.into_iter().map(|part| {
        let pods = |run: &ReportedRun<'_>| run.inputs.pods.get(part).cloned();
        difference(Field::Pods, part, runs, pods, texts)
    });
    let networks: BTreeSet<&String> = cells.iter().map(|cell| &cell.network).collect();
    let of_networks = networks
        .iter()
        .map(|name| difference(Field::Network, name, runs, |run| network(run, name), texts));
    let of_links = networks.iter().flat_map(|name| link_differences(name, runs));
    let stacks: BTreeSet<String> = cells.iter().flat_map(|cell| stacks(cell)).collect();
    let of_stacks: Vec<Difference> = stacks
        .iter()
        .filter_map(|name| {
            let version = |node: &Info| node.stacks.get(name).cloned();
            difference(
                Field::Stacks,
                name,
                runs,
                |run| NodeAnswers::of(run, version),
                texts,
            )
        })
        .collect();
    // The one that differs is what is compared.
    let of_stacks = of_stacks.into_iter();
    let of_stacks = if of_stacks.len() == 1 {
        vec![]
    } else {
        of_stacks.collect()
    };
    of_runs
        .chain(of_cells.flatten())
        .chain(of_variants.flatten())
        .chain(of_pods.flatten())
        .chain(of_networks.flatten())
        .chain(of_links)
        .chain(of_stacks)
        .collect()
}

/// What differs between the values of runs, in the form that these texts have.
fn difference<'a, T: PartialEq>(
    field: Field,
    subject: &str,
    runs: &[&ReportedRun<'a>],
    value: impl Fn(&ReportedRun<'a>) -> Option<T>,
    texts: impl FnOnce(&[Option<T>]) -> Vec<Option<String>>,
) -> Option<Difference> {
    let values: Vec<Option<T>> = runs.iter().map(|run| value(run)).collect();
    let differ = values.iter().any(|value| *value != values[0]);
    differ.then(|| Difference {
        field,
        subject: subject.to_owned(),
        values: texts(&values),
    })
}

fn texts<T: ToString>(values: &[Option<T>]) -> Vec<Option<String>> {
    values
        .iter()
        .map(|value| value.as_ref().map(T::to_string))
        .collect()
}

/// What each side has, as a table for a terminal of this width: a row for all that differ alike. The first
/// runs are of the baseline, that many.
pub fn differences_table(differences: &[Difference], baselines: usize, width: usize) -> String {
    let side = |values: &[Option<String>]| {
        let mut distinct: Vec<&str> = values
            .iter()
            .map(|value| value.as_deref().unwrap_or(NOTHING))
            .collect();
        distinct.sort_unstable();
        distinct.dedup();
        distinct.join("; ")
    };
    let alike = grouped(differences.iter().map(|difference| {
        let Difference {
            field,
            subject,
            values,
        } = difference;
        ((field.to_string(), values), subject.as_str())
    }));
    let row = |((field, values), subjects): ((String, &Vec<Option<String>>), Vec<&str>)| {
        let (a, b) = values.split_at(baselines);
        let others = match subjects.len() {
            ..=1 => String::new(),
            all => format!(" and {} more", all - 1),
        };
        vec![
            field.into(),
            format!("{}{others}", subjects[0]).into(),
            side(a).into(),
            side(b).into(),
        ]
    };
    let table = Table {
        title: "Differences".to_owned(),
        keys: 1,
        header: ["field", "of", "baseline", "candidate"]
            .map(str::to_owned)
            .to_vec(),
        rows: alike.into_iter().map(row).collect(),
        kind: Kind::Prose,
        ..Table::default()
    };
    terminal::text_of_table(&table, width)
}

/// What a run as a whole has; nothing for what its parts have.
fn of_run<'a>(field: Field, run: &ReportedRun<'a>) -> Option<NodeAnswers<'a, Property>> {
    let of = |value: fn(&Info) -> Option<Property>| NodeAnswers::of(run, value);
    let text = |text: &str| Some(NodeAnswers::Same(Text(text.to_owned())));
    match field {
        Field::Perfrun => text(&run.environment.perfrun),
        Field::Contract => of(|node| Some(Number(node.contract.into()))),
        Field::Isolation => text(&run.environment.isolation.to_string()),
        Field::Placement => Some(NodeAnswers::Same(placement(run))),
        Field::Order => text(&run.settings.order.to_string()),
        Field::Renew => text(&run.plan.renew.to_string()),
        Field::Cpu => of(|node| Some(Text(node.cpu.clone()))),
        Field::Cpus => of(|node| Some(Number(node.cpus.into()))),
        Field::CpuLimit => of(|node| node.cpu_limit.map(Number)),
        Field::MemoryLimit => of(|node| node.memory_limit_bytes.map(Bytes)),
        Field::Kernel => of(|node| Some(Text(node.kernel.clone()))),
        Field::Governor => of(|node| node.governor.clone().map(Text)),
        Field::Smt => of(|node| node.smt.map(Switch)),
        Field::Hypervisor => of(|node| node.hypervisor.clone().map(Text)),
        Field::Mitigations => of(|node| node.mitigations.clone().map(Text)),
        Field::Mtu => of(|node| Some(Number(node.mtu_bytes?.into()))),
        Field::CongestionControl => of(|node| node.congestion_control.clone().map(Text)),
        Field::TcpWindows => of(|node| node.tcp_window_limits_bytes.map(Limits)),
        Field::UdpBuffers => of(|node| node.socket_buffer_limits_bytes.map(Limits)),
        Field::Profile => of(|node| Some(Text(node.profile.clone()))),
        Field::Compiler => of(|node| node.compiler.clone().map(Text)),
        Field::TargetFeatures => of(|node| node.target_features.clone().map(Text)),
        Field::Allocator => of(|node| Some(Text(node.allocator.as_deref().unwrap_or(JEMALLOC).to_owned()))),
        Field::Topology
        | Field::Workload
        | Field::Settings
        | Field::Env
        | Field::Arguments
        | Field::Pods
        | Field::Network
        | Field::Links
        | Field::Stacks => None,
    }
}

/// The stacks of a cell, and their settings.
fn settings(cell: &Cell) -> Fields {
    let relay = (!cell.relays.is_empty()).then_some(Role::Relay);
    let roles = [Role::Client, Role::Server].into_iter().chain(relay);
    let sides = roles.map(|role| {
        let (stack, settings) = cell.stack_of(role);
        (role.to_string(), json!({"stack": stack, "settings": settings}))
    });
    fields(&sides.collect::<BTreeMap<_, _>>())
}

/// Numbers of nodes and peers, and the stack of relays.
fn topology(cell: &Cell) -> Fields {
    let numbers = [
        ("clients", json!(cell.clients.len())),
        ("peersPerClient", json!(cell.peers_per_client)),
        ("servers", json!(cell.servers.len())),
        ("relays", json!(cell.relays.len())),
    ];
    let stack = (!cell.relays.is_empty()).then(|| ("relayStack", json!(cell.stack_of(Role::Relay).0)));
    fields(&numbers.into_iter().chain(stack).collect::<BTreeMap<_, _>>())
}

/// The impairments of a network, whatever impairs its packets.
fn network(run: &ReportedRun<'_>, name: &str) -> Option<NetworkImpairments> {
    let network = run.plan.network(name)?.clone();
    Some(NetworkImpairments {
        backend: Backend::default(),
        ..network
    })
}

/// A quantity of the links of a network, as a run measured it.
#[derive(Clone, Copy)]
struct MeasuredQuantity {
    /// The median over all links, each time that they were set and were as configured.
    value: f64,
    /// How far another run's value may be from it: the median of what each link may differ from its
    /// configuration; for losses, of what two links may differ by chance.
    tolerance: f64,
}

impl MeasuredQuantity {
    fn of(quantity: Quantity, network: &str, run: &ReportedRun<'_>) -> Option<Self> {
        let checks = run.trials.iter().filter_map(|record| record.links.as_ref());
        let checks: Vec<&LinkCheck> = checks
            .filter(|check| check.network == network && check.is_effective())
            .collect();
        let parts = links::findings(&checks, quantity).map(|(sent, finding)| {
            let QuantityFinding {
                measured,
                least,
                most,
                ..
            } = *finding;
            match quantity.is_loss() {
                true => (measured / sent, (most - least) / sent),
                false => (measured, (most - least) / 2.0),
            }
        });
        let (values, tolerances): (Vec<f64>, Vec<f64>) = parts.unzip();
        Some(Self {
            value: Statistics::of(values)?.median,
            tolerance: Statistics::of(tolerances)?.median,
        })
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.value - other.value).abs() <= self.tolerance.max(other.tolerance)
    }

    fn text(&self, quantity: Quantity) -> String {
        match quantity.is_loss() {
            true => format!("{:.2} %", self.value * 100.0),
            false => format!("{:.2}", self.value),
        }
    }
}

/// Quantities of the links of a network that runs measured too differently. A loss or a rate that a run could
/// not measure is left out. A run without any link that was as configured differs from others.
fn link_differences(network: &str, runs: &[&ReportedRun<'_>]) -> Vec<Difference> {
    let difference = |quantity: Quantity| {
        let all: Vec<Option<MeasuredQuantity>> = runs
            .iter()
            .map(|run| MeasuredQuantity::of(quantity, network, run))
            .collect();
        let known: Vec<&MeasuredQuantity> = all.iter().flatten().collect();
        // Every check of links has it.
        let is_certain = quantity == Quantity::RoundTripMedian;
        let is_missing = is_certain && !known.is_empty() && known.len() < all.len();
        let are_alike = known
            .iter()
            .all(|one| known.iter().all(|other| one.is_like(other)));
        (is_missing || !are_alike).then(|| Difference {
            field: Field::Links,
            subject: format!("{network}, {quantity}"),
            values: all
                .iter()
                .map(|one| one.map(|measured| measured.text(quantity)))
                .collect(),
        })
    };
    MEASURED.into_iter().filter_map(difference).collect()
}

/// The variants of stacks that nodes of these cells have.
fn variants<'a>(plan: &'a Plan, cells: &BTreeSet<&String>) -> BTreeSet<&'a str> {
    let cells = plan.cells.iter().filter(|cell| cells.contains(&cell.id));
    let nodes: BTreeSet<&String> = cells.flat_map(Cell::nodes).collect();
    let nodes = plan.nodes.iter().filter(|node| nodes.contains(&node.name));
    nodes.filter_map(|node| node.variant.as_deref()).collect()
}

/// The names by which nodes may know the stacks of a cell.
fn stacks(cell: &Cell) -> impl Iterator<Item = String> {
    let stacks = [Some(cell.client_stack), Some(cell.server_stack), cell.relay_stack];
    let names = [&cell.client, &cell.server].map(ToString::to_string);
    stacks
        .into_iter()
        .flatten()
        .map(|stack| stack.to_string())
        .chain(names)
}

fn placement(run: &ReportedRun<'_>) -> Property {
    let mut machines: Vec<(&Info, Vec<String>)> = vec![];
    for (name, info) in &run.environment.nodes {
        match machines
            .iter_mut()
            .find(|(other, _)| other.shares_machine_with(info))
        {
            Some((_, names)) => names.push(name.clone()),
            None => machines.push((info, vec![name.clone()])),
        }
    }
    match machines.len() {
        1 => OneMachine,
        _ => Machines(machines.into_iter().map(|(_, names)| names).collect()),
    }
}
