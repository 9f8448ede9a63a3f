//! Pages: what is found at /metrics, in OpenMetrics text.

use std::collections::HashMap;

use prometheus_client::{encoding::text, registry::Registry};

/// What a page is, for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The end of a page.
const END: &str = "# EOF";

/// The page of a registry.
pub fn encode(registry: &Registry) -> String {
    let mut page = String::new();
    text::encode(&mut page, registry).expect("a string takes all that is written to it");
    page
}

/// Several pages as one. Their samples must differ by labels; the description of a family is that of the
/// first page that has it, since a family may be there only once.
pub fn merge<'a>(pages: impl IntoIterator<Item = &'a str>) -> String {
    let mut order: Vec<&str> = vec![];
    let mut families: HashMap<&str, Merged<'_>> = HashMap::new();
    for page in pages {
        let mut family = "";
        let mut is_first = true;
        // `lines` leaves the carriage return of a last line without a line feed.
        let lines = page.lines().map(|line| line.trim_end_matches('\r'));
        for line in lines.filter(|line| *line != END) {
            let described = line.strip_prefix("# ").and_then(|words| words.split(' ').nth(1));
            if let Some(name) = described {
                if name != family {
                    family = name;
                    is_first = !families.contains_key(name);
                    if is_first {
                        order.push(name);
                    }
                }
                if is_first {
                    families.entry(name).or_default().described.push(line);
                }
            } else if !line.is_empty() {
                families.entry(family).or_default().samples.push(line);
            }
        }
    }
    let lines = order
        .iter()
        .filter_map(|name| families.get(name))
        .flat_map(|family| {
            let Merged { described, samples } = family;
            described.iter().chain(samples)
        });
    let mut merged: String = lines.flat_map(|line| [line, "\n"]).collect();
    merged.push_str(END);
    merged.push('\n');
    merged
}

#[derive(Default)]
struct Merged<'a> {
    described: Vec<&'a str>,
    samples: Vec<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_of_a_merged_page_is_described_once_and_has_all_samples() {
        let first = "# HELP a First.\n# TYPE a counter\na_total{n=\"1\"} 1\n# HELP b B.\n# TYPE b gauge\nb{n=\"1\"} 2\n# EOF\n";
        let second = "# HELP b B.\n# TYPE b gauge\nb{n=\"2\"} 3\n# HELP a Second.\n# TYPE a counter\na_total{n=\"2\"} 4\n# HELP c C.\n# TYPE c gauge\nc 5\n# EOF\n";
        assert_eq!(
            merge([first, second]),
            "# HELP a First.\n# TYPE a counter\na_total{n=\"1\"} 1\na_total{n=\"2\"} 4\n# HELP b B.\n# TYPE b gauge\n\
             b{n=\"1\"} 2\nb{n=\"2\"} 3\n# HELP c C.\n# TYPE c gauge\nc 5\n# EOF\n"
        );
    }

    #[test]
    fn merging_no_pages_gives_an_empty_page() {
        assert_eq!(merge([]), "# EOF\n");
        assert_eq!(merge(["# EOF\n", ""]), "# EOF\n");
        assert_eq!(merge(["# EOF\r"]), "# EOF\n");
    }
}
