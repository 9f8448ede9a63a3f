//! What fuzz targets read foreign bytes with.

use perfrun_contract::{matrix::Transport, node::TrialRequest};

use crate::{
    request,
    stack::{self, address::socket},
    standalone::address::{dial, listen},
};

/// Whether a node accepts a request for a trial.
pub fn accepts(request: &TrialRequest) -> bool {
    request::check(request).is_ok()
}

/// An address as a conductor passes it on, or as people type it. Panics if it is another one after
/// conversion to text and back.
pub fn address(text: &str) {
    for transport in [Transport::Tcp, Transport::QuicV1] {
        if let Ok(known) = socket(transport, text) {
            let again = stack::socket_address(transport, known);
            assert_eq!(socket(transport, &again).ok(), Some(known), "{text}");
        }
    }
    #[cfg(feature = "commonware")]
    {
        use crate::stack::commonware::address::Address;

        if let Ok(known) = Address::parse(text) {
            assert_eq!(Address::parse(&known.to_string()).ok(), Some(known), "{text}");
        }
    }
    let _ = listen(text, None);
    let _ = dial(text, None);
}
