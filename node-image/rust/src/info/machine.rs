//! Properties of the machine that change what is measured.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use perfrun_contract::machine;

/// The CPU model of `/proc/cpuinfo`.
pub(super) fn cpu_model(cpuinfo: &str) -> String {
    let model = field(cpuinfo, "model name").or_else(|| field(cpuinfo, "CPU part"));
    model.unwrap_or("unknown").to_owned()
}

/// The hypervisor that the machine is a guest of: its name, as `/sys/hypervisor/type` has it, or `unknown` if
/// only a flag of the CPU says that there is one.
pub(super) fn hypervisor(kind: Option<String>, cpuinfo: &str) -> Option<String> {
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    let has_flag = flags.split_whitespace().any(|flag| flag == "hypervisor");
    kind.or_else(|| has_flag.then(|| "unknown".to_owned()))
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

/// What the kernel does about vulnerabilities of the CPU, from `/sys/devices/system/cpu/vulnerabilities`.
pub(super) fn mitigations() -> Option<String> {
    let files = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?;
    let states = files.filter_map(|file| {
        let file = file.ok()?;
        Some((
            file.file_name().into_string().ok()?,
            fs::read_to_string(file.path()).ok()?,
        ))
    });
    machine::mitigations(&states.collect())
}

/// The MTU of the interface that an address belongs to, in bytes. The files are those of the network
/// namespace; `/sys` may show another one.
pub(super) fn mtu(ip: IpAddr) -> Option<u32> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let interface = match ip {
        IpAddr::V4(ip) => interface_of_v4(ip, &read("/proc/self/net/route")),
        IpAddr::V6(ip) => interface_of_v6(ip, &read("/proc/self/net/if_inet6")),
    }?;
    // Unless somebody set it lower, the MTU for IPv6 is the interface's.
    read(&format!("/proc/sys/net/ipv6/conf/{interface}/mtu"))
        .trim()
        .parse()
        .ok()
}

/// The interface of the most specific route to an address, in `/proc/net/route`, whose numbers are in the
/// order of bytes of the machine. Loopback's routes are not there.
fn interface_of_v4(ip: Ipv4Addr, routes: &str) -> Option<String> {
    if ip.is_loopback() {
        return Some("lo".to_owned());
    }
    let number = |text: &str| {
        u32::from_str_radix(text, 16)
            .ok()
            .map(u32::to_ne_bytes)
            .map(u32::from_be_bytes)
    };
    let matching = routes.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (destination, mask) = (number(columns.get(1)?)?, number(columns.get(7)?)?);
        (ip.to_bits() & mask == destination).then_some((mask, columns[0]))
    });
    matching
        .max_by_key(|(mask, _)| *mask)
        .map(|(_, interface)| interface.to_owned())
}

/// The interface that has an address, in `/proc/net/if_inet6`.
fn interface_of_v6(ip: Ipv6Addr, addresses: &str) -> Option<String> {
    let mut lines = addresses
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|columns| {
        let address = columns
            .first()
            .and_then(|text| u128::from_str_radix(text, 16).ok());
        address == Some(ip.to_bits())
    })?;
    line.last().map(|&interface| interface.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_models_of_two_architectures_are_read() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        assert_eq!(cpu_model("CPU part\t: 0xd0c\n"), "0xd0c");
        assert_eq!(cpu_model(""), "unknown");
    }

    #[test]
    fn a_hypervisor_has_a_name_or_sets_a_flag() {
        let guest = "flags\t\t: fpu vme hypervisor lahf_lm\n";
        let named = hypervisor(Some("xen".to_owned()), guest);
        assert_eq!(named.as_deref(), Some("xen"));
        assert_eq!(hypervisor(None, guest).as_deref(), Some("unknown"));
        assert_eq!(hypervisor(None, "flags\t\t: fpu vme\n"), None);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_most_specific_route_leads_to_the_interface_of_an_address() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      veth1\t0000630A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let of = |ip: [u8; 4]| interface_of_v4(ip.into(), routes);
        assert_eq!(of([10, 99, 0, 7]).as_deref(), Some("veth1"));
        assert_eq!(of([10, 98, 0, 7]).as_deref(), Some("eth0"));
        assert_eq!(of([127, 0, 1, 2]).as_deref(), Some("lo"));
        assert_eq!(interface_of_v4([10, 0, 0, 1].into(), ""), None);
    }

    #[test]
    fn an_ipv6_address_names_its_interface() {
        let addresses = "00000000000000000000000000000001 01 80 10 80       lo\n\
                         fd000000000000000000000000000007 02 40 00 80     eth0\n";
        let of = |ip: &str| interface_of_v6(ip.parse().unwrap(), addresses);
        assert_eq!(of("fd00::7").as_deref(), Some("eth0"));
        assert_eq!(of("::1").as_deref(), Some("lo"));
        assert_eq!(of("fd00::8"), None);
    }

    #[test]
    fn loopback_has_an_mtu() {
        // Without IPv6 there is no such file.
        if fs::exists("/proc/sys/net/ipv6").unwrap() {
            assert!(mtu([127, 0, 0, 1].into()).is_some_and(|bytes| bytes >= 1280));
        }
    }
}
