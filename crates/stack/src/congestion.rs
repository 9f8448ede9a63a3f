//! The congestion control of connections: choosing one, and finding out which one is in use.

use std::{fs, io, os::fd::AsFd, sync::Arc};

use perfrun_contract::{
    matrix::{QuicCongestion, Setting, Stack, TcpCongestion, Transport},
    support::why_setting_unsupported,
};
use quinn::congestion::{
    Bbr, BbrConfig, Controller, ControllerFactory, Cubic, CubicConfig, NewReno, NewRenoConfig,
};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketType, socket, sockopt},
};

use super::{Error, HostConfig, UsedCongestion};

/// Checks that the kernel lets this node use the requested congestion control of TCP, and notes what is in
/// use where a stack gives no access to its connections.
pub(super) fn prepare(stack: Stack, config: &HostConfig) -> Result<(), Error> {
    if config.transport.is_tcp() {
        if let Some(wanted) = &config.settings.tcp_congestion {
            check(wanted)?;
        }
        if why_setting_unsupported(stack, Setting::TcpCongestion).is_some() {
            // Its sockets have the default of the kernel.
            let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
            default
                .into_iter()
                .for_each(|name| note(&config.congestion, name.trim()));
        }
    }
    if config.transport == Transport::QuicV1
        && why_setting_unsupported(stack, Setting::QuicCongestion).is_some()
    {
        // quinn's default, which it does not change.
        note(&config.congestion, QuicCongestion::Cubic.as_ref());
    }
    Ok(())
}

fn check(wanted: &TcpCongestion) -> Result<(), Error> {
    let set = socket(AddressFamily::INET, SocketType::STREAM, None)
        .and_then(|socket| sockopt::set_tcp_congestion(&socket, &wanted.0));
    set.map_err(|error| {
        let names = |kind: &str| {
            let list = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{kind}_congestion_control"));
            list.map_or_else(|_| "unknown".to_owned(), |names| names.trim().replace(' ', ", "))
        };
        Error::Unsupported(refusal(wanted, error, &names("available"), &names("allowed")))
    })
}

/// Why the kernel refuses a congestion control, and what to change. It has some, and allows some of these.
fn refusal(wanted: &TcpCongestion, error: Errno, available: &str, allowed: &str) -> String {
    match error {
        Errno::NOENT => format!(
            "this kernel does not have tcpCongestion {wanted}; it has {available}: name one of these, or load the \
             module with `modprobe tcp_{wanted}`"
        ),
        Errno::PERM => format!(
            "a node without CAP_NET_ADMIN may not use tcpCongestion {wanted} here, but {allowed}: name one of these, or \
             add it to net.ipv4.tcp_allowed_congestion_control"
        ),
        error => format!("failed to set tcpCongestion {wanted}: {error}; the kernel has {available}"),
    }
}

fn note(used: &UsedCongestion, name: &str) {
    // All connections of a trial have the same.
    used.get_or_init(|| name.to_owned());
}

/// Sets up the TCP connections of a host.
#[derive(Clone)]
pub(super) struct Tcp {
    wanted: Option<TcpCongestion>,
    used: UsedCongestion,
}

impl Tcp {
    pub(super) fn of(config: &HostConfig) -> Self {
        Self {
            wanted: config.settings.tcp_congestion.clone(),
            used: config.congestion.clone(),
        }
    }

    /// Sets the congestion control of a connection that has carried nothing yet.
    pub(super) fn set_up(&self, connection: &impl AsFd) -> io::Result<()> {
        if let Some(wanted) = &self.wanted {
            sockopt::set_tcp_congestion(connection, &wanted.0)?;
        }
        if self.used.get().is_none() {
            note(&self.used, &sockopt::tcp_congestion(connection)?);
        }
        Ok(())
    }
}

/// Makes quinn use a congestion control.
pub(super) fn factory(wanted: QuicCongestion) -> Arc<dyn ControllerFactory + Send + Sync> {
    match wanted {
        QuicCongestion::Cubic => Arc::new(CubicConfig::default()),
        QuicCongestion::NewReno => Arc::new(NewRenoConfig::default()),
        QuicCongestion::Bbr => Arc::new(BbrConfig::default()),
    }
}

/// Notes the congestion control that a connection of quinn has.
pub(super) fn note_quic(used: &UsedCongestion, connection: &quinn::Connection) {
    if used.get().is_none()
        && let Some(in_use) = name(connection.congestion_state())
    {
        note(used, in_use.as_ref());
    }
}

fn name(controller: Box<dyn Controller>) -> Option<QuicCongestion> {
    let controller = controller.into_any();
    if controller.is::<Cubic>() {
        Some(QuicCongestion::Cubic)
    } else if controller.is::<NewReno>() {
        Some(QuicCongestion::NewReno)
    } else {
        controller.is::<Bbr>().then_some(QuicCongestion::Bbr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_that_the_kernel_refuses_is_named_with_what_to_do() {
        let why = |error| refusal(&TcpCongestion("foo".to_owned()), error, "reno, foo", "reno");
        assert_eq!(
            why(Errno::NOENT),
            "this kernel does not have tcpCongestion foo; it has reno, foo: name one of these, or load the module with \
             `modprobe tcp_foo`"
        );
        assert_eq!(
            why(Errno::PERM),
            "a node without CAP_NET_ADMIN may not use tcpCongestion foo here, but reno: name one of these, or add it to \
             net.ipv4.tcp_allowed_congestion_control"
        );
        assert!(why(Errno::INVAL).starts_with("failed to set tcpCongestion foo: "));
        // No kernel has it.
        let refused = check(&TcpCongestion("perfrun-none".to_owned()))
            .unwrap_err()
            .to_string();
        assert!(refused.ends_with("`modprobe tcp_perfrun-none`"), "{refused}");
    }
}
