//! What a name that does not exist was meant to be.

/// The least similarity (Jaro-Winkler) of a name that is suggested.
const SIMILARITY_MIN: f64 = 0.8;

/// The shortest part of a name that is suggested for its part.
const PART_MIN: usize = 4;

/// The most similar of the known names, or the first that contains this one. `None` if there is neither.
/// Capitals make no difference.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let known: Vec<(String, &str)> = known
        .into_iter()
        .map(|known| (known.to_lowercase(), known))
        .collect();
    let alike = known
        .iter()
        .map(|(lowercase, known)| (strsim::jaro_winkler(&name, lowercase), *known))
        .filter(|(likeness, _)| *likeness >= SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let containing = || {
        let mut known = known.iter().filter(|_| name.len() >= PART_MIN);
        known.find(|(lowercase, _)| lowercase.contains(&name))
    };
    alike
        .map(|(_, known)| known)
        .or_else(|| containing().map(|(_, known)| *known))
}

/// The question whether the nearest name was meant, as the end of a message. Empty if no name is near.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_and_a_part_of_a_name_are_recognised() {
        let known = [
            "uploadSeconds",
            "uploadGoodput",
            "downloadGoodput",
            "roundTripP50",
        ];
        for (name, expected) in [
            ("uploadgoodputs", Some("uploadGoodput")),
            ("goodput", Some("uploadGoodput")),
            ("roundtrip50", Some("roundTripP50")),
            ("p50", None),
            ("cpu", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
        assert_eq!(did_you_mean("goodput", known), "; did you mean uploadGoodput?");
        assert_eq!(did_you_mean("cpu", known), "");
    }
}
