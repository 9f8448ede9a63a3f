//! Datagrams of the probe. Numbers are big-endian, and padding follows the fields.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..4 | `pfLP` | |
//! | 4 | version | 1 |
//! | 5 | kind | see [`Message`] |
//! | 6..8 | | 0 |
//! | 8..16 | session | chosen by the client |
//! | 16..20 | number | of the datagram among its kind, from 0; of `Fill`, `Query` and `Report`: 0 |
//! | 20.. | fields of the kind | |
//!
//! | kind | from | fields |
//! |---|---|---|
//! | 1 echo | client | 20..28: the client's clock, which the server does not interpret |
//! | 2 echoed | server | 20..28: the clock of the echo |
//! | 3 fill | client | none |
//! | 4 query | client | none |
//! | 5 report | server | 20..24: echoes received, each counted once; 24..28: fills received; 28..36: bytes of all but the first; 36..44: nanoseconds from the first to the last |
//!
//! The server sends one datagram for each one that it receives, never a larger one, and only to its sender.

use perfrun_link::probe::{DATAGRAM_BYTES, ECHOES_MAX};

/// The shortest datagram that the server replies to: as long as the longest reply.
pub(crate) const LENGTH: usize = DATAGRAM_BYTES as usize;

const MAGIC: [u8; 4] = *b"pfLP";
const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Datagram {
    pub(crate) session: u64,
    pub(crate) number: u32,
    pub(crate) message: Message,
}

/// The content of a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Message {
    Echo { clock: u64 },
    Echoed { clock: u64 },
    Fill,
    Query,
    Report(Counts),
}

/// The server's counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) echoes: u32,
    pub(crate) fills: u32,
    /// Bytes on the wire, without those of the first datagram.
    pub(crate) fill_bytes: u64,
    pub(crate) fill_nanoseconds: u64,
}

impl Datagram {
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[8..16].copy_from_slice(&self.session.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_be_bytes());
        bytes[5] = match self.message {
            Message::Echo { clock } => {
                bytes[20..28].copy_from_slice(&clock.to_be_bytes());
                1
            }
            Message::Echoed { clock } => {
                bytes[20..28].copy_from_slice(&clock.to_be_bytes());
                2
            }
            Message::Fill => 3,
            Message::Query => 4,
            Message::Report(counts) => {
                bytes[20..24].copy_from_slice(&counts.echoes.to_be_bytes());
                bytes[24..28].copy_from_slice(&counts.fills.to_be_bytes());
                bytes[28..36].copy_from_slice(&counts.fill_bytes.to_be_bytes());
                bytes[36..44].copy_from_slice(&counts.fill_nanoseconds.to_be_bytes());
                5
            }
        };
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<LENGTH>()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let short = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(short(at)) << 32 | u64::from(short(at + 4));
        let message = match bytes[5] {
            1 => Message::Echo { clock: long(20) },
            2 => Message::Echoed { clock: long(20) },
            3 => Message::Fill,
            4 => Message::Query,
            5 => Message::Report(Counts {
                echoes: short(20),
                fills: short(24),
                fill_bytes: long(28),
                fill_nanoseconds: long(36),
            }),
            _ => return None,
        };
        Some(Self {
            session: long(8),
            number: short(16),
            message,
        })
    }
}

/// The numbers that have arrived, each counted once: links may duplicate.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumberSet {
    bits: Vec<u64>,
    count: u32,
}

impl NumberSet {
    /// Returns true the first time.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        // A peer must not determine how much memory is used.
        if number >= ECHOES_MAX {
            return false;
        }
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let first = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.count += u32::from(first);
        first
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_decoded_as_they_were_encoded() {
        let counts = Counts {
            echoes: 1,
            fills: 2,
            fill_bytes: u64::MAX - 3,
            fill_nanoseconds: 4 << 33,
        };
        let messages = [
            Message::Echo { clock: 5 << 40 },
            Message::Echoed { clock: 6 },
            Message::Fill,
            Message::Query,
            Message::Report(counts),
        ];
        for message in messages {
            let datagram = Datagram {
                session: 0x0102_0304_0506_0708,
                number: 9,
                message,
            };
            let bytes = datagram.encode();
            assert_eq!(Datagram::decode(&bytes), Some(datagram));
            assert_eq!(Datagram::decode(&bytes[..LENGTH - 1]), None);
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let echo = Datagram {
            session: 0x0102_0304_0506_0708,
            number: 9,
            message: Message::Echo { clock: 10 },
        };
        let mut expected =
            b"pfLP\x01\x01\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x09\0\0\0\0\0\0\0\x0a".to_vec();
        expected.resize(LENGTH, 0);
        assert_eq!(echo.encode().to_vec(), expected);
    }

    #[test]
    fn other_datagrams_are_rejected() {
        let bytes = Datagram {
            session: 1,
            number: 2,
            message: Message::Query,
        }
        .encode();
        for (at, value) in [(0, b'x'), (4, 2), (5, 0), (5, 6)] {
            let mut strange = bytes;
            strange[at] = value;
            assert_eq!(Datagram::decode(&strange), None);
        }
    }

    #[test]
    fn numbers_count_once_and_memory_is_bounded() {
        let mut seen = NumberSet::default();
        assert!(seen.insert(3) && seen.insert(64) && !seen.insert(3));
        assert!(!seen.insert(u32::MAX));
        assert_eq!(seen.count(), 2);
        assert!(seen.bits.len() < 3);
    }
}
