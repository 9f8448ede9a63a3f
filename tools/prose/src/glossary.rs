//! docs/glossary.md as rules: the words that its last column forbids.

use std::fmt::Write;

use anyhow::{Result, ensure};

/// A style for Vale, made of the table's rows `| **word** | meaning | `not`, `these` |`.
pub(crate) fn style(glossary: &str) -> Result<String> {
    let mut style = String::from(
        "extends: substitution\nmessage: \"write '%s' instead of '%s' (docs/glossary.md)\"\nlevel: error\nignorecase: true\n\
         swap:\n",
    );
    let mut count = 0;
    for (word, forbidden) in glossary.lines().filter_map(row) {
        for wrong in forbidden {
            count += 1;
            writeln!(style, "  '{}': '{}'", quoted(wrong), quoted(word))?;
        }
    }
    ensure!(count > 0, "docs/glossary.md has no table of words");
    Ok(style)
}

/// The word of a row and what not to write.
fn row(line: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let mut cells = line
        .strip_prefix('|')?
        .strip_suffix('|')?
        .split('|')
        .map(str::trim);
    let word = cells.next()?.strip_prefix("**")?.strip_suffix("**")?;
    let forbidden = cells.nth(1)?;
    Some((word, forbidden.split('`').skip(1).step_by(2)))
}

fn quoted(text: &str) -> String {
    text.replace('\'', "''")
}

#[cfg(test)]
mod tests {
    use super::style;

    #[test]
    fn every_forbidden_word_is_a_rule() {
        let glossary = "| word | meaning | not |\n|---|---|---|\n| **Kubernetes node** | A machine. | `k8s node`, `kube's node` |\n\
                        | **run** | One document. | |\n";
        let style = style(glossary).unwrap();
        let rules: Vec<_> = style
            .lines()
            .skip_while(|line| *line != "swap:")
            .skip(1)
            .collect();
        assert_eq!(
            rules,
            [
                "  'k8s node': 'Kubernetes node'",
                "  'kube''s node': 'Kubernetes node'"
            ]
        );
    }

    #[test]
    fn an_empty_glossary_is_refused() {
        assert!(style("# Glossary\n").is_err());
    }
}
