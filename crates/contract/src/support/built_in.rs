//! The capabilities of built-in stacks, from the facts of each: there is one account of what they can do.

use std::collections::{BTreeMap, BTreeSet};

use strum::{IntoEnumIterator, VariantNames};

use super::{facts::why_role_unsupported, limits, why_setting_unsupported};
use crate::{
    capabilities::Capabilities,
    matrix::{Setting, Stack, Transport},
    parameters::{Pace, Parameters, USES},
    role::Role,
};

/// What a built-in stack can do. `None` for [`Stack::External`].
pub fn capabilities(stack: Stack) -> Option<Capabilities> {
    let wire = stack.wire()?;
    let mut found = Capabilities {
        wire: wire.to_owned(),
        transports: BTreeMap::new(),
        workloads: BTreeSet::new(),
        protocols: BTreeSet::new(),
        roles: BTreeSet::new(),
        negotiation: BTreeSet::new(),
        identities: BTreeSet::new(),
        paces: BTreeSet::new(),
        settings: Setting::iter()
            .filter(|setting| why_setting_unsupported(stack, *setting).is_none())
            .map(|setting| setting.to_string())
            .collect(),
    };
    for transport in Transport::iter() {
        for (_, of) in USES.into_iter().flatten() {
            let parameters = of(1);
            for role in [Role::Client, Role::Server] {
                if why_role_unsupported(stack, role, transport, &parameters).is_none() {
                    found.add(role, transport, &parameters);
                }
            }
        }
        if let Some(found) = found.transports.get_mut(transport.as_ref()) {
            *found = limits(stack, transport);
        }
    }
    // Other wires have one way to negotiate, and one kind of keys, or none.
    if Some(wire) != Stack::Libp2p.wire() {
        found.negotiation.clear();
        found.identities.clear();
    }
    Some(found)
}

impl Capabilities {
    fn add(&mut self, role: Role, transport: Transport, parameters: &Parameters) {
        self.transports.entry(transport.to_string()).or_default();
        self.workloads.insert(parameters.workload().to_owned());
        self.protocols.insert(parameters.protocol().to_string());
        self.roles.insert(role.to_string());
        self.identities.insert(parameters.identity().to_string());
        if parameters.pace().is_some() {
            self.paces = Pace::VARIANTS.iter().map(|pace| (*pace).to_owned()).collect();
        }
        if role == Role::Client {
            self.negotiation.insert(parameters.negotiation().to_string());
        }
        if parameters.is_relayed() {
            self.roles.insert(Role::Relay.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parameters::Echo, support::why_pair_unsupported};

    #[test]
    fn capabilities_follow_from_the_facts() {
        let go = capabilities(Stack::GoLibp2p).unwrap();
        assert_eq!(go.wire, "libp2p");
        assert_eq!(go.transports["quic-v1"].max_streams, Some(256));
        assert_eq!(go.transports["webtransport"].max_streams, Some(254));
        assert_eq!(go.transports["webrtc-direct"].stream_burst, Some(50));
        assert!(!go.transports.contains_key("memory"));
        assert!(go.roles.contains("relay") && go.negotiation.contains("v1lazy"));
        let litep2p = capabilities(Stack::Litep2p).unwrap();
        assert!(!litep2p.roles.contains("relay") && !litep2p.negotiation.contains("v1lazy"));
        assert!(!litep2p.identities.contains("rsa2048") && !litep2p.transports.contains_key("tcp-tls"));
        let raw = capabilities(Stack::Raw).unwrap();
        assert!(!raw.workloads.contains("substreams") && raw.negotiation.is_empty());
        let settings = |of: &Capabilities| of.settings.iter().cloned().collect::<Vec<_>>();
        assert_eq!(settings(&raw), ["quicCongestion", "tcpCongestion"]);
        assert_eq!(settings(&litep2p), ["yamuxWindow"]);
        assert_eq!(settings(&capabilities(Stack::Libp2p).unwrap()), ["tcpCongestion"]);
        assert_eq!(settings(&go), ["yamuxWindow"]);
        assert_eq!(capabilities(Stack::External), None);
    }

    #[test]
    fn a_stack_without_declared_paces_of_an_echo_only_pauses() {
        let mut uses = USES.into_iter().flatten();
        let (_, of) = uses.find(|(name, _)| *name == "`echo`").unwrap();
        let Parameters::Echo(load) = of(1) else {
            panic!("{}", of(1))
        };
        let echo = |pace| Parameters::Echo(Echo { pace, ..load });
        let mut stack = capabilities(Stack::GoLibp2p).unwrap();
        let why = |stack: &Capabilities, pace| {
            stack.why_role_unsupported("go", Role::Server, Transport::Tcp, &echo(pace))
        };
        assert_eq!(why(&stack, Pace::Period(0.5)), None);
        stack.paces.clear();
        assert_eq!(why(&stack, Pace::Pause(0.5)), None);
        assert_eq!(
            why(&stack, Pace::Period(0.5)).as_deref(),
            Some("go does not know the period of an echo: set pause instead of period")
        );
    }

    #[test]
    fn a_cell_that_a_pair_supports_is_supported_by_both_ends() {
        for (client, server) in
            Stack::built_in().flat_map(|client| Stack::built_in().map(move |server| (client, server)))
        {
            let [of_client, of_server] = [client, server].map(|stack| capabilities(stack).unwrap());
            let uses = || USES.into_iter().flatten();
            for (transport, (_, of)) in
                Transport::iter().flat_map(|transport| uses().map(move |of| (transport, of)))
            {
                let parameters = of(1);
                if why_pair_unsupported(client, server, transport, &parameters).is_some() {
                    continue;
                }
                let lacks = [
                    of_client.why_role_unsupported(client.into(), Role::Client, transport, &parameters),
                    of_server.why_role_unsupported(server.into(), Role::Server, transport, &parameters),
                ];
                assert_eq!(lacks, [None, None], "{parameters} on {transport}");
            }
        }
    }
}
