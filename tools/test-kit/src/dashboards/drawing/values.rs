//! Single numbers, and numbers as text.

use maud::{Markup, html};

use super::{Curve, Panel, Size, TITLE, cut};

const PREFIXES: [(f64, &str); 7] = [
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
];

/// The unit that Grafana shows numbers of a panel in.
pub(super) fn unit(panel: &Panel) -> &str {
    panel.field_config["defaults"]["unit"]
        .as_str()
        .unwrap_or_default()
}

/// A number in one of Grafana's units.
pub(super) fn written(value: f64, unit: &str) -> String {
    if unit == "percentunit" {
        return format!("{} %", digits(value * 100.0));
    }
    let suffix = match unit {
        "bps" => "bit/s",
        "bytes" => "B",
        "s" => "s",
        "ops" | "cps" | "pps" => "/s",
        other => other.strip_prefix("suffix:").unwrap_or_default().trim(),
    };
    // Only times are shorter than their unit, and none is counted in thousands of it.
    let is_usual = |factor: f64| factor == 1.0 || (factor < 1.0) == (unit == "s");
    let mut prefixes = PREFIXES.into_iter().filter(|(factor, _)| is_usual(*factor));
    let (factor, prefix) = prefixes
        .find(|(factor, _)| value.abs() >= *factor)
        .unwrap_or((1.0, ""));
    let text = format!("{} {prefix}{suffix}", digits(value / factor));
    text.trim_end().to_owned()
}

/// Three digits, or all of a whole number.
fn digits(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn last(curve: &Curve) -> f64 {
    curve.points.last().map_or(0.0, |(_, value)| *value)
}

/// Numbers beside each other, with their names.
pub(super) fn stat(panel: &Panel, curves: &[Curve], size: Size) -> Markup {
    let width = size.width / curves.len().max(1) as f64;
    let is_name_only = panel.options["textMode"] == "name";
    let texts = curves.iter().map(|curve| match is_name_only {
        true => (curve.name.clone(), String::new()),
        false => (written(last(curve), unit(panel)), cut(&curve.name, width)),
    });
    let middle = size.height / 2.0;
    html! {
        @for (i, (large, small)) in texts.enumerate() {
            @let x = (i as f64 + 0.5) * width;
            text x=(x) y=(middle + 16.0) font-size="20" text-anchor="middle" { (large) }
            text x=(x) y=(middle + 32.0) text-anchor="middle" { (small) }
        }
    }
}

/// Numbers below each other, as bars.
pub(super) fn bars(panel: &Panel, curves: &[Curve], size: Size) -> Markup {
    let most = curves.iter().map(last).fold(f64::MIN_POSITIVE, f64::max);
    let height = ((size.height - TITLE) / curves.len().max(1) as f64).min(44.0);
    let width = size.width - 110.0;
    html! {
        @for (i, curve) in curves.iter().enumerate() {
            @let y = TITLE + i as f64 * height;
            text x="8" y=(y + 12.0) { (cut(&curve.name, size.width)) }
            rect x="8" y=(y + 16.0) width=(format!("{:.1}", last(curve) / most * width)) height=(height - 22.0)
                fill="#0072b2" {}
            text x=(size.width - 8.0) y=(y + height - 8.0) text-anchor="end" { (written(last(curve), unit(panel))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::written;

    #[test]
    fn numbers_have_prefixes_and_units() {
        for (value, unit, expected) in [
            (1_234_567.0, "bps", "1.23 Mbit/s"),
            (0.000_25, "s", "250 µs"),
            (75.5, "s", "75.5 s"),
            (3600.0, "s", "3600 s"),
            (0.5, "percentunit", "50 %"),
            (12.0, "short", "12"),
            (0.25, "suffix: cores", "0.25 cores"),
            (0.0, "ops", "0 /s"),
        ] {
            assert_eq!(written(value, unit), expected);
        }
    }
}
