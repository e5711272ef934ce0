//! Options of the flash tier, for Rust programs.

use crate::byte_size::ByteSize;
use crate::flash::promotion::FlashPromotion;
use crate::memcached;
use ebbtide_flash::TierOptions;
use ebbtide_flash::admission::{AdmissionPolicy, WriteBudget};
use ebbtide_flash::large::{Reclaim, Reinsertion};
use std::path::Path;
use std::time::Duration;

/// Options of the flash tier, for [`crate::CacheBuilder::flash_options`]. Each has a default that works.
///
/// ```text
/// memory --evicted--> admission, write budget --> flash --full--> reclaim --> reinsertion, or gone
///   ^                                               |
///   +-------------------- promotion <---- hit ------+
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing before CacheBuilder::flash_options"]
pub struct Options {
    tier: TierOptions,
    promotion: FlashPromotion,
    max_idle_seconds: Option<u32>,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which evicted entries are written. Default `All`. `RejectFirst` and `History` remember keys, in memory of the
    /// cache: one that does not fit is an error of [`crate::CacheBuilder::build`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash::{self, AdmissionPolicy};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// // Entries that are evicted a second time: most of the others would never be read again.
    /// let options = flash::Options::new().admission(AdmissionPolicy::RejectFirst { times: 1, keys: 100_000 });
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn admission(mut self, policy: AdmissionPolicy) -> Self {
        self.tier.admission.policy = policy;
        self
    }

    /// Entries that expire sooner are not written. In whole seconds, rounded up. Default 10 s: an entry waits about
    /// this long in a buffer.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash;
    /// use std::time::Duration;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let options = flash::Options::new().min_ttl(Duration::from_secs(600));
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn min_ttl(mut self, ttl: Duration) -> Self {
        self.tier.admission.min_ttl_seconds = whole_seconds(ttl);
        self
    }

    /// Entries with a shorter value are not written. Default 0.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let options = flash::Options::new().min_value(ByteSize::bytes(512));
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn min_value(mut self, value: ByteSize) -> Self {
        self.tier.admission.min_value_bytes = u32::try_from(value.as_bytes()).unwrap_or(u32::MAX);
        self
    }

    /// The bytes that may be written to the device, whatever the reason: of the evicted entries a smaller share is
    /// admitted. Over ten minutes it is kept; a shorter burst may exceed it. Default: no limit.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash::{self, WriteBudget};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let options = flash::Options::new().write_budget(WriteBudget::BytesPerSecond(20 << 20));
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn write_budget(mut self, budget: WriteBudget) -> Self {
        self.tier.admission.budget = Some(budget);
        self
    }

    /// The write budget with which a drive lasts for `life`, if it is rated for `rated` written bytes (its TBW, in
    /// units of 10^12 bytes) and nothing else writes to it. In place of [`Options::write_budget`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # use ebbtide::flash;
    /// use std::time::Duration;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// // 600 TBW in five years: 3.8 MB a second.
    /// let (rated, five_years) = (ByteSize::bytes(600_000_000_000_000), Duration::from_secs(5 * 365 * 86_400));
    /// let options = flash::Options::new().write_budget_for_life(rated, five_years);
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn write_budget_for_life(self, rated: ByteSize, life: Duration) -> Self {
        self.write_budget(WriteBudget::BytesPerSecond(rated.as_bytes() / life.as_secs().max(1)))
    }

    /// Which hits on flash are copied back to memory. Default `Auto`.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash::{self, FlashPromotion};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// // The next lookup of the key reads no flash, and something else is evicted.
    /// let options = flash::Options::new().promotion(FlashPromotion::Always);
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn promotion(mut self, promotion: FlashPromotion) -> Self {
        self.promotion = promotion;
        self
    }

    /// Entries that nobody has read for this long are written before their memory is needed, in the background and
    /// within the write budget. In whole seconds, rounded up. Default: only an eviction writes.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash;
    /// use std::time::Duration;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let options = flash::Options::new().max_idle(Duration::from_secs(3600));
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn max_idle(mut self, time: Duration) -> Self {
        self.max_idle_seconds = Some(whole_seconds(time));
        self
    }

    /// Which region of flash is reclaimed when space is needed: the one whose last hit is longest ago (`Lru`, the
    /// default), or the oldest (`Fifo`). Regions hold the entries of more than about 2 KiB.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash::{self, Reclaim, Reinsertion};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// // Flash as a queue: each entry leaves at its turn.
    /// let options = flash::Options::new().reclaim(Reclaim::Fifo).reinsertion(Reinsertion::Never);
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn reclaim(mut self, order: Reclaim) -> Self {
        self.tier.reclaim = order;
        self
    }

    /// Which entries of a reclaimed region are written again: those that were hit, while their copies earn as many hits
    /// per byte as new entries (`Auto`, the default), or none (`Never`: fewer bytes are written).
    pub fn reinsertion(mut self, which: Reinsertion) -> Self {
        self.tier.reinsertion = which;
        self
    }

    /// The file for the log of deletions, with which a start after a crash finds the entries of flash, and none that
    /// was removed. Default: beside the first path of flash, with `.removals` at its end, if that is a file. For a
    /// block device it must be named; without it flash is empty after a crash.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let options = flash::Options::new().deletion_log(folder.path().join("app.removals"));
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash_options(options);
    /// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn deletion_log(mut self, path: impl AsRef<Path>) -> Self {
        self.tier.deletion_log = Some(path.as_ref().to_owned());
        self
    }

    pub(super) fn apply(self, engine: memcached::CacheBuilder) -> memcached::CacheBuilder {
        let Self { tier, promotion, max_idle_seconds } = self;
        engine.flash_options(tier).flash_promotion(promotion).flash_max_idle(max_idle_seconds)
    }
}

fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
