//! What a string literal says, and whether that is prose.

/// The text of each source line of a literal, with the number of lines it stands below the first. A line
/// break in the text itself is an empty line.
pub(crate) type Lines = Vec<(usize, String)>;

/// What no sentence contains.
const CODE: &[&str] = &["  ", "</", "::", "==", "&&", "||", "self.", "();", ": \"", "{{"];

/// The text of a literal with escapes, without its quotes.
pub(crate) fn unescape(literal: &str) -> Lines {
    let mut lines = vec![(0, String::new())];
    let mut below = 0;
    let mut characters = literal.chars().peekable();
    while let Some(character) = characters.next() {
        let escaped = (character == '\\').then(|| characters.next()).flatten();
        match escaped.unwrap_or(character) {
            // A continuation: the text continues behind the indentation of the next line.
            '\n' if escaped.is_some() => {
                below += 1;
                while let Some(space) = characters.next_if(|next| next.is_whitespace()) {
                    below += usize::from(space == '\n');
                }
                lines.push((below, String::new()));
            }
            '\n' => {
                below += 1;
                lines.extend([(below, String::new()), (below, String::new())]);
            }
            'n' if escaped.is_some() => lines.extend([(below, String::new()), (below, String::new())]),
            other => {
                if let Some((_, text)) = lines.last_mut() {
                    text.push(other);
                }
            }
        }
    }
    lines
}

/// The text of a raw literal, without its fence.
pub(crate) fn raw(literal: &str) -> Lines {
    let mut lines = Vec::new();
    for (below, text) in literal.lines().enumerate() {
        if below > 0 {
            lines.push((below, String::new()));
        }
        lines.push((below, text.to_owned()));
    }
    lines
}

/// Whether this is a text for people, and not an identifier, a path, a program or a document.
pub(crate) fn is_prose(lines: &Lines) -> bool {
    let is_code = lines
        .iter()
        .any(|(_, text)| CODE.iter().any(|code| text.trim().contains(code)));
    let text: Vec<_> = lines.iter().map(|(_, text)| without_arguments(text)).collect();
    let text = text.join(" ");
    let words: Vec<_> = text.split_whitespace().collect();
    let plain = words.iter().filter(|word| is_word(word)).count();
    !is_code && plain >= 2 && plain * 3 >= words.len() * 2
}

/// The text as Markdown: what is formatted into it becomes code, which no rule looks at.
pub(crate) fn markdown(text: &str) -> String {
    let text = without_arguments(text.trim_start()).replace('<', "&lt;");
    match text.starts_with(['#', '-', '*', '+', '>', '|', '=']) {
        true => format!("\\{text}"),
        false => text,
    }
}

/// Arguments of format strings become `x`.
fn without_arguments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        out.push_str(before);
        rest = match behind.split_once('}') {
            Some((argument, behind)) if !argument.contains(char::is_whitespace) => {
                // Code inside of code would end it.
                out.push_str(if out.matches('`').count() % 2 == 0 {
                    "`x`"
                } else {
                    "x"
                });
                behind
            }
            _ => behind,
        };
    }
    out + rest
}

fn is_word(text: &str) -> bool {
    let text = text.trim_matches(|edge| "\"'.,:;!?()…—–".contains(edge));
    text.starts_with(|first: char| first.is_alphabetic())
        && text
            .chars()
            .all(|character| character.is_alphabetic() || "'’-".contains(character))
}

#[cfg(test)]
mod tests {
    use super::{is_prose, markdown, raw, unescape};

    #[test]
    fn escapes_and_continuations_are_resolved() {
        let lines = unescape("a \\\"b\\\" \\\n    c\\nd\ne");
        let expected = [(0, "a \"b\" "), (1, "c"), (1, ""), (1, "d"), (2, ""), (2, "e")];
        assert_eq!(lines, expected.map(|(below, text)| (below, text.to_owned())));
        assert_eq!(raw("a\nb").len(), 3);
    }

    #[test]
    fn sentences_are_prose_and_code_is_not() {
        for prose in [
            "failed to read {path}",
            "no such run",
            "{}: already in use by process {pid}",
            "set --kubeconfig or KUBECONFIG, and choose a context with --context",
        ] {
            assert!(is_prose(&unescape(prose)), "{prose}");
        }
        for code in [
            "perfrun_run_info",
            "trial",
            "/proc/self/stat",
            "{name} {value}",
            "self.rate == 0 || has(self.delay)",
            "apiVersion: v1",
        ] {
            assert!(!is_prose(&unescape(code)), "{code}");
        }
    }

    #[test]
    fn arguments_are_code() {
        assert_eq!(
            markdown("unable to use {name:?}: `{0}`"),
            "unable to use `x`: `x`"
        );
        assert_eq!(markdown("{{braces}} <name>"), "`x`} &lt;name>");
        assert_eq!(markdown("# of trials"), "\\# of trials");
    }
}
