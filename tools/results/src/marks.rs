//! The places in a document that show results: everything between two comments.
//!
//! ```text
//! <!-- results NAME PART; PART -->
//! …
//! <!-- end -->
//! ```
//!
//! NAME is a folder in docs/results. A PART is the heading of a table of its report, the file of a plot, or
//! the first words of findings. Only a comment at the start of a line counts, so that a document may name
//! both.

use anyhow::{Context, Result, bail, ensure};

const START: &str = "<!-- results ";
const END: &str = "<!-- end -->";

/// The text of a document with new content between its comments. The content of a name and its parts comes
/// from `content`. Errors begin with the file and the line.
pub(crate) fn filled(
    file: &str,
    text: &str,
    mut content: impl FnMut(&str, &[&str]) -> Result<String>,
) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n').zip(1..);
    while let Some((line, number)) = lines.next() {
        out.push_str(line);
        let place = || format!("{file}:{number}");
        if line.trim_end() == END {
            bail!("{}: nothing begins before this `{END}`: remove it", place());
        }
        let Some(comment) = line.trim_end().strip_prefix(START) else {
            continue;
        };
        let named = comment
            .strip_suffix(" -->")
            .and_then(|named| named.split_once(' '));
        let (name, parts) = named.with_context(|| {
            format!(
                "{}: write `{START}NAME PART; PART -->` on a line of its own",
                place()
            )
        })?;
        let mut ends = lines.by_ref().map(|(line, _)| line.trim_end());
        let end = ends.find(|line| *line == END || line.starts_with(START));
        ensure!(
            end == Some(END),
            "{}: `{END}` is missing: add it on a line of its own, before anything else begins",
            place()
        );
        let parts: Vec<_> = parts.split("; ").collect();
        let content = content(name, &parts).with_context(place)?;
        out = out + "\n" + &content + "\n\n" + END + "\n";
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use anyhow::{Result, bail};

    use super::filled;

    fn listed(text: &str) -> Result<String> {
        filled("docs/a.md", text, |name, parts| {
            Ok(format!("{name}: {}", parts.join("|")))
        })
    }

    fn refusal(text: &str) -> String {
        format!("{:#}", listed(text).unwrap_err())
    }

    #[test]
    fn only_text_between_marks_is_replaced() {
        let text =
            "a\n<!-- results quick Goodput; Memory of all -->\nold\n\nold\n<!-- end -->\nb `<!-- end -->`\n";
        let new = "a\n<!-- results quick Goodput; Memory of all -->\n\nquick: Goodput|Memory of all\n\n<!-- end -->\n\
                   b `<!-- end -->`\n";
        assert_eq!(listed(text).unwrap(), new);
        assert_eq!(listed(new).unwrap(), new, "again");
        assert_eq!(listed("no newline").unwrap(), "no newline");
    }

    #[test]
    fn a_missing_end_is_named_with_its_place() {
        let missing = "docs/a.md:2: `<!-- end -->` is missing: add it on a line of its own, before anything else begins";
        assert_eq!(refusal("a\n<!-- results quick Goodput -->\nold\n"), missing);
        let next = "a\n<!-- results quick Goodput -->\n<!-- results quick Memory -->\n<!-- end -->\n";
        assert_eq!(refusal(next), missing);
    }

    #[test]
    fn a_mark_without_its_counterpart_is_named_with_its_line() {
        assert_eq!(
            refusal("\n\n<!-- end -->\n"),
            "docs/a.md:3: nothing begins before this `<!-- end -->`: remove it"
        );
        assert_eq!(
            refusal("<!-- results quick -->\n<!-- end -->\n"),
            "docs/a.md:1: write `<!-- results NAME PART; PART -->` on a line of its own"
        );
        let unknown = filled(
            "README.md",
            "<!-- results quick A -->\n<!-- end -->\n",
            |name, _| bail!("no {name}"),
        );
        assert_eq!(format!("{:#}", unknown.unwrap_err()), "README.md:1: no quick");
    }
}
