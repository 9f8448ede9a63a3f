//! Prose in files that are read line by line: comments, descriptions, messages.

use crate::{literal, page::Page};

/// Keys of YAML and JSON whose values people read.
const PROSE_KEYS: &[&str] = &["description", "message", "runbook", "summary", "title"];

/// Comments that `marker` begins, and the values of [`PROSE_KEYS`].
pub(crate) fn page(source: &str, marker: &str) -> Page {
    let mut page = Page::default();
    let mut follows_comment = false;
    let mut block = None;
    for (line, text) in (1..).zip(source.lines()) {
        let indentation = text.len() - text.trim_start().len();
        if block.is_some_and(|outer| indentation > outer && !text.trim().is_empty()) {
            page.push(line, &literal::markdown(&without_templates(text)));
            continue;
        }
        block = None;
        let comment = comment(text, marker).filter(|_| !text.starts_with("#!"));
        let stands_alone = text.trim_start().starts_with(marker);
        if !(follows_comment && stands_alone) {
            page.end_paragraph();
        }
        follows_comment = comment.is_some() && stands_alone;
        if let Some(comment) = comment {
            let comment = comment.trim_start_matches(marker);
            page.push(line, comment.strip_prefix(' ').unwrap_or(comment));
            page.mark_comment(line);
        } else if let Some(value) = value(text) {
            match value {
                ">" | ">-" | "|" | "|-" => block = Some(indentation),
                value => page.push(line, &literal::markdown(&without_templates(value))),
            }
        }
    }
    page
}

/// A template of the chart: comments of the template and of its YAML, and messages in quotation marks.
pub(crate) fn template(source: &str) -> Page {
    let mut page = Page::default();
    let mut is_comment = false;
    for (line, text) in (1..).zip(source.lines()) {
        let start = text.find("/*").map(|start| &text[start + 2..]);
        is_comment |= start.is_some();
        let yaml = comment(text, "#").filter(|_| !text.contains("{{"));
        if is_comment || yaml.is_some() {
            let text = start.or(yaml).unwrap_or(text);
            let (text, end) = text
                .split_once("*/")
                .map_or((text, false), |(text, _)| (text, true));
            page.push(line, text.trim_matches(['#', ' ']));
            page.mark_comment(line);
            is_comment &= !end;
            continue;
        }
        page.end_paragraph();
        for text in text.split('"').skip(1).step_by(2) {
            if literal::is_prose(&literal::unescape(text)) {
                page.push(line, text);
                page.end_paragraph();
            }
        }
    }
    page
}

/// Text that is prose except for what a template puts into it.
pub(crate) fn text(source: &str) -> Page {
    let lines: Vec<_> = source.lines().map(without_templates).collect();
    Page::verbatim(&(lines.join("\n") + "\n"))
}

/// What follows the marker of a comment, which must not stand in a quoted string.
fn comment<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let mut quote = None;
    let mut before = ' ';
    for (index, character) in text.char_indices() {
        if quote.is_none() && before.is_whitespace() && text[index..].starts_with(marker) {
            return Some(&text[index..]);
        }
        match (quote, character) {
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(character),
            (Some(open), character) if open == character && before != '\\' => quote = None,
            _ => {}
        }
        before = character;
    }
    None
}

/// The value of a line `key: value`, if it is one that people read.
fn value(line: &str) -> Option<&str> {
    let (key, value) = line.split_once(": ")?;
    let key = key.trim().trim_start_matches("- ").trim_matches('"');
    let value = value.trim().trim_end_matches(',').trim_matches(['"', '\'']);
    PROSE_KEYS
        .contains(&key)
        .then_some(value)
        .filter(|value| !value.is_empty())
}

/// Replaces what stands between double braces.
fn without_templates(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("{{") {
        let Some((_, behind)) = behind.split_once("}}") else {
            break;
        };
        out += before;
        out += "{}";
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::{page, template, text};

    #[test]
    fn comments_of_yaml_and_toml() {
        let source = "# One\n# two.\na: \"# no\" # Why.\nb: it's # Three.\n\n#\nc: d#e\n";
        let page = page(source, "#");
        assert_eq!(page.text(), "One\ntwo.\n\nWhy.\n\nThree.\n\n\n");
        assert_eq!(page.source_line(4), Some(3));
    }

    #[test]
    fn descriptions_are_read_and_blocks_too() {
        let source = "summary: Run {{ $labels.run }} failed.\nrunbook: >-\n  See\n  why.\nexpr: >-\n  a\n  \"title\": \"Trials\",\n";
        let page = page(source, "#");
        assert_eq!(page.text(), "Run `x` failed.\n\nSee\nwhy.\n\nTrials\n");
    }

    #[test]
    fn templates_have_comments_and_messages() {
        let source =
            "{{- /* Why\nnot. */ -}}\n{{- fail \"set one of them\" }}\nkind: {{ \"Pod\" }}\n# Of YAML\n";
        assert_eq!(
            template(source).text(),
            "Why\nnot.\n\nset one of them\n\nOf YAML\n"
        );
        assert_eq!(text("A {{ b }} c").text(), "A {} c\n");
    }
}
