//! Keys and certificates of a lab. Each `up` makes new ones; the authority's key stays on the control plane.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};

use crate::subnet::API_PORT;

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, both as PEM.
pub(crate) struct CertifiedKey {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = params("perfrun-lab", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        CertifiedIssuer::self_signed(params, new_key()?)
            .map(Self)
            .context("failed to make a certificate authority")
    }

    pub(crate) fn certificate(&self) -> String {
        self.0.pem()
    }

    /// The key of the authority, for the controller that signs requests made in the cluster.
    pub(crate) fn key(&self) -> String {
        self.0.key().serialize_pem()
    }

    /// A certificate for a user. Kubernetes takes the user's name from the common name and the group from the
    /// organization.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<CertifiedKey> {
        let mut params = params(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
            .with_context(|| format!("failed to make a certificate for {user}"))
    }

    pub(crate) fn server(&self, names: &[&str], addresses: &[Ipv4Addr]) -> Result<CertifiedKey> {
        let name = names.first().context("a server has a name")?;
        let mut params = params(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let context = || format!("failed to make a certificate for {name}");
        for name in names {
            params
                .subject_alt_names
                .push(SanType::DnsName((*name).try_into().with_context(context)?));
        }
        let addresses = addresses
            .iter()
            .map(|address| SanType::IpAddress(IpAddr::V4(*address)));
        params.subject_alt_names.extend(addresses);
        self.sign(params).with_context(context)
    }

    /// A kubeconfig with which a program reaches `server` as `user`, with everything in one file.
    pub(crate) fn kubeconfig(&self, server: Ipv4Addr, user: &str, group: Option<&str>) -> Result<String> {
        Ok(kubeconfig(server, &self.certificate(), &self.client(user, group)?).to_string())
    }

    fn sign(&self, mut params: CertificateParams) -> Result<CertifiedKey> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(CertifiedKey {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// A new key pair.
pub(crate) fn new_key() -> Result<KeyPair> {
    KeyPair::generate().context("failed to make a key")
}

fn params(name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
    }
    params
}

fn kubeconfig(server: Ipv4Addr, authority: &str, client: &CertifiedKey) -> Value {
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "lab",
            "cluster": {
                "server": format!("https://{server}:{API_PORT}"),
                "certificate-authority-data": encode(authority),
            },
        }],
        "users": [{
            "name": "lab",
            "user": {
                "client-certificate-data": encode(&client.certificate),
                "client-key-data": encode(&client.key),
            },
        }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab" } }],
        "current-context": "lab",
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use base64::{Engine, prelude::BASE64_STANDARD};
    use serde_json::Value;

    use super::Authority;

    #[test]
    fn a_kubeconfig_holds_all_that_is_needed() {
        let authority = Authority::new().unwrap();
        let address = Ipv4Addr::new(10, 88, 0, 10);
        let text = authority
            .kubeconfig(address, "admin", Some("system:masters"))
            .unwrap();
        let config: Value = serde_json::from_str(&text).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://10.88.0.10:6443");
        let decode = |value: &Value| {
            String::from_utf8(BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
        };
        assert_eq!(
            decode(&cluster["certificate-authority-data"]),
            authority.certificate()
        );
        let key = decode(&config["users"][0]["user"]["client-key-data"]);
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"), "{key}");
    }

    #[test]
    fn an_invalid_name_of_a_certificate_is_refused() {
        let authority = Authority::new().unwrap();
        assert!(authority.server(&["näme"], &[]).is_err());
        assert!(authority.server(&[], &[]).is_err());
    }
}
