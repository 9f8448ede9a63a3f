//! Types that a program writes and reads as JSON.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

/// JSON of this type in the bytes, if it is there. Panics if it does not read back.
pub(crate) fn json<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let text = serde_json::to_string(&value).expect("what was JSON is JSON again");
    let again: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(again, value, "{text}");
    Some(value)
}
