//! Networks that every document can use by name. Their figures are round, typical of what they are named
//! after, and never change: a new figure gets a new name.

use perfrun_contract::network::NONE;

use super::{Bursts, Heading, Network, Way};

/// A network that every document can use by name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name of the preset.
    pub name: &'static str,
    /// What the network resembles, in a few words.
    pub description: &'static str,
    /// The network without its name.
    figures: fn() -> Network,
}

impl Preset {
    /// The preset as an entry of `spec.networks`.
    pub fn network(&self) -> Network {
        Network {
            relay: None,
            name: self.name.to_owned(),
            ..(self.figures)()
        }
    }
}

/// All presets except [`NONE`], from near to far.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "lan",
        description: "machines of one site: half a millisecond of round trip, Gigabit Ethernet",
        figures: || {
            both(Way {
                rate: rate("1Gbit"),
                ..delay(250)
            })
        },
    },
    Preset {
        name: "lat10",
        description: "the published benchmark's delay: 10 ms towards the server only",
        figures: || to_server(delay(10_000)),
    },
    Preset {
        name: "loss1",
        description: "the published benchmark's loss: 1 % towards the server only",
        figures: || {
            to_server(Way {
                loss: percent("1%"),
                ..Way::default()
            })
        },
    },
    Preset {
        name: "wan",
        description: "two sites of one country: 50 ms of round trip, some jitter and loss, 100 Mbit/s",
        figures: || {
            both(Way {
                jitter: milliseconds(1),
                distribution: Some(perfrun_link::JitterDistribution::Normal),
                loss: percent("0.1%"),
                rate: rate("100Mbit"),
                ..delay(25_000)
            })
        },
    },
    Preset {
        name: "transatlantic",
        description: "data centres in Europe and on the east coast of North America: 90 ms of round trip, \
                      hardly any loss",
        figures: || {
            both(Way {
                loss: percent("0.01%"),
                rate: rate("1Gbit"),
                ..delay(45_000)
            })
        },
    },
    Preset {
        name: "transpacific",
        description: "data centres in Asia and on the west coast of North America: 150 ms of round trip, \
                      little loss",
        figures: || {
            both(Way {
                loss: percent("0.05%"),
                rate: rate("1Gbit"),
                ..delay(75_000)
            })
        },
    },
    Preset {
        name: "dsl",
        description: "a home line of 100 Mbit/s down and 20 Mbit/s up, the client's: 30 ms of round trip",
        figures: || Network {
            to_server: Some(Way {
                rate: rate("20Mbit"),
                ..Way::default()
            }),
            to_client: Some(Way {
                rate: rate("100Mbit"),
                ..Way::default()
            }),
            ..both(Way {
                loss: percent("0.05%"),
                ..delay(15_000)
            })
        },
    },
    Preset {
        name: "mobile4g",
        description: "a phone on 4G: 60 ms of round trip with jitter, losses in bursts, 40 Mbit/s down \
                      and 10 Mbit/s up",
        figures: || Network {
            to_server: Some(Way {
                rate: rate("10Mbit"),
                ..Way::default()
            }),
            to_client: Some(Way {
                rate: rate("40Mbit"),
                ..Way::default()
            }),
            ..both(Way {
                jitter: milliseconds(3),
                distribution: Some(perfrun_link::JitterDistribution::Normal),
                bursts: bursts("0.1%", "20%"),
                ..delay(30_000)
            })
        },
    },
    Preset {
        name: "mobile3g",
        description: "a phone on 3G: 200 ms of round trip with jitter, losses in bursts, 4 Mbit/s down \
                      and 1 Mbit/s up",
        figures: || Network {
            to_server: Some(Way {
                rate: rate("1Mbit"),
                ..Way::default()
            }),
            to_client: Some(Way {
                rate: rate("4Mbit"),
                ..Way::default()
            }),
            ..both(Way {
                jitter: milliseconds(10),
                distribution: Some(perfrun_link::JitterDistribution::Normal),
                bursts: bursts("0.2%", "20%"),
                ..delay(100_000)
            })
        },
    },
    Preset {
        name: "leo",
        description: "satellites in low orbit: 40 ms of round trip with jitter, losses in bursts, \
                      100 Mbit/s down and 15 Mbit/s up",
        figures: || Network {
            to_server: Some(Way {
                rate: rate("15Mbit"),
                ..Way::default()
            }),
            to_client: Some(Way {
                rate: rate("100Mbit"),
                ..Way::default()
            }),
            ..both(Way {
                jitter: milliseconds(2),
                distribution: Some(perfrun_link::JitterDistribution::Normal),
                bursts: bursts("0.1%", "10%"),
                ..delay(20_000)
            })
        },
    },
    Preset {
        name: "satellite",
        description: "a satellite in geostationary orbit: 600 ms of round trip, 50 Mbit/s down and \
                      5 Mbit/s up",
        figures: || Network {
            to_server: Some(Way {
                rate: rate("5Mbit"),
                ..Way::default()
            }),
            to_client: Some(Way {
                rate: rate("50Mbit"),
                ..Way::default()
            }),
            ..both(Way {
                jitter: milliseconds(3),
                distribution: Some(perfrun_link::JitterDistribution::Normal),
                loss: percent("0.1%"),
                ..delay(300_000)
            })
        },
    },
];

/// The preset of this name, including [`NONE`].
pub fn preset(name: &str) -> Option<Network> {
    if name == NONE {
        return Some(Network {
            name: NONE.to_owned(),
            ..both(Way::default())
        });
    }
    PRESETS
        .iter()
        .find(|preset| preset.name == name)
        .map(Preset::network)
}

/// Names of all presets, [`NONE`] first.
pub(crate) fn names() -> Vec<&'static str> {
    let impaired = PRESETS.iter().map(|preset| preset.name);
    [NONE].into_iter().chain(impaired).collect()
}

fn both(way: Way) -> Network {
    Network {
        name: String::new(),
        way,
        direction: Heading::Both,
        to_server: None,
        to_client: None,
        relay: None,
        backend: perfrun_link::Backend::Auto,
    }
}

fn to_server(way: Way) -> Network {
    Network {
        direction: Heading::ToServer,
        ..both(way)
    }
}

fn delay(microseconds: u64) -> Way {
    Way {
        delay: Some(std::time::Duration::from_micros(microseconds).into()),
        ..Way::default()
    }
}

fn milliseconds(milliseconds: u64) -> Option<kube::core::Duration> {
    Some(std::time::Duration::from_millis(milliseconds).into())
}

fn percent(text: &str) -> Option<perfrun_contract::quantity::Percent> {
    text.parse().ok()
}

fn rate(text: &str) -> Option<perfrun_contract::quantity::BitRate> {
    text.parse().ok()
}

fn bursts(enter: &str, leave: &str) -> Option<Bursts> {
    Some(Bursts {
        enter: percent(enter)?,
        leave: percent(leave)?,
        loss_in_bad: None,
        loss_in_good: None,
    })
}
