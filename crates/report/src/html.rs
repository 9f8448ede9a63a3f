//! `report.html`: the report for a browser, in one file that needs no other.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use perfrun_contract::text::plain;

use crate::{
    plot::{self, Plot},
    selection::ShownResults,
    table::{Cell, Kind, Table, mark, sentence},
    tables::document,
};

/// Follows the reader's choice of light or dark.
const STYLE: &str = include_str!("html.css");

/// The whole report as a page, plots included. It loads nothing and runs nothing.
pub fn html<'a>(shown: impl Into<ShownResults<'a>>) -> String {
    let shown = shown.into();
    let document = document(shown);
    let tables = document.measurements.iter().chain(&document.problems);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                meta name="color-scheme" content="light dark";
                title { (document.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (document.title) }
                p.outcome { (document.outcome) }
                @for warning in &document.warnings { p.warning role="alert" { (warning) } }
                @for finding in &document.findings { p.finding { (finding) } }
                @if let Some(ip_families) = document.ip_families { p { (ip_families) } }
                @if !document.method.is_empty() {
                    p { (document.method(&document.measurements)) }
                    @if let Some(congestion) = &document.congestion { p { (congestion) } }
                }
                @for (name, plot) in plot::drawn(shown.results) { figure id=(name) { (pictured(&plot)) } }
                @for table in tables.chain([&document.environment]) { (drawn(table)) }
            }
        }
    };
    // HTML has no control characters, and somebody may look at the file in a terminal.
    plain(&page.into_string())
}

/// A plot for a screen and for a phone, of which the style shows one; folded, if it is higher than a screen.
fn pictured(plot: &Plot) -> Markup {
    // Written by this crate, which escapes what comes from elsewhere.
    let svg = html! {
        div.on-screen { (PreEscaped(plot.wide.with_hints())) }
        // Nothing points at marks on a phone.
        div.on-phone { (PreEscaped(&plot.narrow.svg)) }
    };
    html! {
        @if plot.wide.is_high() {
            details { summary { (plot.wide.title) } (svg) }
        } @else {
            (svg)
        }
    }
}

fn drawn(table: &Table) -> Markup {
    html! {
        h2 { (table.title) }
        @if !table.caption.is_empty() { p { (sentence(&table.caption)) } }
        div.wide {
            table {
                thead { tr { @for name in &table.header { th scope="col" { (name) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for (i, cell) in row.iter().enumerate() { (field(table, i, cell)) } }
                    }
                }
            }
        }
        @for (i, footnote) in table.footnotes.iter().enumerate() { p.note { (mark(i)) " " (sentence(footnote)) } }
    }
}

fn field(table: &Table, column: usize, cell: &Cell) -> Markup {
    let content = html! {
        @if let Some(file) = &cell.link { a href=(file) { (cell.text) } } @else { (cell.text) }
        @if let Some(interval) = &cell.interval { " " span.interval { (interval) } }
        (cell.marks())
    };
    html! {
        @if table.kind == Kind::Prose {
            td { (content) }
        } @else if column < table.keys {
            th scope="row" { (content) }
        } @else {
            @let origin = cell.origin.as_ref();
            td.value
                data-cell=[origin.map(|origin| &origin.cell)]
                data-metric=[origin.map(|origin| origin.metric.as_ref())]
                data-value=[origin.map(|origin| origin.value.to_string())]
                { (content) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let table = Table {
            title: "<b>".to_owned(),
            header: vec!["a&b".to_owned()],
            rows: vec![vec!["<script>alert(1)</script>".into()]],
            ..Table::default()
        };
        let page = drawn(&table).into_string();
        assert!(page.contains("<h2>&lt;b&gt;</h2>"), "{page}");
        assert!(
            page.contains("a&amp;b") && page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{page}"
        );
    }

    #[test]
    fn a_file_is_a_link() {
        let cell = Cell {
            text: "a.svg".to_owned(),
            link: Some("profiles/a\"b.svg".to_owned()),
            ..Cell::default()
        };
        let table = Table {
            rows: vec![vec![cell]],
            ..Table::default()
        };
        let page = drawn(&table).into_string();
        assert!(
            page.contains("<a href=\"profiles/a&quot;b.svg\">a.svg</a>"),
            "{page}"
        );
    }
}
