//! The header of a packet; all numbers are big-endian.
//!
//! ```text
//!  0      1      2             4       5      6             8                    12               16               24
//!  | magic| op   | key length  | extras|  type| (reserved)  | body length        | opaque         | cas            |
//!  |      | code |             | length|      | or status   | extras+key+value   |                |                |
//!  +------+------+-------------+-------+------+-------------+--------------------+----------------+----------------+
//!  | extras ...  | key ...     | value ...
//! ```
//!
//! The answer repeats the opaque unchanged. The type and the reserved bytes of a request are ignored.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// The first byte of every request; no command of the text protocol begins with it.
pub const REQUEST_MAGIC: u8 = 0x80;
/// The first byte of every answer.
pub const RESPONSE_MAGIC: u8 = 0x81;

const KEY_LENGTH: usize = 2;
const EXTRAS_LENGTH: usize = 4;
const STATUS: usize = 6;
const BODY_LENGTH: usize = 8;
const OPAQUE: usize = 12;
const CAS: usize = 16;

const _: () = assert!(CAS + size_of::<u64>() == HEADER_BYTES);

/// The header of a request, but for its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    pub opcode: u8,
    pub extras_length: u8,
    pub key_length: u16,
    pub body_length: u32,
    /// As it was sent: the bytes are not a number to us.
    pub opaque: [u8; 4],
    pub cas: u64,
}

impl PacketHeader {
    /// Reads the header at the front of `input`; `None` if it is not all there.
    pub fn read(input: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = input.first_chunk()?;
        Some(Self {
            opcode: bytes[1],
            extras_length: bytes[EXTRAS_LENGTH],
            key_length: u16::from_be_bytes(part(bytes, KEY_LENGTH)),
            body_length: u32::from_be_bytes(part(bytes, BODY_LENGTH)),
            opaque: part(bytes, OPAQUE),
            cas: u64::from_be_bytes(part(bytes, CAS)),
        })
    }

    /// Bytes of the value; `None` if extras and key are longer than the body.
    pub fn value_length(&self) -> Option<u32> {
        self.body_length.checked_sub(u32::from(self.extras_length) + u32::from(self.key_length))
    }
}

/// Lengths in the header of an answer; its other fields repeat the request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lengths {
    pub extras: u8,
    pub key: u16,
    pub value: u32,
}

/// The header of an answer.
pub(super) fn answer(opcode: u8, opaque: [u8; 4], status: u16, lengths: Lengths, cas: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = RESPONSE_MAGIC;
    bytes[1] = opcode;
    let body_length = u32::from(lengths.extras) + u32::from(lengths.key) + lengths.value;
    bytes[KEY_LENGTH..][..2].copy_from_slice(&lengths.key.to_be_bytes());
    bytes[EXTRAS_LENGTH] = lengths.extras;
    bytes[STATUS..][..2].copy_from_slice(&status.to_be_bytes());
    bytes[BODY_LENGTH..][..4].copy_from_slice(&body_length.to_be_bytes());
    bytes[OPAQUE..][..4].copy_from_slice(&opaque);
    bytes[CAS..].copy_from_slice(&cas.to_be_bytes());
    bytes
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the fields lie within the header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let bytes: Vec<u8> = (0x80..0x98).collect();
        let header = PacketHeader::read(&bytes).expect("24 bytes");
        assert_eq!(
            header,
            PacketHeader {
                opcode: 0x81,
                extras_length: 0x84,
                key_length: 0x8283,
                body_length: 0x8889_8A8B,
                opaque: [0x8C, 0x8D, 0x8E, 0x8F],
                cas: 0x9091_9293_9495_9697,
            }
        );
        assert_eq!(PacketHeader::read(&bytes[..23]), None);
    }

    #[test]
    fn answers_have_the_same_places() {
        let lengths = Lengths { extras: 4, key: 0x0102, value: 0x0304_0000 };
        let bytes = answer(9, [5, 6, 7, 8], 0x0A0B, lengths, 0x1112_1314_1516_1718);
        let expected =
            [0x81, 9, 1, 2, 4, 0, 0x0A, 0x0B, 3, 4, 1, 6, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn value_length_needs_space_for_extras_and_key() {
        let header = |extras_length, key_length, body_length| PacketHeader {
            opcode: 0,
            extras_length,
            key_length,
            body_length,
            opaque: [0; 4],
            cas: 0,
        };
        assert_eq!(header(8, 3, 20).value_length(), Some(9));
        assert_eq!(header(8, 3, 11).value_length(), Some(0));
        assert_eq!(header(8, 3, 10).value_length(), None);
        assert_eq!(header(255, u16::MAX, u32::MAX).value_length(), Some(u32::MAX - 65_790));
    }
}
