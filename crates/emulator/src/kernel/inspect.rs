//! Links that are at work in the kernel, read back from it: the process that has set them may be gone.

use rtnetlink::packet_route::tc::TcHandle;

use super::{Error, NETEM, NETEM_BELOW_TBF, ROOT, class, find};
use crate::caught::caught;
use crate::kernel::netem::Netem;
use crate::netlink::{Device, Netlink};
use perfrun_link::Kind;
use perfrun_link::ability::KERNEL_ROUTES_MAX;
use perfrun_link::impairment::Mode;
use perfrun_link::route::{Link, Route};
use perfrun_link::state::{State, Traffic};

/// What netem does to what leaves an interface; nothing if it is not ours. Counted is since it was set up.
///
/// The kernel does not tell everything: a jitter's distribution is given as the default. Peers that are an exception to a
/// link are not listed.
pub(crate) fn inspect(netlink: &mut Netlink, device: &str, found: Device) -> Result<Option<State>, Error> {
    let qdiscs = netlink.qdiscs(found.index).map_err(Error::Connect)?;
    let is_ours = qdiscs
        .iter()
        .any(|qdisc| qdisc.parent == TcHandle::ROOT && qdisc.handle == ROOT);
    if !is_ours {
        return Ok(None);
    }
    let caught = caught(netlink, found.index, ROOT).map_err(Error::Connect)?;
    let is_cut = |qdisc: &crate::tc::Qdisc| {
        (NETEM_BELOW_TBF..NETEM).contains(&qdisc.handle.major) && qdisc.kind == "netem"
    };
    let mode = if qdiscs.iter().any(is_cut) {
        Mode::PerPacket
    } else {
        Mode::SuperPackets
    };
    let mut routes = Vec::new();
    let mut traffic = Vec::new();
    for number in 0..KERNEL_ROUTES_MAX as u16 {
        let Some(qdisc) = find(&qdiscs, number, mode) else {
            continue;
        };
        let Some(netem) = Netem::decode(&qdisc.options) else {
            continue;
        };
        let led_there = caught.iter().filter(|caught| caught.class == class(number));
        routes.push(Route {
            peers: led_there.map(|caught| caught.peer).collect(),
            impairment: netem.impairment(),
        });
        let stats = qdisc.stats.unwrap_or_default();
        traffic.push(Traffic::Kernel {
            packets_out: stats.packets,
            dropped: stats.dropped.into(),
            held: stats.queued,
        });
    }
    let link = Link::new(routes).map_err(|source| Error::Altered {
        device: device.to_owned(),
        source,
    })?;
    Ok(Some(State {
        link,
        backend: Kind::Kernel,
        mode,
        traffic,
        worker: None,
    }))
}
