//! Exact expiries: what an item has besides its expiry byte, if that does not tell the second.
//!
//! ```text
//! second of the expiry   ... | multiple of the unit: origin + (expiry byte << shift) | below the unit: shift bits |
//!                                             | exact expiry: the lowest 16 or 32 bits                           |
//! ```
//! The bits are those of the second, not of its distance to an origin, and a unit has at most 2^25 s. So they are the
//! same in each segment that an item is copied to.

/// The lowest bits of the second in which an item expires: those that an expiry byte does not tell, and some more. They
/// are the same in every segment whose unit is as fine or finer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactExpiry {
    bits: u32,
    is_long: bool,
}

impl ExactExpiry {
    /// Bytes in an item: two for units of up to 2^16 s, four for longer ones.
    pub const SHORT_BYTES: u8 = 2;
    pub const BYTES_MAX: u8 = 4;

    /// For an item that expires in this second, in a unit of `1 << shift` seconds. `None` if its expiry byte tells the
    /// second.
    #[inline(always)]
    pub fn new(expiry_seconds: u64, shift: u8) -> Option<Self> {
        let below_unit = expiry_seconds & ((1 << shift) - 1);
        let is_long = u32::from(shift) > u16::BITS;
        let bits = if is_long { expiry_seconds as u32 } else { u32::from(expiry_seconds as u16) };
        (below_unit > 0).then_some(Self { bits, is_long })
    }

    /// Bytes in the item.
    #[inline(always)]
    pub fn bytes(self) -> u8 {
        if self.is_long { Self::BYTES_MAX } else { Self::SHORT_BYTES }
    }

    /// The bits as an item has them: the first `bytes` of these.
    pub fn encode(self) -> [u8; Self::BYTES_MAX as usize] {
        self.bits.to_le_bytes()
    }

    /// The bits in an item, which has two or four bytes of them; `None` for none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [low, high] => Some(Self { bits: u16::from_le_bytes([low, high]).into(), is_long: false }),
            [a, b, c, d] => Some(Self { bits: u32::from_le_bytes([a, b, c, d]), is_long: true }),
            _ => None,
        }
    }

    /// The second of the expiry. `earliest_seconds` is what the expiry byte tells: a multiple of the unit.
    pub fn seconds(self, earliest_seconds: u64, shift: u8) -> u64 {
        earliest_seconds + (u64::from(self.bits) & ((1 << shift) - 1))
    }
}
