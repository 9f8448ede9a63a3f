//! Tables as values: what they say, not how they are drawn.

use perfrun_contract::metric::Metric;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// What it is about.
    pub title: String,
    /// What holds for all of its values; empty: nothing.
    pub caption: String,
    /// How many of the first columns name a row. They are repeated where a table is drawn as several groups
    /// of columns.
    pub keys: usize,
    /// Names of the columns; a line break is where a narrow column may break.
    pub header: Vec<String>,
    /// The rows, each as long as the header.
    pub rows: Vec<Vec<Field>>,
    /// What the notes of the fields refer to; note 0 is the first.
    pub footnotes: Vec<String>,
    /// What may be left out where space is short.
    pub kind: Kind,
    /// Whether each column beside the keys is of a pair of stacks.
    pub has_pairs_across: bool,
}

/// What a table is to the report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The values that the workload requests.
    #[default]
    Main,
    /// More about the same cells: may be left out as a whole.
    Companion,
    /// Many values of each cell: may go without their intervals.
    Detail,
    /// Sentences instead of values.
    Prose,
}

/// One field of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Field {
    /// What it says.
    pub text: String,
    /// The confidence interval of a value, in the same unit.
    pub interval: Option<String>,
    /// Indices of footnotes.
    pub notes: Vec<usize>,
    /// A file that the text is a link to, relative to the results folder.
    pub link: Option<String>,
    /// Where the value is from, for programs that read a page.
    pub origin: Option<Origin>,
}

/// A median of the summary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    /// Id of the cell.
    pub cell: String,
    pub metric: Metric,
    /// The value before it was rounded, in the metric's unit.
    pub value: f64,
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Field {
    /// Whether there is a value, not a word for its absence.
    pub(crate) fn is_value(&self) -> bool {
        self.text
            .starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '?'))
    }

    /// Whether anything was planned here.
    pub(crate) fn is_planned(&self) -> bool {
        !matches!(self.text.as_str(), "" | NOTHING)
    }

    /// The footnotes' marks, e.g. `¹˒²`; empty without any.
    pub(crate) fn marks(&self) -> String {
        self.notes
            .iter()
            .map(|note| mark(*note))
            .collect::<Vec<_>>()
            .join("˒")
    }
}

/// The mark of a footnote: a raised number, from 1.
pub(crate) fn mark(note: usize) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = (note + 1).to_string();
    digits
        .bytes()
        .map(|digit| RAISED[usize::from(digit - b'0')])
        .collect()
}

/// Captions and footnotes are written without a capital and a full stop, to be joined to others.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|first| first.to_uppercase().to_string())
        .unwrap_or_default();
    ended(&format!("{first}{}", letters.as_str()))
}

/// A text with a full stop, unless it ends with a mark of its own: messages may be questions.
pub(crate) fn ended(text: &str) -> String {
    let mark = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{text}{mark}")
}

impl Table {
    /// A table without a title. Its columns are the keys, and the others.
    pub(crate) fn new<Name: Into<String>>(
        kind: Kind,
        keys: &[&str],
        others: impl IntoIterator<Item = Name>,
        rows: impl IntoIterator<Item = Vec<Field>>,
    ) -> Self {
        let names = keys.iter().map(|key| (*key).to_owned());
        Self {
            keys: keys.len(),
            header: names.chain(others.into_iter().map(Into::into)).collect(),
            rows: rows.into_iter().collect(),
            kind,
            ..Self::default()
        }
    }

    pub(crate) fn called(self, title: impl Into<String>, caption: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            caption: caption.into(),
            ..self
        }
    }

    pub(crate) fn with_footnotes(self, footnotes: impl Into<Vec<String>>) -> Self {
        Self {
            footnotes: footnotes.into(),
            ..self
        }
    }

    /// `None` without rows.
    pub(crate) fn unless_empty(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }

    /// The table with a row for each pair of stacks, for a screen that is too narrow for a column for each.
    /// Intervals have a column of their own. Skipped pairs have no row: another table names them.
    pub(crate) fn with_pairs_down(&self) -> Self {
        let values = || self.rows.iter().flat_map(|row| row.iter().skip(self.keys));
        let has_intervals = values().any(|field| field.interval.is_some());
        let rows = self.rows.iter().flat_map(|row| {
            let (keys, values) = row.split_at(self.keys.min(row.len()));
            let pairs = self.header.iter().skip(self.keys).zip(values);
            let shown = pairs.filter(|(_, field)| field.is_planned() && field.text != SKIPPED);
            shown.map(move |(pair, field)| {
                let value = Field {
                    text: field.text.replace('\n', " "),
                    interval: None,
                    ..field.clone()
                };
                let interval = field.interval.as_deref().unwrap_or_default();
                let of_pair = [pair.replace('\n', " ").into(), value];
                let interval = has_intervals.then(|| interval.into());
                keys.iter().cloned().chain(of_pair).chain(interval).collect()
            })
        });
        let keys = self.header.iter().take(self.keys).map(String::as_str);
        let keys: Vec<&str> = keys.chain(["Stacks"]).collect();
        let others = ["Value"].into_iter().chain(has_intervals.then_some("Interval"));
        Self::new(self.kind, &keys, others, rows)
            .called(&self.title, &self.caption)
            .with_footnotes(self.footnotes.clone())
    }

    /// The table without the rows in which no field beyond the keys satisfies the condition.
    pub(crate) fn with_rows_where_any(mut self, condition: impl Fn(&Field) -> bool) -> Self {
        let keys = self.keys;
        self.rows.retain(|row| row.iter().skip(keys).any(&condition));
        self
    }
}

/// What a field without a value says.
pub(crate) const NOTHING: &str = "–";

/// The text of a field whose cell was skipped.
pub(crate) const SKIPPED: &str = "skipped";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_raised_numbers_from_one() {
        assert_eq!(
            (mark(0), mark(9), mark(122)),
            ("¹".into(), "¹⁰".into(), "¹²³".into())
        );
        assert_eq!(
            Field {
                notes: vec![0, 1],
                ..Field::default()
            }
            .marks(),
            "¹˒²"
        );
    }

    #[test]
    fn captions_become_sentences() {
        assert_eq!(sentence("µs of it"), "Μs of it.");
        assert_eq!(sentence(""), ".");
        assert_eq!(sentence("is it so?"), "Is it so?");
    }

    #[test]
    fn texts_end_with_one_mark() {
        for (text, expected) in [
            ("no reply", "no reply."),
            ("no reply: is it running?", "no reply: is it running?"),
            ("it ended.", "it ended."),
        ] {
            assert_eq!(ended(text), expected);
        }
    }
}
