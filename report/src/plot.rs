//! x
/// x
pub fn plots(_: &perfrun_api::results::Results) -> Vec<(String, String)> { vec![] }
