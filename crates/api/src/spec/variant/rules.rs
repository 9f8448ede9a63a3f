//! Rules on a variant of a stack, each of which reads several fields.

use kube::core::Rule;
use perfrun_contract::matrix::{Cups, Messaging, Stack};
use strum::IntoEnumIterator;

use crate::rule::{self, list};

/// Environment variables that begin with this carry settings to a node; variants of stacks cannot set them.
const RESERVED_VARIABLES: &str = "PERFRUN_";

/// The name of a variant must not be that of a built-in stack, which the matrix would then mean.
pub(super) fn variant_name() -> Rule {
    let built_in: Vec<&str> = Stack::iter().map(Into::into).collect();
    rule::own_name(
        &list(&built_in),
        &format!("a built-in stack ({})", built_in.join(", ")),
    )
}

/// Only commonware uses CUPS.
pub(super) fn cups_of_its_stack() -> Rule {
    Rule::new(format!(
        "!has(self.settings) || !has(self.settings.cups) || self.stack == '{}'",
        Cups::STACK
    ))
    .message(
        format!(
            "must not be set: only variants of {} have the setting cups",
            Cups::STACK
        )
        .as_str(),
    )
    .field_path(".settings.cups")
}

/// Stacks have different protocols for messages.
pub(super) fn messaging_of_its_stack() -> Rule {
    Rule::new(format!(
        "!has(self.settings) || !has(self.settings.messaging) || self.settings.messaging == '{}' \
         || self.stack == (self.settings.messaging == '{}' ? '{}' : '{}')",
        Messaging::Streams,
        Messaging::Notifications,
        Stack::Litep2p,
        Stack::Libp2p
    ))
    .message("must be streams, or notifications for variants of litep2p, or gossipsub for variants of libp2p")
    .field_path(".settings.messaging")
}

/// Which congestion controls there are, only the node's kernel knows.
pub(super) fn tcp_congestion_by_its_name() -> Rule {
    Rule::new(
        "!has(self.settings) || !has(self.settings.tcpCongestion) \
         || self.settings.tcpCongestion.matches('^[a-z0-9_-]{1,15}$')",
    )
    .message(
        "must be the name of a congestion control in net.ipv4.tcp_available_congestion_control of the nodes' kernel, \
         for example bbr: 1 to 15 lower-case letters, digits, '-' or '_'",
    )
    .field_path(".settings.tcpCongestion")
}

/// The window of yamux has room for a stream, and is at most its default.
pub(super) fn yamux_window() -> Rule {
    let is_right = rule::size_in_bounds("self.settings.yamuxWindow", "256Ki", "1Gi");
    Rule::new(format!(
        "!has(self.settings) || !has(self.settings.yamuxWindow) || ({is_right})"
    ))
    .message("must be a number of bytes from 256Ki to 1Gi, written as 256Ki, 1Mi or 1Gi")
    .field_path(".settings.yamuxWindow")
}

/// Only the document can say what an external stack can do, and of others perfrun knows it.
pub(super) fn capabilities_of_external() -> Rule {
    Rule::new(format!(
        "(self.stack == '{}') == has(self.capabilities)",
        Stack::External
    ))
    .message(
        "must be set for the stack external, and for no other: `perfrun describe COMMAND` prints what a node can do",
    )
    .field_path(".capabilities")
}

/// Variables without those that tell a node its run, its token and its addresses.
pub(super) fn no_reserved_variable() -> Rule {
    Rule::new(format!(
        "self.all(name, !name.startsWith('{RESERVED_VARIABLES}'))"
    ))
    .message(
        format!("must not have names that begin with {RESERVED_VARIABLES}: remove them, perfrun sets them")
            .as_str(),
    )
}

/// Names of environment variables as Kubernetes has them. A program cannot be started with other ones, such
/// as the empty one.
pub(super) fn variable_names() -> Rule {
    let is_name = "name.matches('^[-._a-zA-Z][-._a-zA-Z0-9]*$')";
    Rule::new(format!("self.all(name, {is_name})"))
        .message("must have names of letters, digits, '-', '.' and '_', none of which begins with a digit")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rule::evaluation::{judges, judges_of};

    #[test]
    fn a_variant_has_another_name_than_a_built_in_stack() {
        judges(
            &variant_name(),
            &json!("libp2p-next"),
            &json!("litep2p"),
            "must be 1 to 40 lower-case letters, digits or '-', begin and end with a letter or digit, and \
             not be a built-in stack (libp2p, litep2p, go-libp2p, commonware, raw, external)",
        );
    }

    #[test]
    fn only_commonware_uses_cups() {
        let variant = |stack: &str| json!({"stack": stack, "settings": {"cups": "v0"}});
        judges(
            &cups_of_its_stack(),
            &variant("commonware"),
            &variant("raw"),
            "must not be set: only variants of commonware have the setting cups",
        );
    }

    #[test]
    fn stacks_pass_messages_by_protocols_that_they_have() {
        let variant = |stack: &str, by: &str| json!({"stack": stack, "settings": {"messaging": by}});
        let message =
            "must be streams, or notifications for variants of litep2p, or gossipsub for variants of libp2p";
        for (accepted, refused) in [
            (
                variant("litep2p", "notifications"),
                variant("libp2p", "notifications"),
            ),
            (variant("libp2p", "gossipsub"), variant("litep2p", "gossipsub")),
            (variant("raw", "streams"), variant("raw", "gossipsub")),
        ] {
            judges(&messaging_of_its_stack(), &accepted, &refused, message);
        }
    }

    #[test]
    fn a_congestion_control_of_tcp_has_a_name_of_the_kernel() {
        let variant = |name: &str| json!({"stack": "raw", "settings": {"tcpCongestion": name}});
        let message = "must be the name of a congestion control in net.ipv4.tcp_available_congestion_control of the \
                       nodes' kernel, for example bbr: 1 to 15 lower-case letters, digits, '-' or '_'";
        for wrong in ["", "BBR", "a b", "0123456789abcdef"] {
            judges(
                &tcp_congestion_by_its_name(),
                &variant("dctcp-reno"),
                &variant(wrong),
                message,
            );
        }
    }

    #[test]
    fn a_window_of_yamux_has_room_for_a_stream() {
        let variant = |window: Value| json!({"stack": "litep2p", "settings": {"yamuxWindow": window}});
        let message = "must be a number of bytes from 256Ki to 1Gi, written as 256Ki, 1Mi or 1Gi";
        for (right, wrong) in [
            (json!("256Ki"), json!(262_143)),
            (json!(1 << 30), json!("2Gi")),
            (json!("1Mi"), json!("much")),
        ] {
            judges(&yamux_window(), &variant(right), &variant(wrong), message);
        }
    }

    #[test]
    fn variables_have_names_that_programs_can_be_started_with() {
        let message =
            "must have names of letters, digits, '-', '.' and '_', none of which begins with a digit";
        for refused in ["", "A=B", "1A", "A B"] {
            let right = json!({"RUST_LOG": "a=b", "_.-9": ""});
            judges(&variable_names(), &right, &json!({"A": "", refused: ""}), message);
        }
    }

    #[test]
    fn variables_of_nodes_are_reserved() {
        let message = "must not have names that begin with PERFRUN_: remove them, perfrun sets them";
        let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
        judges_of(
            &map,
            &no_reserved_variable(),
            &json!({"RUST_LOG": "debug", "MY_PERFRUN_RUN": "a"}),
            &json!({"RUST_LOG": "debug", "PERFRUN_RUN": "a"}),
            message,
        );
    }
}
