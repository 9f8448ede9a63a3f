//! Comments and string literals of Rust.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

use crate::page::Page;

/// Literals of tests, which end a file, are left out: they repeat what is expected of others.
pub(crate) fn page(source: &str, is_test: bool) -> Page<'_> {
    let tests = source.find("#[cfg(test)]\nmod tests {");
    let messages_end = if is_test { 0 } else { tests.unwrap_or(source.len()) };
    let mut page = Page::new(source);
    let (mut offset, mut line) = (0, 0);
    for token in tokenize(source, FrontmatterAllowed::No) {
        let text = &source[offset..offset + token.len as usize];
        match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => page.comment(line, text),
            TokenKind::Literal {
                kind: LiteralKind::Str { .. } | LiteralKind::RawStr { .. },
                ..
            } if offset < messages_end => page.message(
                line,
                text.trim_start_matches('r').trim_matches('#').trim_matches('"'),
            ),
            _ => {}
        }
        line += text.matches('\n').count();
        offset += text.len();
    }
    page
}
