//! The prose of one file as Markdown.

/// The last column of comments, as in rustfmt.toml and .editorconfig.
pub(crate) const COLUMNS: usize = 110;

/// Each text stands on its line of the file, all other lines are empty. What Vale finds has the right line.
pub(crate) struct Page<'a> {
    source: Vec<&'a str>,
    lines: Vec<String>,
    /// Lines whose comment could be wrapped and must be.
    pub(crate) too_wide: Vec<usize>,
}

impl<'a> Page<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        let source: Vec<_> = source.lines().collect();
        Self {
            lines: vec![String::new(); source.len()],
            source,
            too_wide: Vec::new(),
        }
    }

    /// A file that is prose as it stands.
    pub(crate) fn verbatim(source: &'a str) -> Self {
        let mut page = Self::new(source);
        page.lines = source.lines().map(str::to_owned).collect();
        page
    }

    pub(crate) fn markdown(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Adds a comment. A table or a single long word cannot be wrapped.
    pub(crate) fn comment(&mut self, first: usize, comment: &str) {
        for (line, comment) in (first..).zip(comment.lines().map(str::trim)) {
            let text = comment.trim_start_matches(['/', '!', '*', '#']);
            let marker = &comment[..comment.len() - text.len()];
            let is_alone = |line: usize| self.source[line].trim_start().starts_with(marker);
            let continues = line > 0 && is_alone(line) && is_alone(line - 1);
            let text = text.strip_prefix(' ').unwrap_or(text);
            let can_wrap = text.trim().contains(' ') && !text.trim().starts_with('|');
            if can_wrap && self.source[line].chars().count() > COLUMNS {
                self.too_wide.push(line + 1);
            }
            self.add(line, text, continues);
        }
    }

    /// Adds a text of a program if it is a sentence.
    pub(crate) fn message(&mut self, line: usize, text: &str) {
        if is_sentence(text) {
            self.text(line, line, text);
        }
    }

    /// Adds a text that begins at line `begin`, or its lines from `first` on. What is formatted into it is
    /// code, which no rule reads.
    pub(crate) fn text(&mut self, begin: usize, first: usize, text: &str) {
        for (line, text) in (first..).zip(text.lines()) {
            let text = without_arguments(text.trim().trim_end_matches('\\').trim_end());
            let text = text.replace('<', "&lt;").replace("\\n", ". ");
            let is_markup = text.starts_with(['#', '-', '*', '+', '>', '|', '=']);
            let escape = if is_markup { "\\" } else { "" };
            self.add(line, &format!("{escape}{text}"), line > begin);
        }
    }

    /// What does not continue the line above becomes an item of a list, or a sentence of its own.
    fn add(&mut self, line: usize, text: &str, continues: bool) {
        if text.is_empty() {
            return;
        }
        let is_below = line > 0 && !self.lines[line - 1].is_empty();
        let place = &mut self.lines[line];
        if !place.is_empty() {
            place.push_str(". ");
        } else if is_below && !continues {
            place.push_str("- ");
        }
        place.push_str(text);
    }
}

/// Arguments of format strings and of templates become `x`.
fn without_arguments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        out.push_str(before);
        // Code inside of code would end it.
        let is_code = !out.matches('`').count().is_multiple_of(2);
        out.push_str(if is_code { "x" } else { "`x`" });
        rest = behind
            .split_once('}')
            .map_or(behind, |(_, behind)| behind.trim_start_matches('}'));
    }
    out + rest
}

/// Whether two of three words are of letters only, and nothing is aligned, unlike in identifiers, paths,
/// programs and documents.
fn is_sentence(message: &str) -> bool {
    let text = without_arguments(message).replace("\\n", "\n");
    let words: Vec<_> = text.split_whitespace().collect();
    let is_plain = |word: &&&str| {
        let word = word.trim_matches(|edge| "\"'.,:;!?()…—–\\".contains(edge));
        !word.is_empty() && word.chars().all(|c| c.is_alphabetic() || "'’-".contains(c))
    };
    let plain = words.iter().filter(is_plain).count();
    plain >= 2 && plain * 3 >= words.len() * 2 && !text.lines().any(|line| line.trim().contains("  "))
}
