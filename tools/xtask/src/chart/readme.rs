//! Generates the chart's README: what a user has to know, and the comments in values.yaml as tables.
//!
//! The parser reads only our values.yaml: keys with their comment directly above, lists and maps of values on
//! one line, and a comment at the top that ends with an empty line.

use std::{collections::BTreeSet, fmt::Write};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// What stands above the tables.
const HEAD: &str = include_str!("readme.md");

const TABLE: &str = "\n| value | default | |\n|---|---|---|\n";

/// A key with its comment.
struct Entry {
    path: String,
    /// `None` if the key only has keys below it.
    default: Option<String>,
    comment: String,
}

/// Generates the README: a table of the values on their own, and one for each group of values. Fails if a
/// value has no comment, or if the schema names a value that does not exist.
pub(super) fn readme(values: &str, schema: &str) -> Result<String> {
    let (_, values) = values
        .split_once("\n\n")
        .context("values.yaml begins with no comment")?;
    let entries = entries(values)?;
    let schema: Value = serde_json::from_str(schema).context("unable to read values.schema.json")?;
    let known: BTreeSet<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    if let Some(unknown) = paths(&schema, "")
        .into_iter()
        .find(|path| !known.contains(path.as_str()))
    {
        bail!("values.schema.json has {unknown}, which values.yaml has not");
    }
    let mut text = format!(
        "<!-- By `cargo xtask crds`, from tools/xtask/src/chart/readme.md and the comments in values.yaml. -->\n{HEAD}{TABLE}"
    );
    let is_alone = |entry: &Entry| !entry.path.contains('.') && entry.default.is_some();
    let (alone, grouped): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_alone(entry));
    text.extend(alone.into_iter().map(row));
    for entry in grouped {
        if entry.path.contains('.') {
            text.push_str(&row(entry));
        } else {
            write!(text, "\n### `{}`\n\n{}\n{TABLE}", entry.path, entry.comment)?;
        }
    }
    ensure!(
        !text.contains("]("),
        "the chart's README.md has a link, which leads nowhere outside of the repository: name the page"
    );
    Ok(text)
}

fn row(entry: &Entry) -> String {
    let default = entry.default.as_ref().map(|default| format!("`{default}`"));
    let comment = entry.comment.replace('|', "\\|");
    format!(
        "| `{}` | {} | {comment} |\n",
        entry.path,
        default.unwrap_or_default()
    )
}

fn entries(values: &str) -> Result<Vec<Entry>> {
    let mut entries = vec![];
    let mut above: Vec<String> = vec![];
    let mut comment: Vec<&str> = vec![];
    for line in values.lines().filter(|line| !line.is_empty()) {
        let content = line.trim_start();
        if content.starts_with('#') {
            comment.push(uncommented(content));
            continue;
        }
        let (key, value) = content
            .split_once(':')
            .with_context(|| format!("values.yaml: not a key: {line}"))?;
        above.truncate((line.len() - content.len()) / 2);
        above.push(key.to_owned());
        let path = above.join(".");
        ensure!(!comment.is_empty(), "values.yaml: {path} has no comment");
        entries.push(Entry {
            path,
            default: Some(value.trim().to_owned()).filter(|value| !value.is_empty()),
            comment: comment.join(" "),
        });
        comment.clear();
    }
    Ok(entries)
}

fn uncommented(line: &str) -> &str {
    let text = line.trim_start_matches('#');
    text.strip_prefix(' ').unwrap_or(text)
}

/// Values that the schema allows by name. `resources` and similar values have fields of Kubernetes and count
/// as one value.
fn paths(schema: &Value, prefix: &str) -> Vec<String> {
    const KUBERNETES: &[&str] = &["resources", "affinity"];
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut all = vec![];
    for (name, schema) in properties {
        let path = format!("{prefix}{name}");
        if !KUBERNETES.contains(&path.as_str()) {
            all.extend(paths(schema, &format!("{path}.")));
        }
        all.push(path);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::readme;

    const VALUES: &str = "\
# All about it.

# How many.
replicas: 2
# The image.
image:
  # Its
  # name.
  repository: a|b
# Where.
affinity: {}
";

    #[test]
    fn every_value_is_in_a_table_with_its_default_and_its_comment() {
        let text = readme(VALUES, "{}").unwrap();
        let (_, tables) = text.split_once("\n## Values\n").unwrap();
        assert_eq!(
            tables,
            "\n| value | default | |\n|---|---|---|\n\
             | `replicas` | `2` | How many. |\n\
             | `affinity` | `{}` | Where. |\n\
             \n### `image`\n\nThe image.\n\
             \n| value | default | |\n|---|---|---|\n\
             | `image.repository` | `a|b` | Its name. |\n"
        );
    }

    #[test]
    fn a_link_is_refused() {
        let error = readme("# Top.\n\n# See [a](b.md).\nreplicas: 2\n", "{}").unwrap_err();
        assert!(error.to_string().contains("name the page"), "{error}");
    }

    #[test]
    fn a_value_without_a_comment_and_a_schema_with_more_values_are_noticed() {
        let error = |values: &str, schema: &str| readme(values, schema).unwrap_err().to_string();
        assert_eq!(
            error("# Top.\n\nreplicas: 2\n", "{}"),
            "values.yaml: replicas has no comment"
        );
        let schema = r#"{"properties": {"image": {"properties": {"repository": {}, "tag": {}}}}}"#;
        assert_eq!(
            error(VALUES, schema),
            "values.schema.json has image.tag, which values.yaml has not"
        );
    }
}
