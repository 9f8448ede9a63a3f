//! `report.html`: the report for a browser, in one file that needs no other.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use perfrun_contract::text::plain;

use crate::{
    plot::{self, Plot},
    selection::ShownResults,
    table::{Field, Kind, Table, mark, sentence},
    tables::content,
};

/// Follows the reader's choice of light or dark.
const STYLE: &str = include_str!("html.css");

/// The whole report as a page, plots included. It loads nothing and runs nothing.
pub fn html<'a>(shown: impl Into<ShownResults<'a>>) -> String {
    let shown = shown.into();
    let content = content(shown);
    let tables = content.measurements.iter().chain(&content.problems);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                meta name="color-scheme" content="light dark";
                title { (content.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (content.title) }
                p.outcome { (content.outcome) }
                @for warning in &content.warnings { p.warning role="alert" { (warning) } }
                @for finding in &content.findings { p.finding { (finding) } }
                @if let Some(ip_families) = content.ip_families { p { (ip_families) } }
                @if !content.method.is_empty() {
                    p { (content.method(&content.measurements)) }
                    @if let Some(congestion) = &content.congestion { p { (congestion) } }
                }
                @for (name, plot) in plot::all(shown.results) { figure id=(name) { (markup_of_plot(&plot)) } }
                @for table in tables.chain([&content.environment]) { (markup_of_table(table)) }
            }
        }
    };
    // HTML has no control characters, and somebody may look at the file in a terminal.
    plain(&page.into_string())
}

/// A plot for a screen and for a phone, of which the style shows one; folded, if it is higher than a screen.
fn markup_of_plot(plot: &Plot) -> Markup {
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

fn markup_of_table(table: &Table) -> Markup {
    html! {
        h2 { (table.title) }
        @if !table.caption.is_empty() { p { (sentence(&table.caption)) } }
        div.wide {
            table {
                thead { tr { @for name in &table.header { th scope="col" { (name) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for (i, field) in row.iter().enumerate() { (markup_of_field(table, i, field)) } }
                    }
                }
            }
        }
        @for (i, footnote) in table.footnotes.iter().enumerate() { p.note { (mark(i)) " " (sentence(footnote)) } }
    }
}

fn markup_of_field(table: &Table, column: usize, field: &Field) -> Markup {
    let content = html! {
        @if let Some(file) = &field.link { a href=(file) { (field.text) } } @else { (field.text) }
        @if let Some(interval) = &field.interval { " " span.interval { (interval) } }
        (field.marks())
    };
    html! {
        @if table.kind == Kind::Prose {
            td { (content) }
        } @else if column < table.keys {
            th scope="row" { (content) }
        } @else {
            @let origin = field.origin.as_ref();
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
        let page = markup_of_table(&table).into_string();
        assert!(page.contains("<h2>&lt;b&gt;</h2>"), "{page}");
        assert!(
            page.contains("a&amp;b") && page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{page}"
        );
    }

    #[test]
    fn a_file_is_a_link() {
        let field = Field {
            text: "a.svg".to_owned(),
            link: Some("profiles/a\"b.svg".to_owned()),
            ..Field::default()
        };
        let table = Table {
            rows: vec![vec![field]],
            ..Table::default()
        };
        let page = markup_of_table(&table).into_string();
        assert!(
            page.contains("<a href=\"profiles/a&quot;b.svg\">a.svg</a>"),
            "{page}"
        );
    }
}
