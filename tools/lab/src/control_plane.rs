//! The programs of the control plane: their files and arguments.

use std::{env, net::Ipv4Addr, os::unix::fs::chown, path::Path};

use anyhow::{Context, Result};

use crate::{
    dns,
    part::Part,
    paths::{self, LIB, Paths},
    pki::{self, Authority},
    subnet::{API_PORT, Subnet},
};

/// etcd's data is in memory: it lives no longer than the machine, and the disk may be slow.
const ETCD_DATA: &str = "/run/etcd";
const ETCD: &str = "http://127.0.0.1:2379";

/// The user as which the API server calls aggregated API servers.
const FRONT_PROXY: &str = "front-proxy-client";

/// Writes the configuration of the programs, and the administrator's kubeconfig.
pub(crate) fn configure(paths: &Paths, subnet: Subnet, authority: &Authority) -> Result<()> {
    let lib = paths.lib(Part::ControlPlane);
    let write = |name: &str, text: &str| paths::write(&lib.join(name), text);

    write("ca.crt", &authority.certificate())?;
    write("ca.key", &authority.key())?;
    let tokens = pki::new_key()?;
    write("service-account.key", &tokens.serialize_pem())?;
    write("service-account.pub", &tokens.public_key_pem())?;
    let serving = authority.server(
        &[
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
        ],
        &[subnet.control_plane(), subnet.api_service(), Ipv4Addr::LOCALHOST],
    )?;
    write("apiserver.crt", &serving.certificate)?;
    write("apiserver.key", &serving.key)?;
    let to_kubelets = authority.client("perfrun-lab:apiserver", Some("system:masters"))?;
    write("kubelet-client.crt", &to_kubelets.certificate)?;
    write("kubelet-client.key", &to_kubelets.key)?;

    // This certificate authority is separate, because its certificates may act for any user.
    let front = Authority::new()?;
    write("front-proxy-ca.crt", &front.certificate())?;
    let front_proxy = front.client(FRONT_PROXY, None)?;
    write("front-proxy.crt", &front_proxy.certificate)?;
    write("front-proxy.key", &front_proxy.key)?;

    let server = subnet.control_plane();
    for (file, user) in [
        ("controller-manager.kubeconfig", "system:kube-controller-manager"),
        ("scheduler.kubeconfig", "system:kube-scheduler"),
        ("dns.kubeconfig", dns::USER),
    ] {
        write(file, &authority.kubeconfig(server, user, None)?)?;
    }
    write("Corefile", &dns::corefile(subnet))?;
    let admin = authority.kubeconfig(server, "perfrun-lab:admin", Some("system:masters"))?;
    paths::write(&paths.kubeconfig(), &admin)?;
    hand_over(&paths.kubeconfig(), |name| env::var(name).ok())
}

/// Gives the kubeconfig to the user who became root through sudo: that user can reach the API server, too.
fn hand_over(file: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    let id = |name| variable(name)?.parse::<u32>().ok();
    let Some(user) = id("SUDO_UID") else {
        return Ok(());
    };
    chown(file, Some(user), id("SUDO_GID"))
        .with_context(|| format!("failed to give {} to user {user}", file.display()))
}

pub(crate) fn etcd() -> Vec<String> {
    [
        "--name=lab",
        &format!("--data-dir={ETCD_DATA}"),
        &format!("--listen-client-urls={ETCD}"),
        &format!("--advertise-client-urls={ETCD}"),
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--log-level=warn",
        "--logger=zap",
    ]
    .map(String::from)
    .into()
}

pub(crate) fn api_server(subnet: Subnet) -> Vec<String> {
    [
        format!("--advertise-address={}", subnet.control_plane()),
        format!("--secure-port={API_PORT}"),
        format!("--etcd-servers={ETCD}"),
        format!("--service-cluster-ip-range={}", subnet.services().join(",")),
        format!("--client-ca-file={LIB}/ca.crt"),
        format!("--tls-cert-file={LIB}/apiserver.crt"),
        format!("--tls-private-key-file={LIB}/apiserver.key"),
        format!("--kubelet-certificate-authority={LIB}/ca.crt"),
        format!("--kubelet-client-certificate={LIB}/kubelet-client.crt"),
        format!("--kubelet-client-key={LIB}/kubelet-client.key"),
        // No DNS server resolves the names of nodes.
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={LIB}/service-account.pub"),
        format!("--service-account-signing-key-file={LIB}/service-account.key"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        // The API server calls webhooks at the pods of their service, because no kube-proxy runs on the
        // control plane.
        "--enable-aggregator-routing=true".into(),
        format!("--proxy-client-cert-file={LIB}/front-proxy.crt"),
        format!("--proxy-client-key-file={LIB}/front-proxy.key"),
        format!("--requestheader-client-ca-file={LIB}/front-proxy-ca.crt"),
        format!("--requestheader-allowed-names={FRONT_PROXY}"),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--profiling=false".into(),
    ]
    .into()
}

pub(crate) fn controller_manager() -> Vec<String> {
    let kubeconfig = format!("{LIB}/controller-manager.kubeconfig");
    [
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={LIB}/service-account.key"),
        format!("--root-ca-file={LIB}/ca.crt"),
        format!("--cluster-signing-cert-file={LIB}/ca.crt"),
        format!("--cluster-signing-key-file={LIB}/ca.key"),
        // A short period, so that a dead node is noticed while a person watches.
        "--node-monitor-period=2s".into(),
        "--node-monitor-grace-period=20s".into(),
        // The default is a folder of the host, which would be created.
        "--flex-volume-plugin-dir=/run/flexvolume".into(),
        "--profiling=false".into(),
    ]
    .into()
}

pub(crate) fn scheduler() -> Vec<String> {
    let kubeconfig = format!("{LIB}/scheduler.kubeconfig");
    [
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
        "--profiling=false".into(),
    ]
    .into()
}

pub(crate) fn dns() -> Vec<String> {
    vec!["-conf".into(), format!("{LIB}/Corefile")]
}

#[cfg(test)]
mod tests {
    use super::{API_PORT, Subnet, api_server, controller_manager};

    #[test]
    fn the_api_server_listens_at_the_address_of_kubeconfigs() {
        let args = api_server(Subnet::choose("", &[]).unwrap());
        for expected in [
            format!("--secure-port={API_PORT}"),
            "--advertise-address=10.88.0.10".into(),
            "--service-cluster-ip-range=10.88.240.0/20".into(),
        ] {
            assert!(args.contains(&expected), "{args:?}");
        }
    }

    #[test]
    fn the_controller_manager_has_the_key_of_the_authority() {
        assert!(controller_manager().iter().any(|arg| arg.ends_with("/ca.key")));
    }
}
