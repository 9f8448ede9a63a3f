//! Links in the kernel, read back from it: the process that set them may have ended.

use perfrun_link::{
    ActiveBackend,
    ability::KERNEL_ROUTES_MAX,
    impairment::Mode,
    route::{OutgoingLinks, Route},
    state::{LinkState, Traffic},
};

use super::{Error, NETEM, NETEM_BELOW_TBF, ROOT, class, find, has_own_root, qdiscs};
use crate::{
    caught::caught_peers,
    interface::{self, Interface},
    kernel::netem::Netem,
    tc::Qdisc,
};

/// Reads what netem does to packets that leave an interface. `None` if this crate did not set it up. Counts
/// begin when it was set up.
///
/// The kernel does not report the distribution of a jitter, which is given as the default one. Peers that are
/// an exception to a link are not listed.
pub(crate) fn inspect(interface: &mut Interface) -> Result<Option<LinkState>, Error> {
    let qdiscs = qdiscs(interface)?;
    if !has_own_root(&qdiscs) {
        return Ok(None);
    }
    let caught = caught_peers(&mut interface.netlink, interface.rules.index, ROOT)
        .map_err(interface::Error::Connect)?;
    let is_cut =
        |qdisc: &Qdisc| (NETEM_BELOW_TBF..NETEM).contains(&qdisc.handle.major) && qdisc.kind == "netem";
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
        let led_to_class = caught.iter().filter(|caught| caught.class == class(number));
        routes.push(Route {
            peers: led_to_class.map(|caught| caught.peer).collect(),
            impairment: netem.impairment(),
        });
        let stats = qdisc.stats.unwrap_or_default();
        traffic.push(Traffic::Kernel {
            packets_out: stats.packets,
            dropped: stats.dropped.into(),
            held: stats.queued,
        });
    }
    let links = OutgoingLinks::new(routes).map_err(|source| Error::Altered {
        interface: interface.name.clone(),
        source,
    })?;
    Ok(Some(LinkState {
        link: links,
        backend: ActiveBackend::Kernel,
        mode,
        traffic,
        worker: None,
    }))
}
