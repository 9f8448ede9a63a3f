//! The prose of one file, with the line of the file that each line of it comes from.

/// Markdown for Vale.
#[derive(Debug, Default)]
pub(crate) struct Page {
    text: String,
    /// The source line of each line of `text`, counted from 1; 0 for the blank line between paragraphs.
    lines: Vec<usize>,
    /// Source lines that contain a comment.
    comments: Vec<usize>,
}

impl Page {
    /// A file that is prose as it stands.
    pub(crate) fn verbatim(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            lines: (1..=text.lines().count()).collect(),
            comments: Vec::new(),
        }
    }

    /// Adds a line to the current paragraph.
    pub(crate) fn push(&mut self, line: usize, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
        self.lines.push(line);
    }

    /// Ends the current paragraph.
    pub(crate) fn end_paragraph(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.push(0, "");
        }
    }

    /// Records that a source line contains a comment.
    pub(crate) fn mark_comment(&mut self, line: usize) {
        if self.comments.last() != Some(&line) {
            self.comments.push(line);
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The source line of a line of the text.
    pub(crate) fn source_line(&self, line: usize) -> Option<usize> {
        let index = line.checked_sub(1)?;
        self.lines.get(index).copied().filter(|&line| line > 0)
    }

    /// Source lines with a comment that does not fit into `columns`. A table or a single long word cannot be
    /// wrapped.
    pub(crate) fn too_wide(&self, source: &str, columns: usize) -> Vec<usize> {
        let lines: Vec<_> = source.lines().collect();
        let is_wide = |&line: &usize| {
            lines.get(line - 1).is_some_and(|text| {
                let comment = text.trim_start().trim_start_matches(['/', '!', '#', '*']).trim();
                text.chars().count() > columns && !comment.starts_with('|') && comment.contains(' ')
            })
        };
        self.comments.iter().copied().filter(is_wide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Page;

    #[test]
    fn lines_lead_back_to_their_source() {
        let mut page = Page::default();
        page.end_paragraph();
        page.push(3, "One");
        page.push(4, "two. ");
        page.end_paragraph();
        page.end_paragraph();
        page.push(9, "Three.");
        assert_eq!(page.text(), "One\ntwo.\n\nThree.\n");
        let lines: Vec<_> = (0..6).map(|line| page.source_line(line)).collect();
        assert_eq!(lines, [None, Some(3), Some(4), None, Some(9), None]);
    }

    #[test]
    fn only_comments_that_could_be_wrapped_are_too_wide() {
        let mut page = Page::default();
        let source = "// four words of it\nlet text = \"four words of it\";\n/// | a | table | is |\n// https://example.org/\n";
        for line in [1, 3, 4] {
            page.mark_comment(line);
        }
        assert!(page.too_wide(source, 19).is_empty());
        assert_eq!(page.too_wide(source, 18), [1]);
    }
}
