//! CoreDNS resolves names of services, and answers "no such name" for all others: the lab has no route to the
//! outside.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{paths::LIB, subnet::Subnet};

pub(crate) const USER: &str = "perfrun-lab:dns";

/// The domain that clusters have by convention.
const KNOWN_NAME: &str = "kubernetes.default.svc.cluster.local";

pub(crate) fn corefile(subnet: Subnet) -> String {
    let address = subnet.control_plane();
    format!(
        "cluster.local in-addr.arpa ip6.arpa {{
    bind {address}
    errors
    kubernetes {{
        kubeconfig {LIB}/dns.kubeconfig lab
        pods insecure
    }}
}}
. {{
    bind {address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"
    )
}

/// The objects of CoreDNS: the rights to read, and the service at the address where pods look for DNS.
pub(crate) fn objects(subnet: Subnet) -> Value {
    let service = json!({ "name": "kube-dns", "namespace": "kube-system" });
    let ports = |extra: Value| {
        let port = |name: &str, protocol: &str| {
            let mut port = json!({ "name": name, "protocol": protocol, "port": 53 });
            if let (Value::Object(port), Value::Object(extra)) = (&mut port, extra.clone()) {
                port.extend(extra);
            }
            port
        };
        json!([port("dns", "UDP"), port("dns-tcp", "TCP")])
    };
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": { "name": USER },
                "rules": [
                    { "apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"] },
                    { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
                ],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": { "name": USER },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }],
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": service,
                "spec": { "clusterIP": subnet.dns_service(), "ports": ports(json!({ "targetPort": 53 })) },
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kube-dns",
                    "namespace": "kube-system",
                    "labels": { "kubernetes.io/service-name": "kube-dns" },
                },
                "addressType": "IPv4",
                "ports": ports(json!({})),
                "endpoints": [{ "addresses": [subnet.control_plane()] }],
            },
        ],
    })
}

/// Whether CoreDNS resolves the API server's service.
pub(crate) fn answers(subnet: Subnet) -> Result<bool> {
    let socket = UdpSocket::bind((subnet.host(), 0)).context("failed to open a socket towards the lab")?;
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .context("failed to set the timeout of a socket")?;
    let server = SocketAddr::from((subnet.control_plane(), 53));
    let mut answer = [0; 512];
    let length = socket
        .send_to(&query(KNOWN_NAME), server)
        .and_then(|_| socket.recv(&mut answer));
    Ok(length.is_ok_and(|length| address_in(&answer[..length]) == Some(subnet.api_service())))
}

const ID: [u8; 2] = *b"pl";

/// A query for the IPv4 address of `name` (RFC 1035, section 4.1).
fn query(name: &str) -> Vec<u8> {
    let mut message = ID.to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]); // recursion desired; one question
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).expect("labels of a name written here are short"));
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]); // end of the name; A, IN
    message
}

/// The address in a response to [`query`] that has exactly one record, so that the record is at the end.
fn address_in(message: &[u8]) -> Option<Ipv4Addr> {
    let header = message.get(..12)?;
    let (id, flags, answers) = (&header[..2], &header[2..4], &header[6..8]);
    let is_answer = id == ID && flags[0] & 0x80 != 0 && flags[1] & 0x0f == 0 && answers == [0, 1];
    let address: [u8; 4] = message.last_chunk().copied()?;
    is_answer.then(|| Ipv4Addr::from(address))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::{Subnet, address_in, corefile, objects, query};

    #[test]
    fn a_dns_question_has_the_bytes_of_the_standard() {
        let expected = b"pl\x01\0\0\x01\0\0\0\0\0\0\x02ab\x01c\0\0\x01\0\x01";
        assert_eq!(query("ab.c"), expected);
    }

    #[test]
    fn only_an_answer_with_one_address_counts() {
        let mut answer = query("ab.c");
        answer[2] |= 0x80;
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 88, 240, 1]);
        assert_eq!(address_in(&answer), Some(Ipv4Addr::new(10, 88, 240, 1)));

        let mut failed = answer.clone();
        failed[3] |= 2;
        assert_eq!(address_in(&failed), None);
        assert_eq!(address_in(&query("ab.c")), None);
        assert_eq!(address_in(&answer[..4]), None);
    }

    #[test]
    fn the_server_listens_where_pods_ask() {
        let subnet = Subnet::choose("", &[]).unwrap();
        assert_eq!(corefile(subnet).matches("bind 10.88.0.10\n").count(), 2);
        let objects = objects(subnet);
        let service = &objects["items"][2];
        assert_eq!(service["spec"]["clusterIP"], "10.88.240.10");
        assert_eq!(service["spec"]["ports"][1]["targetPort"], 53);
        assert_eq!(objects["items"][3]["endpoints"][0]["addresses"][0], "10.88.0.10");
    }
}
