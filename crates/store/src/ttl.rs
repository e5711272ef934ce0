//! TTL buckets: which TTLs share a chain of segments.
//!
//! The division is log-linear over all TTLs of a u32: every octave has the same number of buckets, a power of two from
//! 1 to 32. Bucket 0 holds items that never expire. A bucket groups items; the expiry is stored in the item, in units
//! of 2^max(0, floor(log2 TTL) - 6) seconds. All TTLs of a bucket are in one octave, and so have one unit. Where the
//! second of the expiry counts, the item has its lowest bits besides (`ExactExpiry`).

use crate::segment::{ExactExpiry, NO_EXPIRY};
use std::time::Duration;

/// Loom models have TTLs of one second only, as each bucket slows every execution.
const OCTAVES: u32 = if cfg!(loom) { 1 } else { u32::BITS };
/// Up to this octave the unit of expiry is a second.
const FINEST_OCTAVE: u32 = 6;
const FIRST_COARSE_OCTAVE: u32 = FINEST_OCTAVE + 1;
/// The finest division of an octave.
const DIVISION_MAX: u32 = 32;

/// How long an entry lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Never expires.
    Never,
    /// Expires this many seconds from now. Zero is `Expired`.
    Seconds(u32),
    /// Expires exactly when the time of the operations reaches this second. If it already has: `Expired`.
    Until(u64),
    /// Expired already: the entry replaces the present one and is absent at once.
    Expired,
}

impl Ttl {
    /// A TTL of `seconds`; `Expired` for zero.
    pub const fn seconds(seconds: u32) -> Self {
        if seconds == 0 { Self::Expired } else { Self::Seconds(seconds) }
    }
}

impl From<Duration> for Ttl {
    /// Rounded up to whole seconds, so that no entry expires early; 136 years at most.
    fn from(duration: Duration) -> Self {
        let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
        Self::seconds(u32::try_from(seconds).unwrap_or(u32::MAX))
    }
}

/// The number of a TTL bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TtlBucket(u16);

impl TtlBucket {
    pub const NEVER: Self = Self(0);

    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    pub fn from_index(index: usize) -> Self {
        Self(u16::try_from(index).expect("at most 1025 buckets"))
    }
}

/// How long an item lives that is written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub bucket: TtlBucket,
    /// The second in which it expires; `None` for never.
    pub expiry_seconds: Option<u64>,
    /// The bits with which it expires exactly then. Without them it may expire up to a unit earlier, if that second is
    /// no multiple of the unit.
    pub exact: Option<ExactExpiry>,
}

impl Lifetime {
    pub const NEVER: Self = Self { bucket: TtlBucket::NEVER, expiry_seconds: None, exact: None };

    /// Whether an item with it has expired at this time.
    pub fn is_over(self, now_ms: u64) -> bool {
        self.expiry_seconds.is_some_and(|seconds| seconds * 1000 <= now_ms)
    }
}

/// The division of all TTLs into buckets.
#[derive(Clone, Copy, Debug)]
pub struct TtlScale {
    division_log2: u32,
}

impl TtlScale {
    /// The finest scale on which every bucket can have an open segment within `open_segments`.
    pub fn for_open_segments(open_segments: u32) -> Self {
        let mut division_log2 = DIVISION_MAX.ilog2();
        while division_log2 > 0 && (OCTAVES << division_log2) + 1 > open_segments {
            division_log2 -= 1;
        }
        Self { division_log2 }
    }

    /// The number of buckets.
    pub fn buckets(self) -> usize {
        (OCTAVES as usize) * (1 << self.division_log2) + 1
    }

    /// The bucket of a TTL; a leading-zero count and shifts.
    #[inline(always)]
    pub fn bucket(self, ttl_seconds: u32) -> TtlBucket {
        debug_assert!(ttl_seconds > 0);
        let octave = ttl_seconds.ilog2();
        let part = match octave.checked_sub(self.division_log2) {
            Some(down) => ttl_seconds >> down,
            None => ttl_seconds << (self.division_log2 - octave),
        };
        let part = part & ((1 << self.division_log2) - 1);
        TtlBucket((1 + (octave << self.division_log2) + part) as u16)
    }

