//! Prose in files that are read line by line: comments, descriptions, messages.

use crate::page::Page;

/// Keys of YAML and JSON whose values people read.
const PROSE_KEYS: &[&str] = &["description", "message", "runbook", "summary", "title"];

/// Comments that `marker` begins, the values of [`PROSE_KEYS`], and what the chart's templates have: comments
/// in `/* */` and messages in quotation marks.
pub(crate) fn page<'a>(source: &'a str, marker: &str, is_template: bool) -> Page<'a> {
    let mut page = Page::new(source);
    let mut block = None;
    let mut is_comment = false;
    for (line, text) in source.lines().enumerate() {
        let indentation = text.len() - text.trim_start().len();
        if let Some((begin, _)) = block.filter(|&(_, outer)| indentation > outer && !text.trim().is_empty()) {
            page.text(begin, line, text);
            continue;
        }
        block = None;
        let start = text.find("/*").filter(|_| is_template);
        if is_comment || start.is_some() {
            let text = &text[start.unwrap_or_default()..];
            is_comment = !text.contains("*/");
            let (text, _) = text.split_once("*/").unwrap_or((text, ""));
            page.comment(line, text);
        } else if let Some(comment) = comment(text, marker).filter(|_| !text.starts_with("#!")) {
            page.comment(line, comment);
        } else if is_template {
            text.split('"')
                .skip(1)
                .step_by(2)
                .for_each(|text| page.message(line, text));
        } else if let Some(value) = value(text) {
            match value {
                ">" | ">-" | "|" | "|-" => block = Some((line + 1, indentation)),
                value => page.text(line, line, value),
            }
        }
    }
    page
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
    (PROSE_KEYS.contains(&key) && !value.is_empty()).then_some(value)
}
