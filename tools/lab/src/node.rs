//! The programs of a node: their files and arguments.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    cgroup, image,
    name::Name,
    part::Part,
    paths::{self, CONTAINERD_SOCKET, LIB, Paths},
    pki::Authority,
    subnet::Subnet,
};

/// Folders where distributions install the CNI plugins.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"];

/// The port of a kubelet for the API server.
pub(crate) const KUBELET_PORT: u16 = 10250;

/// The prefix that the CNI plugin gives to a pod's link on the node.
const POD_LINKS: &str = "veth";

/// Writes the configuration of a node's programs.
pub(crate) fn configure(
    paths: &Paths,
    name: &Name,
    subnet: Subnet,
    node: u8,
    authority: &Authority,
) -> Result<()> {
    let machine = Part::Node(node);
    let lib = paths.lib(machine);
    let write = |file: &str, text: &str| paths::write(&lib.join(file), text);
    let server = subnet.control_plane();

    write("ca.crt", &authority.certificate())?;
    let serving = authority.server(&[&machine.to_string()], &[subnet.node(node)])?;
    write("kubelet.crt", &serving.certificate)?;
    write("kubelet.key", &serving.key)?;
    let kubelet = authority.kubeconfig(server, &format!("system:node:{machine}"), Some("system:nodes"))?;
    write("kubelet.kubeconfig", &kubelet)?;
    let proxy = authority.kubeconfig(server, "system:kube-proxy", None)?;
    write("proxy.kubeconfig", &proxy)?;

    let cni = CNI_FOLDERS
        .iter()
        .find(|folder| Path::new(folder).join("ptp").exists())
        .with_context(|| {
            format!(
                "the CNI plugin `ptp` is in none of {}; install the CNI plugins",
                CNI_FOLDERS.join(", ")
            )
        })?;
    write("containerd.toml", &containerd_config(cni))?;
    write("cni/lab.conflist", &cni_config(subnet, node).to_string())?;
    let group = cgroup::of(name, machine);
    write("kubelet.json", &kubelet_config(subnet, &group).to_string())?;
    write("proxy.json", &proxy_config(node).to_string())
}

pub(crate) fn containerd() -> Vec<String> {
    vec![format!("--config={LIB}/containerd.toml")]
}

pub(crate) fn kubelet(subnet: Subnet, node: u8) -> Vec<String> {
    vec![
        format!("--config={LIB}/kubelet.json"),
        format!("--kubeconfig={LIB}/kubelet.kubeconfig"),
        format!("--hostname-override={}", Part::Node(node)),
        format!("--node-ip={}", subnet.node_ips(node).join(",")),
    ]
}

pub(crate) fn proxy() -> Vec<String> {
    vec![format!("--config={LIB}/proxy.json")]
}

/// Disabled plugins would change the host: profiles in the kernel, folders below /opt.
fn containerd_config(cni: &str) -> String {
    format!(
        r#"version = 3
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.cri.v1.images"]
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{LIB}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{LIB}/bin/containerd-shim-runc-v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#,
        pause = image::PAUSE
    )
}

fn cni_config(subnet: Subnet, node: u8) -> Value {
    let ranges = subnet.pods(node).into_iter();
    let ranges: Vec<Value> = ranges.map(|range| json!([{ "subnet": range }])).collect();
    let routes = ["0.0.0.0/0", "::/0"].into_iter().take(ranges.len());
    let routes: Vec<Value> = routes.map(|all| json!({ "dst": all })).collect();
    json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                "type": "ptp",
                "mtu": 1500,
                "ipam": {
                    "type": "host-local",
                    "ranges": ranges,
                    "routes": routes,
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

fn kubelet_config(subnet: Subnet, group: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": format!("{LIB}/ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": format!("{LIB}/kubelet.crt"),
        "tlsPrivateKeyFile": format!("{LIB}/kubelet.key"),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [subnet.control_plane()],
        "resolvConf": "",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        // Nodes share the host's disk, which other programs fill: pods stay and images are kept even if it is
        // full.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "100Mi" },
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 20,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "port": KUBELET_PORT,
        "registerNode": true,
    })
}

fn proxy_config(node: u8) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": format!("{LIB}/proxy.kubeconfig") },
        "hostnameOverride": Part::Node(node).to_string(),
        "mode": "iptables",
        "detectLocalMode": "InterfaceNamePrefix",
        "detectLocal": { "interfaceNamePrefix": POD_LINKS },
        // A node must not change limits of the whole kernel.
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Subnet, cni_config, containerd_config, kubelet_config, proxy_config};

    #[test]
    fn a_node_gives_its_pods_addresses_of_its_own_range() {
        let subnet = Subnet::choose("", &[]).unwrap();
        let config = cni_config(subnet, 2);
        let ranges = &config["plugins"][0]["ipam"]["ranges"];
        assert_eq!(ranges[0][0]["subnet"], "10.88.2.0/24");
        let dual_stack = subnet.with_dual_stack(true);
        let ipam = &cni_config(dual_stack, 2)["plugins"][0]["ipam"];
        assert_eq!(ipam["ranges"][1][0]["subnet"], "fd6c:6162:58:2::/64");
        assert_eq!(ipam["routes"], json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]));
        assert_eq!(proxy_config(2)["hostnameOverride"], "node-2");
    }

    #[test]
    fn pods_ask_the_control_plane_for_names_and_stay_in_their_group() {
        let config = kubelet_config(Subnet::choose("", &[]).unwrap(), "/perfrun-lab/lab/node-1");
        assert_eq!(config["clusterDNS"][0], "10.88.0.10");
        assert_eq!(config["cgroupRoot"], "/perfrun-lab/lab/node-1");
    }

    #[test]
    fn the_configuration_of_containerd_has_paths_and_the_sandbox_image() {
        let config = containerd_config("/usr/lib/cni");
        assert!(config.contains("bin_dirs = [\"/usr/lib/cni\"]"), "{config}");
        assert!(
            config.contains("sandbox = \"localhost/perfrun-lab/pause:1\""),
            "{config}"
        );
    }
}
