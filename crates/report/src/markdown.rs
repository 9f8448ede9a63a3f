//! `report.md`.

use std::fmt::Write as _;

use crate::{
    keep::Shown,
    table::{Cell, Kind, Table, mark, sentence},
    tables::{Document, document},
};

/// The whole report as Markdown (GitHub's dialect, for its tables).
pub fn markdown<'a>(shown: impl Into<Shown<'a>>) -> String {
    drawn(&document(shown.into()))
}

pub(crate) fn drawn(document: &Document) -> String {
    let mut out = format!("# {}\n", escaped(&document.title));
    let _ = write!(out, "\n{}\n", escaped(&document.outcome));
    for warning in &document.warnings {
        // GitHub colours this block; elsewhere it is a quotation.
        let _ = write!(out, "\n> [!WARNING]\n> {}\n", escaped(warning));
    }
    for finding in &document.findings {
        let _ = write!(out, "\n{}\n", escaped(finding));
    }
    if document.measurements.is_empty() {
        out.push_str("\nNothing was measured.\n");
    } else {
        let _ = write!(out, "\n{}\n", document.method);
        if let Some(congestion) = &document.congestion {
            let _ = write!(out, "\n{}\n", escaped(congestion));
        }
    }
    for table in document
        .measurements
        .iter()
        .chain(&document.problems)
        .chain([&document.environment])
    {
        draw(&mut out, table);
    }
    out
}

fn draw(out: &mut String, table: &Table) {
    let _ = write!(out, "\n## {}\n", escaped(&table.title));
    if !table.caption.is_empty() {
        let _ = write!(out, "\n{}\n", escaped(&sentence(&table.caption)));
    }
    out.push('\n');
    line(
        out,
        table.header.iter().map(|name| escaped(&name.replace('\n', " "))),
    );
    // Values stand to the right so that their units line up.
    let side = |i| {
        if table.kind != Kind::Prose && i >= table.keys {
            "---:"
        } else {
            "---"
        }
    };
    line(out, (0..table.header.len()).map(|i| side(i).to_owned()));
    for row in &table.rows {
        line(out, row.iter().map(field));
    }
    for (i, footnote) in table.footnotes.iter().enumerate() {
        let _ = write!(out, "\n{} {}\n", mark(i), escaped(&sentence(footnote)));
    }
}

fn line(out: &mut String, fields: impl Iterator<Item = String>) {
    for field in fields {
        let _ = write!(out, "| {field} ");
    }
    out.push_str("|\n");
}

fn field(cell: &Cell) -> String {
    let mut text = escaped(&cell.text.replace('\n', " "));
    if let Some(file) = &cell.link {
        text = format!("[{text}](<{file}>)");
    }
    let interval = cell
        .interval
        .as_ref()
        .map(|interval| format!(" {interval}"))
        .unwrap_or_default();
    format!("{text}{interval}{}", cell.marks())
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
