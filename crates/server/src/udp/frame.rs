//! memcached's frame around the text protocol in datagrams.
//!
//! ```text
//! byte  0          2          4         6          8
//!       +----------+----------+---------+----------+----------------------------
//!       | request  | sequence | total   | reserved | at most 1392 bytes of text        big endian
//!       +----------+----------+---------+----------+----------------------------
//! ```
//! A request is one datagram: its total is 1. The datagrams of an answer have the request's number, count from 0 and
//! all say how many there are.

/// Bytes of the frame's header.
pub const HEADER_BYTES: usize = 8;
/// Bytes of a datagram of an answer, so that no network has to divide it.
const DATAGRAM_BYTES: usize = 1400;
const PAYLOAD_BYTES: usize = DATAGRAM_BYTES - HEADER_BYTES;
/// The most datagrams of one answer: enough for a value of 1 MiB, and far fewer than could be numbered.
const DATAGRAMS_MAX: usize = 1024;
/// Bytes of the longest answer.
pub const ANSWER_BYTES_MAX: usize = DATAGRAMS_MAX * PAYLOAD_BYTES;

/// The number of a request, and its text; `None` if the datagram is not one whole request.
pub fn parse(datagram: &[u8]) -> Option<(u16, &[u8])> {
    match datagram {
        [high, low, _, _, 0, 1, _, _, text @ ..] if !text.is_empty() => Some((u16::from_be_bytes([*high, *low]), text)),
        _ => None,
    }
}

/// An answer on its way out.
pub struct DatagramWriter {
    request: u16,
    text: Vec<u8>,
    /// Datagrams that were sent.
    sent: usize,
}

impl DatagramWriter {
    /// # Panics
    /// If the text is longer than [`ANSWER_BYTES_MAX`].
    pub fn new(request: u16, text: Vec<u8>) -> Self {
        assert!(text.len() <= ANSWER_BYTES_MAX, "a longer answer is replaced by an error");
        Self { request, text, sent: 0 }
    }

    /// Writes the next datagram to `buffer`; false if all were sent.
    pub fn write_next(&self, buffer: &mut Vec<u8>) -> bool {
        let Some(part) = self.text.chunks(PAYLOAD_BYTES).nth(self.sent) else {
            return false;
        };
        let total = self.text.len().div_ceil(PAYLOAD_BYTES);
        buffer.clear();
        for number in [self.request, self.sent as u16, total as u16, 0] {
            buffer.extend_from_slice(&number.to_be_bytes());
        }
        buffer.extend_from_slice(part);
        true
    }

    /// The datagram that was written last is sent.
    pub fn advance(&mut self) {
        self.sent += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(request: u16, text: Vec<u8>) -> Vec<Vec<u8>> {
        let mut answer = DatagramWriter::new(request, text);
        let mut buffer = Vec::new();
        let mut all = Vec::new();
        while answer.write_next(&mut buffer) {
            all.push(buffer.clone());
            answer.advance();
        }
        all
    }

    #[test]
    fn requests_are_one_datagram_with_text() {
        assert_eq!(parse(b"\x12\x34\0\0\0\x01\0\0get a\r\n"), Some((0x1234, &b"get a\r\n"[..])));
        assert_eq!(parse(b"\x12\x34\0\x05\0\x01\x01\x01x"), Some((0x1234, &b"x"[..])));
        for other in [
            &b""[..],
            b"\x12\x34\0\0\0\x01\0",
            b"\x12\x34\0\0\0\x01\0\0",
            b"\0\0\0\0\0\x02\0\0x",
            b"\0\0\0\0\x01\x01\0\0x",
        ] {
            assert_eq!(parse(other), None);
        }
    }

    #[test]
    fn answers_are_numbered_datagrams_within_1400_bytes() {
        assert_eq!(datagrams(0x1234, b"END\r\n".to_vec()), [b"\x12\x34\0\0\0\x01\0\0END\r\n"]);
        assert!(datagrams(7, Vec::new()).is_empty());
        let text: Vec<u8> = (0..ANSWER_BYTES_MAX).map(|at| at as u8).collect();
        let all = datagrams(0xffff, text.clone());
        assert_eq!(all.len(), DATAGRAMS_MAX);
        for (number, datagram) in all.iter().enumerate() {
            assert_eq!(datagram.len(), 1400);
            assert_eq!(datagram[..8], [0xff, 0xff, (number >> 8) as u8, number as u8, 4, 0, 0, 0]);
        }
        assert!(all.iter().flat_map(|datagram| &datagram[8..]).eq(&text));
        assert_eq!(datagrams(1, text[..1393].to_vec()).iter().map(Vec::len).collect::<Vec<_>>(), [1400, 9]);
    }
}
