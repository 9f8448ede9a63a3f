//! The tables at the end of a run, for a terminal of a given width. No colours: the text goes to files and
//! logs, too.

use std::borrow::Cow;

use comfy_table::{CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, TableStyle};
use perfrun_contract::text::plain;

use crate::{
    selection::ShownResults,
    table::{Field, Kind, Table, mark, sentence},
    tables::{ReportContent, content},
};

/// Below this even the names of rows do not fit.
const WIDTH_MIN: usize = 40;
/// Spaces between two columns: one after a field, one instead of a line.
const GAP: usize = 2;
/// Intervals double the height of a table.
const ROWS_WITH_INTERVALS_MAX: usize = 24;
/// A table that is too wide gets a row for each pair of stacks, unless it then has more rows than this. Two
/// groups of columns are easier to read than a longer table.
const ROWS_OF_PAIRS_MAX: usize = 64;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .content_lines(ContentLineStyle::none());

/// How much a terminal shows, and what it shows besides.
#[derive(Clone, Debug, Default)]
pub struct TerminalOptions {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to show all tables, and not only those that the workload is for.
    pub shows_all: bool,
    /// The command that shows all tables.
    pub show_all_command: String,
    /// The command that measures what is missing. `None` if nothing is.
    pub resume_command: Option<String>,
    /// What the last line has after the outcome of the run.
    pub ending: Vec<String>,
}

/// What `perfrun run` prints at its end: the main tables of `report.md`, what they show, and in the last line
/// how the run ended.
pub fn terminal<'a>(shown: impl Into<ShownResults<'a>>, options: &TerminalOptions) -> String {
    text_of(&content(shown.into()), options)
}

/// A report as text, with the verdict in the last line.
pub(crate) fn text_of(content: &ReportContent, options: &TerminalOptions) -> String {
    let width = options.width.max(WIDTH_MIN);
    let mut blocks = vec![];
    for warning in &content.warnings {
        blocks.push(wrapped(&format!("WARNING: {warning}"), width));
    }
    blocks.extend(content.ip_families.map(|text| wrapped(text, width)));
    let mains = if content.has_all_in_first { 1 } else { usize::MAX };
    let is_main = |(number, table): &(usize, &Table)| *number < mains && table.kind != Kind::Companion;
    let tables = content.measurements.iter().enumerate();
    let (shown, others): (Vec<_>, Vec<_>) = tables.partition(|table| options.shows_all || is_main(table));
    blocks.extend(shown.iter().map(|(_, table)| text_of_table(table, width)));
    blocks.extend(content.problems.iter().map(|table| text_of_table(table, width)));
    if !content.method.is_empty() {
        let shown = shown.iter().map(|(_, table)| *table);
        let method = content.method(shown.filter(|table| shows_intervals(&fitted(table, width), width)));
        blocks.push(wrapped(&method, width));
        blocks.extend(
            content
                .congestion
                .iter()
                .map(|congestion| wrapped(congestion, width)),
        );
    }
    if !others.is_empty() {
        let titles: Vec<&str> = others.iter().map(|(_, table)| table.title.as_str()).collect();
        let line = wrapped(&format!("More tables: {}.", titles.join(", ")), width);
        blocks.push(format!("{line}\nShow them with: {}", options.show_all_command));
    }
    if !content.findings.is_empty() {
        let lines = content.findings.iter().map(|finding| wrapped(finding, width));
        blocks.push(lines.collect::<Vec<_>>().join("\n"));
    }
    blocks.extend(
        options
            .resume_command
            .iter()
            .map(|command| format!("Run what is missing with: {command}")),
    );
    let parts = [&content.outcome].into_iter().chain(&options.ending).cloned();
    blocks.push(plain(&Vec::from_iter(parts).join(" · ")));
    blocks.join("\n\n") + "\n"
}

/// A table as text of this width.
pub(crate) fn text_of_table(table: &Table, width: usize) -> String {
    let table = &fitted(table, width);
    let mut out = table.title.clone();
    if !table.caption.is_empty() {
        out = wrapped(&format!("{out}: {}", table.caption), width);
    }
    let widths = ColumnWidths::new(table, shows_intervals(table, width));
    if has_intervals(table) && !shows_intervals(table, width) {
        out = wrapped(&format!("{out} (for intervals, use --output md)"), width);
    }
    for columns in widths.column_groups(table, width) {
        out.push_str("\n\n");
        out.push_str(&text_of_columns(table, &widths, &columns, width));
    }
    for (i, footnote) in table.footnotes.iter().enumerate() {
        out.push_str(if i == 0 { "\n\n" } else { "\n" });
        out.push_str(&wrapped(&format!("{} {}", mark(i), sentence(footnote)), width));
    }
    out
}

