//! The cells that a report shows.

use std::{fmt, str::FromStr};

use perfrun_api::spec::Selector;
use perfrun_contract::{matrix::StackName, plan::Cell};
use strum::IntoEnumIterator;

/// Some cells of a run: `transport=tcp,load=echo-10x1000`.
#[derive(Clone, Debug, PartialEq)]
pub struct Where {
    /// The option's value.
    text: String,
    selector: Selector,
    /// The load in short, as it is in the ids of cells.
    load: Option<String>,
}

impl Where {
    /// Whether a cell is one of them.
    pub fn selects(&self, cell: &Cell) -> bool {
        let is_load = |load: &String| *load == cell.parameters.to_string();
        self.selector.selects(cell) && self.load.as_ref().is_none_or(is_load)
    }

    /// The text that selects a cell and no other.
    pub fn naming(cell: &Cell) -> String {
        let Cell {
            client,
            server,
            transport,
            network,
            ip_family,
            parameters,
            ..
        } = cell;
        format!(
            "client={client},server={server},transport={transport},network={network},ipFamily={ip_family},load={parameters}"
        )
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cells = Self {
            text: text.to_owned(),
            selector: Selector {
                client: None,
                server: None,
                transport: None,
                network: None,
                ip_family: None,
            },
            load: None,
        };
        let mut named = vec![];
        for field in text.split(',') {
            let (name, value) = field
                .split_once('=')
                .ok_or_else(|| format!("{field:?} is not FIELD=VALUE: write, for example, transport=tcp"))?;
            if named.contains(&name) {
                return Err(format!("{name} is named twice: repeat --where to add cells"));
            }
            named.push(name);
            let value = value.to_owned();
            match name {
                "client" => cells.selector.client = Some(StackName(value)),
                "server" => cells.selector.server = Some(StackName(value)),
                "transport" => cells.selector.transport = Some(known(&value, "a transport")?),
                "network" => cells.selector.network = Some(value),
                "ipFamily" => cells.selector.ip_family = Some(known(&value, "an IP family")?),
                "load" => cells.load = Some(value),
                _ => {
                    return Err(format!(
                        "cells have no field {name:?}: name client, server, transport, network, ipFamily or load"
                    ));
                }
            }
        }
        Ok(cells)
    }
}

fn known<T: FromStr + IntoEnumIterator + ToString>(name: &str, what: &str) -> Result<T, String> {
    name.parse().map_err(|_| {
        let names: Vec<String> = T::iter().map(|known| known.to_string()).collect();
        format!("{name:?} is not {what}: name one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use perfrun_contract::matrix::{IpFamily, Transport};

    use super::*;

    #[test]
    fn fields_are_those_of_documents_and_the_load() {
        let cells: Where = "client=pr,transport=quic-v1,ipFamily=IPv6,load=echo-10x1000"
            .parse()
            .unwrap();
        assert_eq!(cells.selector.client, Some(StackName("pr".to_owned())));
        assert_eq!(cells.selector.transport, Some(Transport::QuicV1));
        assert_eq!(cells.selector.ip_family, Some(IpFamily::IPv6));
        assert_eq!((cells.selector.server, cells.selector.network), (None, None));
        assert_eq!(cells.load.as_deref(), Some("echo-10x1000"));
    }

    #[test]
    fn a_selector_without_a_valid_field_is_refused_with_valid_ones() {
        let refusal = |text: &str| text.parse::<Where>().unwrap_err();
        assert!(refusal("tcp").contains("write, for example, transport=tcp"));
        assert!(refusal("streams=10").contains("name client, server, transport, network, ipFamily or load"));
        assert!(refusal("transport=quic").contains("tcp-tls, quic-v1"));
        assert!(refusal("ipFamily=6").contains("name one of IPv4, IPv6"));
        assert!(refusal("").contains("FIELD=VALUE"));
        let twice = refusal("transport=tcp,transport=quic-v1");
        assert_eq!(twice, "transport is named twice: repeat --where to add cells");
    }
}
