//! Entry points of fuzz targets: parsers of bytes that another program wrote.

use perfrun_contract::node::TrialRequest;

use crate::{
    request,
    standalone::address::{dial, listen},
};

/// Whether a node accepts a request for a trial.
pub fn accepts(request: &TrialRequest) -> bool {
    request::check(request).is_ok()
}

/// An address as people type it.
pub fn address(text: &str) {
    perfrun_stack::fuzzing::address(text);
    let _ = listen(text, None);
    let _ = dial(text, None);
}
