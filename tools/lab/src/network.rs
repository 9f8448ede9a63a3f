//! Links and routes: every machine, and the host, has a link to a bridge on the control plane.
//!
//! ```text
//!   this host                control plane                 node N
//!   perflabS 10.S.0.1 ══════ host ┐
//!                                 lab0 10.S.0.10
//!                          node-N ┘══════════════════════ eth0 10.S.0.10+N   veth… ═══ pods 10.S.N.0/24
//! ```
//!
//! Pods are routed, not bridged, so all their packets pass the node's iptables, whether or not bridges do on
//! this kernel. Only addresses of services are translated. The lab has no route to the outside.

use std::{fmt::Write, fs, net::Ipv4Addr};

use anyhow::{Context, Result};

use crate::{machine, process::Process, subnet::Subnet};

/// The one link on the host.
fn host_link(subnet: Subnet) -> String {
    format!("perflab{}", subnet.number())
}

pub(crate) fn connect_control_plane(control_plane: Process, subnet: Subnet, nodes: u8) -> Result<()> {
    machine::ip(Some(control_plane), &bridge(subnet, nodes))?;
    machine::ip(None, &host_leg(subnet, nodes, control_plane.pid))?;
    machine::ip(Some(control_plane), "link set host master lab0 up\n")
        .context("failed to connect this host to the lab")
}

pub(crate) fn connect_node(
    control_plane: Process,
    holder: Process,
    subnet: Subnet,
    node: u8,
    nodes: u8,
) -> Result<()> {
    machine::ip(
        None,
        &format!(
            "link add node-{node} netns {} type veth peer name eth0 address {} netns {}\n",
            control_plane.pid,
            hardware_address(subnet.node(node)),
            holder.pid
        ),
    )?;
    machine::ip(
        Some(control_plane),
        &format!("link set node-{node} master lab0 up\n"),
    )?;
    machine::ip(Some(holder), &node_leg(subnet, node, nodes))?;
    let forwarding: &[&str] = match subnet.dual_stack {
        true => &["ipv4/ip_forward", "ipv6/conf/all/forwarding"],
        false => &["ipv4/ip_forward"],
    };
    machine::inside(holder, || {
        let mut settings = forwarding.iter();
        settings.try_for_each(|setting| fs::write(format!("/proc/sys/net/{setting}"), "1"))
    })?
    .with_context(|| format!("failed to let node-{node} forward for its pods"))
}

/// Removes what is left of the host's link. The kernel removes the link with the control plane.
pub(crate) fn disconnect_host(subnet: Subnet) -> Result<()> {
    let link = host_link(subnet);
    if fs::exists(format!("/sys/class/net/{link}")).unwrap_or(false)
        && let Err(error) = machine::ip(None, &format!("link delete {link}\n"))
        && fs::exists(format!("/sys/class/net/{link}")).unwrap_or(false)
    {
        return Err(error);
    }
    Ok(())
}

/// The bridge gets a fixed hardware address. Otherwise it takes the lowest address of its ports, and another
/// one when the node of that port dies: the API server was then unreachable for twenty seconds, and the
/// leading operator lost its Lease.
fn bridge(subnet: Subnet, nodes: u8) -> String {
    let own = subnet.control_plane();
    let mut commands = format!(
        "link set lo up\n\
         link add lab0 address {} type bridge\n",
        hardware_address(own)
    );
    set_up(&mut commands, subnet, own, "lab0");
    add_routes(&mut commands, subnet, 1..=nodes);
    commands
}

/// A hardware address that stays the same when a node is restarted, because neighbours keep it in their
/// tables.
fn hardware_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn host_leg(subnet: Subnet, nodes: u8, control_plane: i32) -> String {
    let link = host_link(subnet);
    let mut commands = format!("link add {link} type veth peer name host netns {control_plane}\n");
    set_up(&mut commands, subnet, subnet.host(), &link);
    add_routes(&mut commands, subnet, 1..=nodes);
    commands
}

fn node_leg(subnet: Subnet, node: u8, nodes: u8) -> String {
    let mut commands = "link set lo up\n".to_owned();
    set_up(&mut commands, subnet, subnet.node(node), "eth0");
    add_routes(&mut commands, subnet, (1..=nodes).filter(|other| *other != node));
    commands
}

fn set_up(commands: &mut String, subnet: Subnet, address: Ipv4Addr, link: &str) {
    for address in subnet.on_link(address) {
        writeln!(commands, "address add {address} dev {link}").expect("writing to a string cannot fail");
    }
    writeln!(commands, "link set {link} up").expect("writing to a string cannot fail");
}

fn add_routes(commands: &mut String, subnet: Subnet, nodes: impl Iterator<Item = u8>) {
    for node in nodes {
        for (pods, via) in subnet.pods(node).into_iter().zip(subnet.node_ips(node)) {
            writeln!(commands, "route add {pods} via {via}").expect("writing to a string cannot fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Subnet, bridge, host_leg, host_link, node_leg};

    fn subnet() -> Subnet {
        Subnet::choose("", &[]).unwrap()
    }

    #[test]
    fn a_node_has_routes_to_the_pods_of_the_others() {
        assert_eq!(
            node_leg(subnet(), 2, 3),
            "link set lo up\n\
             address add 10.88.0.12/24 dev eth0\n\
             link set eth0 up\n\
             route add 10.88.1.0/24 via 10.88.0.11\n\
             route add 10.88.3.0/24 via 10.88.0.13\n"
        );
    }

    #[test]
    fn a_node_of_a_dual_stack_lab_has_routes_of_both_families() {
        let dual_stack = subnet().with_dual_stack(true);
        assert_eq!(
            node_leg(dual_stack, 2, 2),
            "link set lo up\n\
             address add 10.88.0.12/24 dev eth0\n\
             address add fd6c:6162:58::c/64 nodad dev eth0\n\
             link set eth0 up\n\
             route add 10.88.1.0/24 via 10.88.0.11\n\
             route add fd6c:6162:58:1::/64 via fd6c:6162:58::b\n"
        );
    }

    #[test]
    fn the_control_plane_reaches_all_pods() {
        let commands = bridge(subnet(), 2);
        assert!(commands.contains("link add lab0 address 02:00:0a:58:00:0a type bridge\n"));
        assert!(commands.contains("address add 10.88.0.10/24 dev lab0\n"));
        assert!(commands.ends_with("route add 10.88.2.0/24 via 10.88.0.12\n"));
    }

    #[test]
    fn the_leg_of_this_host_has_a_name_that_the_kernel_takes() {
        assert!(host_link(subnet()).len() < 16);
        assert!(
            host_leg(subnet(), 1, 4711)
                .starts_with("link add perflab88 type veth peer name host netns 4711\n")
        );
    }
}