/// The table, with a row for each pair of stacks where that makes it fit.
fn fitted(table: &Table, width: usize) -> Cow<'_, Table> {
    if table.has_pairs_across && ColumnWidths::new(table, true).total() > width {
        let down = table.with_pairs_down();
        if down.rows.len() <= ROWS_OF_PAIRS_MAX && ColumnWidths::new(&down, true).total() <= width {
            return Cow::Owned(down);
        }
    }
    Cow::Borrowed(table)
}

fn has_intervals(table: &Table) -> bool {
    table.rows.iter().flatten().any(|field| field.interval.is_some())
}

/// Whether a fitted table has room for its intervals.
fn shows_intervals(table: &Table, width: usize) -> bool {
    let too_wide = table.kind == Kind::Detail && ColumnWidths::new(table, true).total() > width;
    !too_wide && table.rows.len() <= ROWS_WITH_INTERVALS_MAX
}

/// The fields as text and how wide the columns are.
struct ColumnWidths {
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl ColumnWidths {
    fn new(table: &Table, intervals: bool) -> Self {
        let rows: Vec<Vec<String>> = table
            .rows
            .iter()
            .map(|row| row.iter().map(|field| text_of_field(field, intervals)).collect())
            .collect();
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let mut widths: Vec<usize> = table.header.iter().map(|name| longest(&plain(name))).collect();
        for row in &rows {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = longest(text).max(*width);
            }
        }
        Self { rows, widths }
    }

    fn total(&self) -> usize {
        self.widths
            .iter()
            .map(|width| width + GAP)
            .sum::<usize>()
            .saturating_sub(1)
    }

    /// The columns in groups, each of which fits beside the keys; prose, which wraps well, stays together.
    fn column_groups(&self, table: &Table, width: usize) -> Vec<Vec<usize>> {
        let values: Vec<usize> = (table.keys..self.widths.len()).collect();
        if table.kind == Kind::Prose || self.total() <= width {
            return vec![values];
        }
        let keys: usize = self.widths.iter().take(table.keys).map(|width| width + GAP).sum();
        let room = (width + 1).saturating_sub(keys);
        let mut groups: Vec<Vec<usize>> = vec![];
        let mut left = 0;
        for i in values {
            let needed = self.widths[i] + GAP;
            match groups.last_mut() {
                Some(group) if needed <= left => group.push(i),
                _ => {
                    groups.push(vec![i]);
                    left = room;
                }
            }
            left = left.saturating_sub(needed);
        }
        groups
    }
}

/// The keys and some other columns of a table as text.
fn text_of_columns(table: &Table, widths: &ColumnWidths, columns: &[usize], width: usize) -> String {
    let chosen: Vec<usize> = (0..table.keys).chain(columns.iter().copied()).collect();
    let mut drawing = comfy_table::Table::new();
    drawing.load_style(STYLE);
    drawing.set_content_arrangement(ContentArrangement::Dynamic);
    drawing.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    drawing.set_header(chosen.iter().map(|&i| plain(&table.header[i])));
    for row in &widths.rows {
        drawing.add_row(chosen.iter().map(|&i| row.get(i).map_or("", String::as_str)));
    }
    for (column, &i) in drawing.column_iter_mut().zip(&chosen) {
        column.set_padding((0, GAP as u16 - 1));
        if table.kind != Kind::Prose && i >= table.keys {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    drawing.trim_fmt()
}

/// The value with its marks, the interval below it: side by side, four pairs would not fit.
fn text_of_field(field: &Field, intervals: bool) -> String {
    let mut text = plain(&field.text) + &field.marks();
    if let Some(interval) = field.interval.as_ref().filter(|_| intervals) {
        text.push('\n');
        text.push_str(interval);
    }
    text
}

/// Broken at spaces; words that are too long stay whole.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in plain(text).split_whitespace() {
        let last = lines.last_mut().expect("there is a line from the start on");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}
