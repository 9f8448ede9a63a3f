//! Comments and texts for people in Rust source.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

use crate::{literal, page::Page};

/// Comments, and string literals outside of tests that are sentences. `expect("…")` states a proof, not a
/// message.
pub(crate) fn page(source: &str, is_test: bool) -> Page {
    let mut reader = Reader::default();
    let mut comments = Comments::default();
    let (mut offset, mut line) = (0, 1);
    for token in tokenize(source, FrontmatterAllowed::No) {
        let text = &source[offset..offset + token.len as usize];
        match token.kind {
            TokenKind::LineComment { .. } => comments.line(&mut reader.page, line, text),
            TokenKind::BlockComment { .. } => comments.block(&mut reader.page, line, text),
            TokenKind::Whitespace => {}
            kind => {
                if let TokenKind::Literal { kind, .. } = kind
                    && !is_test
                    && !reader.is_in_test()
                    && !reader.is_proof()
                {
                    reader.literal(kind, line, text);
                }
                reader.code(kind, text);
            }
        }
        line += text.matches('\n').count();
        offset += text.len();
    }
    reader.page
}

/// Joins line comments that follow each other into one paragraph.
#[derive(Default)]
struct Comments {
    last: Option<(usize, &'static str)>,
}

impl Comments {
    fn line(&mut self, page: &mut Page, line: usize, text: &str) {
        let marker = ["///", "//!", "//"]
            .into_iter()
            .find(|marker| text.starts_with(marker))
            .unwrap_or_default();
        if self.last != Some((line - 1, marker)) {
            page.end_paragraph();
        }
        self.last = Some((line, marker));
        let text = &text[marker.len()..];
        page.push(line, text.strip_prefix(' ').unwrap_or(text));
        page.mark_comment(line);
    }

    fn block(&mut self, page: &mut Page, line: usize, text: &str) {
        self.last = None;
        page.end_paragraph();
        let text = text
            .trim_start_matches(['/', '*', '!'])
            .trim_end_matches(['/', '*']);
        for (index, text) in text.lines().enumerate() {
            page.push(line + index, text.trim_start_matches([' ', '*']));
            page.mark_comment(line + index);
        }
        page.end_paragraph();
    }
}

/// Knows where in the code it is, as far as that decides which literals are texts.
#[derive(Default)]
struct Reader {
    page: Page,
    /// What opened each delimiter that is still open: the name before it, or nothing.
    open: Vec<String>,
    /// The last name, and what has followed it.
    name: String,
    tail: String,
    /// `#[cfg(test)]` has been read, and the item it stands before has not begun.
    awaits_test: bool,
    /// How many delimiters were open where a module of tests began.
    test_since: Option<usize>,
}

impl Reader {
    fn is_in_test(&self) -> bool {
        self.test_since.is_some()
    }

    /// Whether the next literal is what an `expect` asserts.
    fn is_proof(&self) -> bool {
        self.tail == "(" && self.open.last().is_some_and(|name| name == "expect")
    }

    fn literal(&mut self, kind: LiteralKind, line: usize, text: &str) {
        let lines = match kind {
            LiteralKind::Str { terminated: true } => literal::unescape(text.trim_matches('"')),
            LiteralKind::RawStr {
                n_hashes: Some(hashes),
            } => {
                let fence = usize::from(hashes) + 1;
                literal::raw(&text[1 + fence..text.len() - fence])
            }
            _ => return,
        };
        if literal::is_prose(&lines) {
            self.page.end_paragraph();
            for (below, text) in lines {
                self.page.push(line + below, &literal::markdown(&text));
            }
            self.page.end_paragraph();
        }
    }

    fn code(&mut self, kind: TokenKind, text: &str) {
        match kind {
            TokenKind::Ident => {
                let is_test = text == "test" && self.name == "cfg" && self.tail == "(";
                self.awaits_test |= is_test;
                text.clone_into(&mut self.name);
                self.tail.clear();
                return;
            }
            TokenKind::OpenParen | TokenKind::OpenBracket | TokenKind::OpenBrace => {
                if kind == TokenKind::OpenBrace && self.awaits_test {
                    self.awaits_test = false;
                    self.test_since.get_or_insert(self.open.len());
                }
                let is_call = matches!(&self.tail[..], "" | "!");
                self.open
                    .push(if is_call { self.name.clone() } else { String::new() });
                self.tail.clear();
            }
            TokenKind::CloseParen | TokenKind::CloseBracket | TokenKind::CloseBrace => {
                self.open.pop();
                if self.test_since.is_some_and(|depth| depth >= self.open.len()) {
                    self.test_since = None;
                }
            }
            TokenKind::Semi => self.awaits_test = false,
            _ => {}
        }
        self.tail.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn comments_become_paragraphs() {
        let source = "//! Owns\n//! links.\n\n/// A link.\n///\n/// More.\nfn a() {} // Why not.\n/* One\n * block. */\n";
        let page = page(source, false);
        assert_eq!(
            page.text(),
            "Owns\nlinks.\n\nA link.\n\nMore.\n\nWhy not.\n\nOne\nblock.\n\n"
        );
        assert_eq!(page.source_line(1), Some(1));
        assert_eq!(page.source_line(8), Some(7));
        assert_eq!(page.source_line(11), Some(9));
    }

    #[test]
    fn messages_are_read_and_proofs_are_not() {
        let source = r##"
            #[error("failed to read {path}")]
            bail!("no node is ready");
            let proof = x.expect("a run has trials");
            let key = "trial-duration";
            let rule = Rule::new("self.rate > 0 || self.delay > 0").message("set a rate or a delay");
            let raw = r#"say "run" and go"#;
            let long = "a first line \
                        and a second";
            #[expect(dead_code, reason = "read by the next release")]
        "##;
        let page = page(source, false);
        assert_eq!(
            page.text(),
            "failed to read `x`\n\nno node is ready\n\nset a rate or a delay\n\nsay \"run\" and go\n\n\
             a first line\nand a second\n\nread by the next release\n\n"
        );
        assert_eq!(page.source_line(9), Some(8));
        assert_eq!(page.source_line(10), Some(9));
    }

    #[test]
    fn texts_of_tests_are_not_read_but_their_comments_are() {
        let source = "#[cfg(test)]\nuse a;\nfn a() { b(\"one two three\") }\n#[cfg(test)]\nmod tests {\n  // Why.\n  \
                      fn c() { d(\"four five six\") }\n}\nconst E: &str = \"seven eight nine\";\n";
        assert_eq!(
            page(source, false).text(),
            "one two three\n\nWhy.\n\nseven eight nine\n\n"
        );
        assert_eq!(page(source, true).text(), "Why.\n");
    }
}
