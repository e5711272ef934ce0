//! memcached's exptime: 0 is never, negative is past, up to 30 days is seconds from now, and more is a Unix time. The
//! text protocol has signed ones, the binary protocol unsigned ones.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::Ttl;

use super::Executor;

/// The longest relative exptime, in seconds.
const RELATIVE_LIMIT: i64 = 60 * 60 * 24 * 30;

/// The time since the Unix epoch, by the system's clock.
pub fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Executor {
    /// The time since the Unix epoch by the cache's clock, which a test may have moved on.
    pub fn unix_now(&self) -> Duration {
        unix_now() + self.cache.skipped_time()
    }

    /// The life that an exptime gives.
    pub(in crate::execute) fn ttl(&self, exptime: impl Into<i64>) -> Ttl {
        ttl(exptime, |unix_seconds| self.cache.ttl_until(unix_seconds))
    }

    /// The delay that an exptime means for flush_all.
    pub(in crate::execute) fn flush_delay(&self, exptime: impl Into<i64>) -> Duration {
        flush_delay(exptime, || self.unix_now())
    }
}

/// The life that an exptime gives. `until` gives the one that ends at a Unix time: a time, not the seconds until then,
/// because a value may wait or arrive for long before its life begins.
fn ttl(exptime: impl Into<i64>, until: impl FnOnce(u64) -> Ttl) -> Ttl {
    let exptime = exptime.into();
    match exptime {
        0 => Ttl::Never,
        ..0 => Ttl::Expired,
        1..=RELATIVE_LIMIT => Ttl::Seconds(exptime as u32),
        _ => until(exptime as u64),
    }
}

fn flush_delay(exptime: impl Into<i64>, now: impl FnOnce() -> Duration) -> Duration {
    let exptime = exptime.into();
    match exptime {
        ..=0 => Duration::ZERO,
        1..=RELATIVE_LIMIT => Duration::from_secs(exptime as u64),
        _ => Duration::from_secs(exptime as u64).saturating_sub(now()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: fn() -> Duration = || Duration::from_millis(1_800_000_000_500);

    #[test]
    fn exptimes_are_never_past_relative_or_absolute() {
        assert_eq!(ttl(0, Ttl::Until), Ttl::Never);
        assert_eq!(ttl(-1, Ttl::Until), Ttl::Expired);
        assert_eq!(ttl(i32::MIN, Ttl::Until), Ttl::Expired);
        assert_eq!(ttl(1, Ttl::Until), Ttl::Seconds(1));
        assert_eq!(ttl(2_592_000, Ttl::Until), Ttl::Seconds(2_592_000));
        assert_eq!(ttl(2_592_001, Ttl::Until), Ttl::Until(2_592_001));
        assert_eq!(ttl(i32::MAX, Ttl::Until), Ttl::Until(2_147_483_647));
        assert_eq!(ttl(u32::MAX, Ttl::Until), Ttl::Until(4_294_967_295));
    }

    #[test]
    fn flushes_are_now_or_later() {
        assert_eq!(flush_delay(-5, NOW), Duration::ZERO);
        assert_eq!(flush_delay(0, NOW), Duration::ZERO);
        assert_eq!(flush_delay(7, NOW), Duration::from_secs(7));
        assert_eq!(flush_delay(2_592_001, NOW), Duration::ZERO);
        assert_eq!(flush_delay(1_800_000_002, NOW), Duration::from_millis(1_500));
    }
}
