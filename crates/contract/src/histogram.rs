//! Distributions that merge exactly over nodes and trials.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An HDR histogram in text: base64 of the compressed V2 encoding (HdrHistogram's own interchange format).
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Histogram(String);

/// The recorder behind a [`Histogram`]: nanoseconds, three significant digits.
pub type Recorder = hdrhistogram::Histogram<u64>;

/// A text that is not a histogram.
#[derive(Debug, Error)]
#[error("unable to read a histogram: {0}")]
pub struct InvalidHistogram(String);

/// An empty recorder of nanoseconds.
pub fn recorder() -> Recorder {
    Recorder::new(3).expect("three significant digits are allowed")
}

impl From<&Recorder> for Histogram {
    fn from(recorder: &Recorder) -> Self {
        let mut bytes = vec![];
        V2DeflateSerializer::new()
            .serialize(recorder, &mut bytes)
            .expect("writing to memory cannot fail");
        Self(STANDARD.encode(bytes))
    }
}

impl Histogram {
    /// The recorder that this text was made from.
    pub fn decode(&self) -> Result<Recorder, InvalidHistogram> {
        let bytes = STANDARD
            .decode(&self.0)
            .map_err(|error| InvalidHistogram(error.to_string()))?;
        Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| InvalidHistogram(error.to_string()))
    }
}
