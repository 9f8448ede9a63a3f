//! `report.md`.

use std::fmt::Write as _;

use crate::{
    selection::ShownResults,
    table::{Field, Kind, Table, mark, sentence},
    tables::{ReportContent, content},
};

/// A report as Markdown, without its title.
#[derive(Clone, Debug, Default)]
pub struct MarkdownSections {
    /// What is before the tables: how the run ended, warnings, findings, and how to read the values.
    pub paragraphs: Vec<String>,
    /// Headings, and the table of each with its caption and footnotes.
    pub tables: Vec<(String, String)>,
}

/// The whole report as Markdown (GitHub's dialect, for its tables).
pub fn markdown<'a>(shown: impl Into<ShownResults<'a>>) -> String {
    text_of(&content(shown.into()))
}

/// The sections of [`markdown`].
pub fn markdown_sections<'a>(shown: impl Into<ShownResults<'a>>) -> MarkdownSections {
    sections_of(&content(shown.into()))
}

/// A report as Markdown.
pub(crate) fn text_of(content: &ReportContent) -> String {
    let MarkdownSections { paragraphs, tables } = sections_of(content);
    let mut out = format!("# {}\n", escaped(&content.title));
    for paragraph in paragraphs {
        let _ = write!(out, "\n{paragraph}\n");
    }
    for (heading, table) in tables {
        let _ = write!(out, "\n## {heading}\n\n{table}\n");
    }
    out
}

fn sections_of(content: &ReportContent) -> MarkdownSections {
    let mut paragraphs = vec![escaped(&content.outcome)];
    // GitHub colours this block; elsewhere it is a quotation.
    let warning = |text: &String| format!("> [!WARNING]\n> {}", escaped(text));
    paragraphs.extend(content.warnings.iter().map(warning));
    paragraphs.extend(content.findings.iter().map(|text| escaped(text)));
    paragraphs.extend(content.ip_families.map(str::to_owned));
    if !content.method.is_empty() {
        paragraphs.push(content.method(&content.measurements));
        paragraphs.extend(content.congestion.iter().map(|text| escaped(text)));
    }
    let tables = content.measurements.iter().chain(&content.problems);
    let tables = tables.chain([&content.environment]);
    MarkdownSections {
        paragraphs,
        tables: tables
            .map(|table| (escaped(&table.title), text_of_table(table)))
            .collect(),
    }
}

fn text_of_table(table: &Table) -> String {
    let mut lines = vec![];
    if !table.caption.is_empty() {
        lines.extend([escaped(&sentence(&table.caption)), String::new()]);
    }
    let header = table.header.iter();
    lines.push(line(header.map(|name| escaped(&name.replace('\n', " ")))));
    // Values stand to the right so that their units line up.
    let side = |i| {
        if table.kind != Kind::Prose && i >= table.keys {
            "---:"
        } else {
            "---"
        }
    };
    lines.push(line((0..table.header.len()).map(|i| side(i).to_owned())));
    lines.extend(table.rows.iter().map(|row| line(row.iter().map(text_of_field))));
    for (i, footnote) in table.footnotes.iter().enumerate() {
        let footnote = format!("{} {}", mark(i), escaped(&sentence(footnote)));
        lines.extend([String::new(), footnote]);
    }
    lines.join("\n")
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.map(|field| format!("| {field} ")).collect::<String>() + "|"
}

fn text_of_field(field: &Field) -> String {
    let mut text = escaped(&field.text.replace('\n', " "));
    if let Some(file) = &field.link {
        text = format!("[{text}](<{file}>)");
    }
    let interval = field
        .interval
        .as_ref()
        .map(|interval| format!(" {interval}"))
        .unwrap_or_default();
    format!("{text}{interval}{}", field.marks())
}

/// Names and messages come from documents, nodes and peers: whatever they hold, it is shown as text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '|' | '~' => out.extend(['\\', c]),
            '[' | ']' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let text = "a|b\n<img src=x> [x](http://x) `c` **d** \u{1b}[31m & e_f_g";
        let expected =
            "a\\|b &lt;img src=x&gt; \\[x\\](http://x) \\`c\\` \\*\\*d\\*\\*  \\[31m &amp; e\\_f\\_g";
        assert_eq!(escaped(text), expected);
    }
}