    fn octave(self, bucket: TtlBucket) -> Option<(u32, u32)> {
        let index = u32::from(bucket.0.checked_sub(1)?);
        Some((index >> self.division_log2, index & ((1 << self.division_log2) - 1)))
    }

    /// The shortest TTL of a bucket in seconds; `None` for the one that does not expire.
    pub fn shortest_seconds(self, bucket: TtlBucket) -> Option<u32> {
        let (octave, part) = self.octave(bucket)?;
        let whole = (1 << self.division_log2) + part;
        Some(match octave.checked_sub(self.division_log2) {
            Some(up) => whole << up,
            None => (whole >> (self.division_log2 - octave)).max(1),
        })
    }

    /// The TTLs of a bucket in seconds, from the shortest to the longest; `None` for the one that does not expire.
    pub fn range_seconds(self, bucket: TtlBucket) -> Option<(u32, u32)> {
        let shortest = self.shortest_seconds(bucket)?;
        let last = bucket.index() + 1 == self.buckets();
        let next = if last { None } else { self.shortest_seconds(TtlBucket(bucket.0 + 1)) };
        Some((shortest, next.map_or(u32::MAX, |next| (next - 1).max(shortest))))
    }

    /// log2 of the expiry unit of a bucket in seconds: 1 s below a TTL of 128 s, then 1/64 to 1/128 of the TTL.
    pub fn shift(self, bucket: TtlBucket) -> u8 {
        self.octave(bucket).map_or(NO_EXPIRY, |(octave, _)| octave.saturating_sub(FINEST_OCTAVE) as u8)
    }

    /// The life of an item that expires exactly in the second `expiry_seconds`, after `now_seconds`.
    pub fn lifetime_until(self, expiry_seconds: u64, now_seconds: u64) -> Lifetime {
        let left = expiry_seconds.saturating_sub(now_seconds).clamp(1, u32::MAX.into());
        let bucket = self.bucket(left as u32);
        let exact = ExactExpiry::new(expiry_seconds, self.shift(bucket));
        Lifetime { bucket, expiry_seconds: Some(expiry_seconds), exact }
    }

    /// The bucket of the shortest TTLs whose expiry byte can hold a TTL of this bucket, in half its unit.
    pub fn first_that_holds(self, bucket: TtlBucket) -> TtlBucket {
        self.octave(bucket).map_or(bucket, |(octave, _)| match octave {
            0..=FIRST_COARSE_OCTAVE => self.first_of(0),
            _ => self.first_of(octave - 1),
        })
    }

    /// The bucket whose segment this bucket shares with others when few may be open: two octaves share one, and all
    /// those with the finest unit.
    pub fn shared(self, bucket: TtlBucket) -> TtlBucket {
        self.octave(bucket).filter(|(octave, _)| *octave > FINEST_OCTAVE).map_or(bucket, |(octave, _)| {
            let pair = (octave - FINEST_OCTAVE) & !1;
            self.first_of(FINEST_OCTAVE + pair)
        })
    }

    fn first_of(self, octave: u32) -> TtlBucket {
        TtlBucket((1 + (octave << self.division_log2)) as u16)
    }

