//! Rules on networks: which figures belong together. They see one direction at a time;
//! [`super::DirectionImpairment::check`] sees what a direction inherits.

use kube::core::Rule;

use super::presets;
use crate::rule::{self, list};

/// A network must not have the name of a preset, whose figures never change.
pub(super) fn name() -> Rule {
    rule::own_name(&list(&presets::names()), "the name of a preset")
}

/// The way that `direction` leaves out is not impaired at all.
pub(super) fn to_server_has_effect() -> Rule {
    Rule::new("!has(self.toServer) || !has(self.direction) || self.direction != 'toClient'")
        .message("toServer has no effect with direction: toClient")
}

/// The way that `direction` leaves out is not impaired at all.
pub(super) fn to_client_has_effect() -> Rule {
    Rule::new("!has(self.toClient) || !has(self.direction) || self.direction != 'toServer'")
        .message("toClient has no effect with direction: toServer")
}

/// netem adds jitter to a delay, and no packet arrives before it was sent.
pub(super) fn jitter_needs_delay() -> Rule {
    Rule::new("!has(self.jitter) || has(self.delay)")
        .message("jitter varies the delay, but no delay is set: set delay to at least the value of jitter")
}

/// A distribution of nothing is a forgotten jitter.
pub(super) fn distribution_needs_jitter() -> Rule {
    Rule::new("has(self.jitter) || !(has(self.distribution) || has(self.correlation))")
        .message("distribution and correlation describe jitter, but no jitter is set: set jitter")
}

/// Reordered packets are those that skip the delay.
pub(super) fn reorder_needs_delay() -> Rule {
    Rule::new("!has(self.reorder) || has(self.delay)")
        .message("reordered packets skip the delay, but no delay is set: set delay, or remove reorder")
}

/// A gap without reordering is a forgotten share.
pub(super) fn gap_needs_reorder() -> Rule {
    Rule::new("has(self.reorder) || !has(self.reorderGap)")
        .message("reorderGap limits reorder, but no reorder is set: set reorder")
}

/// A correlation of nothing is a forgotten loss.
pub(super) fn correlation_needs_loss() -> Rule {
    Rule::new("has(self.loss) || !has(self.lossCorrelation)")
        .message("lossCorrelation describes loss, but no loss is set: set loss")
}

/// netem has one model of loss at a time.
pub(super) fn one_model_of_loss() -> Rule {
    Rule::new("!has(self.loss) || !has(self.bursts)")
        .message("set either loss, for independent losses, or bursts")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rule::evaluation::judges;

    #[test]
    fn a_network_has_another_name_than_a_preset() {
        let message = "must be 1 to 40 lower-case letters, digits or '-', begin and end with a letter or \
                       digit, and not be the name of a preset";
        judges(&name(), &json!("wan-2"), &json!("wan"), message);
        judges(&name(), &json!("far"), &json!("none"), message);
    }

    #[test]
    fn to_server_is_impaired_in_its_direction_only() {
        judges(
            &to_server_has_effect(),
            &json!({"toServer": {}}),
            &json!({"direction": "toClient", "toServer": {}}),
            "toServer has no effect with direction: toClient",
        );
    }

    #[test]
    fn to_client_is_impaired_in_its_direction_only() {
        judges(
            &to_client_has_effect(),
            &json!({"direction": "toClient", "toClient": {}}),
            &json!({"direction": "toServer", "toClient": {}}),
            "toClient has no effect with direction: toServer",
        );
    }

    #[test]
    fn jitter_varies_a_delay() {
        judges(
            &jitter_needs_delay(),
            &json!({"delay": "2ms", "jitter": "1ms"}),
            &json!({"jitter": "1ms"}),
            "jitter varies the delay, but no delay is set: set delay to at least the value of jitter",
        );
    }

    #[test]
    fn a_distribution_describes_jitter() {
        let message = "distribution and correlation describe jitter, but no jitter is set: set jitter";
        judges(
            &distribution_needs_jitter(),
            &json!({"jitter": "1ms", "distribution": "normal"}),
            &json!({"distribution": "normal"}),
            message,
        );
        judges(
            &distribution_needs_jitter(),
            &json!({}),
            &json!({"correlation": "25%"}),
            message,
        );
    }

    #[test]
    fn reordered_packets_skip_a_delay() {
        judges(
            &reorder_needs_delay(),
            &json!({"delay": "1ms", "reorder": "1%"}),
            &json!({"reorder": "1%"}),
            "reordered packets skip the delay, but no delay is set: set delay, or remove reorder",
        );
    }

    #[test]
    fn a_gap_limits_reordering() {
        judges(
            &gap_needs_reorder(),
            &json!({"reorder": "1%", "reorderGap": 5}),
            &json!({"reorderGap": 5}),
            "reorderGap limits reorder, but no reorder is set: set reorder",
        );
    }

    #[test]
    fn a_correlation_describes_loss() {
        judges(
            &correlation_needs_loss(),
            &json!({"loss": "1%", "lossCorrelation": "5%"}),
            &json!({"lossCorrelation": "5%"}),
            "lossCorrelation describes loss, but no loss is set: set loss",
        );
    }

    #[test]
    fn losses_have_one_model() {
        judges(
            &one_model_of_loss(),
            &json!({"loss": "1%"}),
            &json!({"loss": "1%", "bursts": {}}),
            "set either loss, for independent losses, or bursts",
        );
    }
}
