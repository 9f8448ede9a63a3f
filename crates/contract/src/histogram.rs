//! Distributions that merge exactly over nodes and trials.

use std::{fmt::Display, io::Read, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::COUNT_MAX;

/// Significant digits of every histogram.
const DIGITS: u8 = 3;

/// The first bytes of the compressed and of the plain encoding.
const COMPRESSED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
const PLAIN: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();

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
    Recorder::new(DIGITS).expect("three significant digits are allowed")
}

/// Records a time.
pub fn record(recorder: &mut Recorder, time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    recorder
        .record(nanoseconds)
        .expect("a recorder that resizes takes every value");
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
    /// Length of the text, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.0.len()
    }

    /// The recorder that this text was made from.
    ///
    /// The writer of the text does not decide how much memory this takes. The text is inflated within a
    /// limit, and must have the digits and the least value of [`recorder`].
    ///
    /// # Errors
    ///
    /// If the text is too long, or is not a histogram of nanoseconds with three significant digits.
    pub fn decode(&self) -> Result<Recorder, InvalidHistogram> {
        if self.0.len() > ENCODED_MAX {
            return Err(invalid(format!("it has more than {ENCODED_MAX} bytes")));
        }
        let bytes = STANDARD.decode(&self.0).map_err(invalid)?;
        let plain = inflated(&bytes)?;
        check_header(&plain)?;
        let recorder: Recorder = Deserializer::new()
            .deserialize(&mut plain.as_slice())
            .map_err(invalid)?;
        match recorder.len() {
            ..=COUNT_MAX => Ok(recorder),
            count => Err(invalid(format!("it has {count} values"))),
        }
    }
}

/// Bytes of the header of V2, before the counts.
const HEADER: usize = 40;

/// Most bytes of a plain histogram with three significant digits: a count of at most nine bytes for each of
/// 1024 values in each of at most 55 powers of two, and for the first 1024 values.
const PLAIN_MAX: usize = HEADER + 9 * 56 * 1024;

/// Most characters of the text: the plain histogram in base64, which no compression makes longer than that.
const ENCODED_MAX: usize = PLAIN_MAX / 3 * 4 + 1024;

/// The content behind the header of the compressed encoding: a cookie and a length, four bytes each. The
/// length repeats that of the text.
fn inflated(compressed: &[u8]) -> Result<Vec<u8>, InvalidHistogram> {
    let (_, deflated) = compressed
        .split_first_chunk::<8>()
        .filter(|(header, _)| header.starts_with(&COMPRESSED))
        .ok_or_else(|| invalid("it does not begin as a compressed one"))?;
    let mut plain = vec![];
    let most = PLAIN_MAX as u64;
    ZlibDecoder::new(deflated)
        .take(most + 1)
        .read_to_end(&mut plain)
        .map_err(invalid)?;
    match plain.len() > PLAIN_MAX {
        true => Err(invalid(format!("it has more than {PLAIN_MAX} bytes"))),
        false => Ok(plain),
    }
}

/// Checks what hdrhistogram allocates memory for before it reads the counts, and what it cannot negate.
fn check_header(plain: &[u8]) -> Result<(), InvalidHistogram> {
    let (header, counts) = plain
        .split_first_chunk::<HEADER>()
        .filter(|(header, _)| header.starts_with(&PLAIN))
        .ok_or_else(|| invalid("it has no header"))?;
    let short = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let low = u64::from(short(16)) << 32 | u64::from(short(20));
    if short(4) as usize != counts.len() {
        return Err(invalid(format!(
            "it announces {} bytes, and has {}",
            short(4),
            counts.len()
        )));
    }
    if (short(12), low) != (DIGITS.into(), 1) {
        return Err(invalid(format!("it needs {DIGITS} significant digits from 1 on")));
    }
    // The zigzag code of the least i64, which has no negative.
    if counts.windows(9).any(|window| window == [u8::MAX; 9]) {
        return Err(invalid("it skips more values than there are"));
    }
    Ok(())
}

fn invalid(error: impl Display) -> InvalidHistogram {
    InvalidHistogram(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    /// The text of these plain bytes.
    fn text(plain: &[u8]) -> Histogram {
        let mut deflated = ZlibEncoder::new(vec![], Compression::best());
        deflated.write_all(plain).expect("memory takes all");
        let deflated = deflated.finish().expect("memory takes all");
        let length = u32::try_from(deflated.len()).expect("it is short");
        let bytes = [&COMPRESSED[..], &length.to_be_bytes(), &deflated].concat();
        Histogram(STANDARD.encode(bytes))
    }

    fn header(announced: u32, digits: u32, low: u64, high: u64) -> Vec<u8> {
        let mut plain = PLAIN.to_vec();
        plain.extend(announced.to_be_bytes());
        plain.extend([0; 4]);
        plain.extend(digits.to_be_bytes());
        plain.extend(low.to_be_bytes());
        plain.extend(high.to_be_bytes());
        plain.extend(1_f64.to_be_bytes());
        plain
    }

    #[test]
    fn a_recorder_is_the_same_after_conversion_to_text_and_back() {
        let mut full = recorder();
        for power in 0..64 {
            for value in (0..2048_u64).map(|value| value << power) {
                full.record(value).expect("it resizes");
            }
        }
        full.record_n(u64::MAX, 1 << 50).expect("it resizes");
        for recorder in [recorder(), full] {
            let text = Histogram::from(&recorder);
            assert_eq!(Histogram::from(&text.decode().expect("its own text")), text);
        }
    }

    #[test]
    fn the_writer_of_a_histogram_does_not_decide_about_memory() {
        let four_gibibytes = "HISTFAAAABt4nJNpmSz8HwgYIIAZSjNCaSb7DxAGAMOhBng=";
        let bomb = [header(64 << 20, 3, 1, 2), vec![0; 64 << 20]].concat();
        for (histogram, words) in [
            (Histogram(four_gibibytes.into()), "announces 4294967295 bytes"),
            (text(&bomb), "more than 516136 bytes"),
            (Histogram("A".repeat(ENCODED_MAX + 4)), "more than"),
            (text(&header(0, 5, 1, u64::MAX)), "3 significant digits"),
            (text(&header(0, 3, 2, u64::MAX)), "3 significant digits"),
            (text(&header(0, 3, 1, 2)[..39]), "no header"),
            (text(&[header(9, 3, 1, 2), vec![255; 9]].concat()), "skips more"),
            (Histogram(STANDARD.encode("HIST")), "compressed"),
            (Histogram("é".into()), "Invalid"),
        ] {
            let refused = histogram.decode().expect_err(words).to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn a_histogram_of_more_values_than_can_be_added_up_is_refused() {
        let mut much = recorder();
        much.record_n(1, COUNT_MAX).expect("it resizes");
        Histogram::from(&much).decode().expect("the most");
        much.record(1).expect("it resizes");
        let refused = Histogram::from(&much).decode().expect_err("one more").to_string();
        assert!(refused.contains("9007199254740993 values"), "{refused}");
    }
}
