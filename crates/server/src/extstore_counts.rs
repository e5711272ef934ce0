//! Gets that flash answered, as memcached counts them, and the names of its health.

use ebbtide::flash::Health;
use ebbtide::memcached::FlashStats;

/// Results of gets on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashGets {
    /// Found.
    pub found: u64,
    /// Aborted because the device queue was full.
    pub aborted: u64,
    /// Found, and not promoted for lack of memory.
    pub no_memory: u64,
    pub promoted: u64,
    /// Read without a hit, and those of them with wrong bytes.
    pub missed: u64,
    pub corrupt: u64,
}

impl FlashGets {
    pub fn of(flash: &FlashStats) -> Self {
        let (large, small) = (&flash.tier.large, &flash.tier.small.counts);
        let corrupt = large.misses_corrupt + small.corrupt_pages;
        let missed_large = large.misses_collision + large.misses_expired + large.misses_gone + large.misses_error;
        Self {
            found: flash.tier.hits_large + flash.tier.hits_small,
            aborted: large.misses_refused + small.lookups_refused + small.lookups_contended,
            no_memory: flash.promotions_refused,
            promoted: flash.promoted,
            missed: missed_large + large.misses_corrupt + small.lookups_read_for_nothing,
            corrupt,
        }
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            found: self.found - before.found,
            aborted: self.aborted - before.aborted,
            no_memory: self.no_memory - before.no_memory,
            promoted: self.promoted - before.promoted,
            missed: self.missed - before.missed,
            corrupt: self.corrupt - before.corrupt,
        }
    }
}

/// How statistics name the health of the device.
pub fn health(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Failed => "failed",
    }
}
