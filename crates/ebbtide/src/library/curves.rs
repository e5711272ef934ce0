//! Curves: what more memory would give a pool, and less would cost.

use super::pool::Pool;
use crate::byte_size::ByteSize;
use crate::profile::{CacheCurve, CacheProfile, CurvePoint, Verdict};

/// Miss ratios of a pool at other sizes, by [`crate::CacheBuilder::profile_accesses`]. Each is `None` without it, and
/// before a thousand sampled lookups. The level of a curve is that of the misses of memory in the last minute: of all
/// lookups, and in a cache with flash of the sampled ones, where a lookup that flash answers counts as a miss.
/// `docs/curves.md` says what is assumed and how exact it is.
impl Pool {
    /// The miss ratio by memory, from a 64th of the pool's memory to eight times as much.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).profile_accesses().build()?;
    /// for point in cache.curve().iter().flat_map(|curve| &curve.points) {
    ///     println!("{} bytes: {:.1} % misses", point.memory_bytes, 100.0 * point.miss_ratio);
    /// }
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn curve(&self) -> Option<CacheCurve> {
        self.profile(CacheProfile::curve)
    }

    /// The miss ratio that this pool would have with this much memory. For a cache without other pools it is that of
    /// the cache.
    ///
    /// ```
    /// use ebbtide::{ByteSize, Cache};
    /// # use ebbtide::Clock;
    /// # use std::time::Duration;
    ///
    /// # fn answer_requests(cache: &Cache) {
    /// #     for number in 0..2000_u32 {
    /// #         cache.get_or_insert_with(number.to_le_bytes(), || vec![7; 4000]).unwrap();
    /// #     }
    /// # }
    /// let builder = Cache::builder().memory(ByteSize::mib(4)).profile_accesses();
    /// # let builder = builder.clock(Clock::Manual);
    /// let cache = builder.build()?;
    /// # for second in 1..10 {
    /// answer_requests(&cache);
    /// #     cache.maintain(Duration::from_secs(second));
    /// # }
    /// // Some time later:
    /// if let (Some(now), Some(with_more)) = (cache.what_if(ByteSize::mib(4)), cache.what_if(ByteSize::mib(16))) {
    ///     println!("{:.1} % misses, {:.1} % with 16 MiB", 100.0 * now.miss_ratio, 100.0 * with_more.miss_ratio);
    ///     # assert!(with_more.miss_ratio + 0.5 < now.miss_ratio);
    ///     println!("{}", cache.verdict().expect("enough was seen"));
    /// }
    /// # else { panic!() }
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn what_if(&self, memory: ByteSize) -> Option<CurvePoint> {
        self.profile(|profile, level| profile.what_if(memory, level))
    }

    /// Whether the size of this pool is right, in a line: *full; 14.0 % misses; objects leave after 6 min; +64 MiB
    /// would save 2.1 points, -64 MiB would cost 4.0 points*.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).profile_accesses().build()?;
    /// match cache.verdict() {
    ///     Some(verdict) => println!("{verdict}"),
    ///     None => println!("too few lookups"),
    /// }
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn verdict(&self) -> Option<Verdict> {
        self.profile(CacheProfile::verdict)
    }

    fn profile<T>(&self, look: impl FnOnce(&CacheProfile, Option<f64>) -> Option<T>) -> Option<T> {
        let access = &self.commands.0;
        let profiles = access.owner.0.profiles.get()?;
        profiles.look(&access.pool, |profile| look(profile, profile.recent_miss_ratio()))
    }
}
