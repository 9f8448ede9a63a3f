//! The metrics, labels and variables in an expression, without a parser of PromQL: Prometheus itself checks
//! the syntax.

use std::collections::{BTreeMap, BTreeSet};

/// Values of variables, including those that Grafana defines for every dashboard.
#[derive(Clone, Debug, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Grafana's variables for a panel with points `step` apart, over data scraped every `interval`, all in
    /// seconds.
    pub fn of_time(range: f64, step: f64, interval: f64) -> Self {
        let mut variables = Self::default();
        let seconds = |seconds: f64| format!("{}s", seconds.ceil());
        variables.set("__range", &seconds(range));
        variables.set("__interval", &seconds(step));
        variables.set("__rate_interval", &seconds((step + interval).max(4.0 * interval)));
        variables
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// The expression with values in place of variables, or a message that names an unknown variable.
    pub fn substitute(&self, expression: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut rest = expression;
        while let Some((before, after)) = rest.split_once('$') {
            let length = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
            let (name, after) = after.split_at(length);
            let value = self.0.get(name);
            let value = value.ok_or_else(|| format!("unknown variable ${name} in {expression}"))?;
            text += before;
            text += value;
            rest = after;
        }
        Ok(text + rest)
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Names of perfrun's metrics in a text.
pub fn metrics_of(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !is_word(c));
    words
        .filter(|word| word.starts_with("perfrun_"))
        .map(str::to_owned)
        .collect()
}

/// Labels that a legend names: `{{label}}`.
pub fn labels_of_legend(legend: &str) -> Vec<&str> {
    let parts = legend.split("{{").skip(1);
    parts
        .filter_map(|part| Some(part.split_once("}}")?.0.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_by_their_whole_names() {
        let mut variables = Variables::of_time(60.0, 1.0, 15.0);
        variables.set("run", "a-run");
        let expression = "rate(x{run=~\"$run\"}[$__rate_interval]) / $__interval";
        assert_eq!(
            variables.substitute(expression).unwrap(),
            "rate(x{run=~\"a-run\"}[60s]) / 1s"
        );
        variables.substitute("x{run=\"$runs\"}").unwrap_err();
    }

    #[test]
    fn metrics_and_labels_are_found() {
        let found = metrics_of("sum(rate(perfrun_a_total{x=\"perfrun\"}[1m])) / perfrun_b");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["perfrun_a_total", "perfrun_b"]
        );
        assert_eq!(labels_of_legend("{{ role }}, {{stack}}"), ["role", "stack"]);
    }
}