    /// How long a segment of a bucket may stay open, in milliseconds: max(1 s, TTL / 32), or TTL / 4 if it is to be
    /// filled.
    pub fn open_ms(self, bucket: TtlBucket, fills: bool) -> u64 {
        let share = if fills { 4 } else { 32 };
        self.shortest_seconds(bucket).map_or(u64::MAX, |seconds| (u64::from(seconds) * 1000 / share).max(1000))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn scales() -> impl Iterator<Item = TtlScale> {
        (0..=5).map(|division_log2| TtlScale { division_log2 })
    }

    #[test]
    fn buckets_are_ordered_with_their_shortest_ttl() {
        for scale in scales() {
            let mut last = TtlBucket::NEVER;
            let samples = (1..5000u32).chain((12..32).flat_map(|o| (0..97).map(move |i| (1u32 << o) + (i << (o - 7)))));
            for ttl in samples.chain([u32::MAX]) {
                let bucket = scale.bucket(ttl);
                assert!(bucket.index() < scale.buckets());
                assert!(bucket.index() >= last.index() || ttl < 8192, "{ttl}");
                assert!(scale.shortest_seconds(bucket).unwrap() <= ttl);
                assert_eq!(scale.bucket(scale.shortest_seconds(bucket).unwrap()), bucket);
                let (shortest, longest) = scale.range_seconds(bucket).unwrap();
                assert!((shortest..=longest).contains(&ttl) && scale.bucket(longest) == bucket, "{ttl}");
                last = bucket;
            }
        }
    }

    #[test]
    fn units_are_seconds_or_small_parts() {
        for scale in scales() {
            for ttl in [1, 2, 63, 64, 127, 128, 129, 255, 3600, 86_400, 2_592_000, u32::MAX] {
                let unit = 1u64 << scale.shift(scale.bucket(ttl));
                assert!(unit == 1 || unit * 64 <= u64::from(ttl));
                assert!(u64::from(ttl) / unit < 128);
            }
        }
    }

    #[test]
    fn an_expiry_byte_holds_ttls_of_shared_buckets() {
        for scale in scales() {
            for ttl in
                (1..3000).chain((12..32).flat_map(|octave| (0..64).map(move |i| (1 << octave) + (i << (octave - 6)))))
            {
                let own = scale.bucket(ttl);
                let first = scale.first_that_holds(own);
                let shift = scale.shift(first);
                assert!(first.index() <= own.index() && scale.shift(own) - shift <= 1, "{ttl}");
                assert!(ttl >> shift <= u8::MAX.into(), "{ttl}");
                let shared = scale.shared(own);
                assert!((first.index()..=own.index()).contains(&shared.index()), "{ttl}");
                assert_eq!(scale.shared(shared), shared, "{ttl}");
            }
            let shared: std::collections::HashSet<_> =
                (6..32).map(|octave| scale.shared(scale.bucket(1 << octave))).map(TtlBucket::index).collect();
            assert_eq!(shared.len(), 13, "two octaves share one");
        }
    }

    #[test]
    fn exact_expiries_agree_in_every_finer_unit() {
        for scale in scales() {
            for left in [1, 127, 128, 129, 255, 3600, 86_399, 2_592_001, 8_388_607, 8_388_609, 2_147_483_649, u32::MAX]
            {
                for now in [1, 12_345, (1 << 32) - 77, 1 << 40] {
                    let expiry = now + u64::from(left);
                    let life = scale.lifetime_until(expiry, now);
                    assert_eq!((life.bucket, life.expiry_seconds), (scale.bucket(left), Some(expiry)));
                    let coarsest = scale.shift(life.bucket);
                    let is_multiple = expiry.is_multiple_of(1 << coarsest);
                    assert_eq!(life.exact.is_none(), is_multiple, "{expiry} in units of 2^{coarsest}");
                    let Some(exact) = life.exact else { continue };
                    assert_eq!(exact.bytes() > 2, left >= 1 << 23, "{left}");
                    let bytes = exact.encode();
                    let read = ExactExpiry::decode(&bytes[..exact.bytes().into()]).unwrap();
                    for shift in 0..=coarsest {
                        assert_eq!(read.seconds(expiry >> shift << shift, shift), expiry, "{left} from {now}, {shift}");
                    }
                }
            }
        }
        assert_eq!(ExactExpiry::decode(&[]), None);
    }

    #[test]
    fn more_segments_make_finer_buckets() {
        assert_eq!(TtlScale::for_open_segments(10).buckets(), 33);
        assert_eq!(TtlScale::for_open_segments(65).buckets(), 65);
        assert_eq!(TtlScale::for_open_segments(5000).buckets(), 1025);
    }
}
