//! Untrusted text without control characters.

/// Most characters of an error that a node reports: several sentences.
pub const MESSAGE_MAX: usize = 1000;

/// Text that cannot control a terminal: control characters, line feeds aside, become spaces. A terminal obeys
/// escape sequences in what it prints; one of them (OSC 52) writes to the clipboard.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect()
}

/// [Plain](plain) text of at most [`MESSAGE_MAX`] characters. An ellipsis replaces the rest.
pub fn message(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_MAX) {
        None => plain(text),
        Some(_) => {
            let kept: String = text.chars().take(MESSAGE_MAX - 1).collect();
            plain(&kept) + "…"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_cannot_control_a_terminal() {
        let clipboard = "\x1b]52;c;cm0gLXJm\x07 and \u{9b}31m red\r\n";
        assert_eq!(plain(clipboard), " ]52;c;cm0gLXJm  and  31m red \n");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long = "é".repeat(MESSAGE_MAX);
        assert_eq!(message(&long), long);
        let cut = message(&(long + "\x07"));
        assert_eq!(cut.chars().count(), MESSAGE_MAX);
        assert!(cut.ends_with("é…"), "{cut}");
    }
}
