//! Options of one write.

use super::entry_kind::{EntryKind, MAX_FRESH_SECONDS, MAX_STALE_SECONDS};
use super::pool::Pool;
use crate::error::Error;
use crate::insert::Insert;
use crate::memcached;
use ebbtide_store::{Flags, Mode, NewEntry, Stored, Ttl, cost_class};
use std::time::Duration;

/// Options of one write, for [`crate::Pool::insert_with`] and its relatives.
///
/// ```
/// use std::time::Duration;
/// # use ebbtide::{ByteSize, Cache, InsertOptions};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// cache.insert_with("session", "42", InsertOptions::new().ttl(Duration::from_secs(60)))?;
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsertOptions {
    ttl: Option<Ttl>,
    stale_while_revalidate: Option<Duration>,
    /// The class of its cost (see `ebbtide_store::cost_class`).
    cost: Option<u8>,
}

/// Lifetime of an entry, and its annotation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub ttl: Ttl,
    pub kind: EntryKind,
    pub cost: u8,
}

impl InsertOptions {
    /// The cache's default TTL.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the entry lives: a `Duration`, rounded up to whole seconds, or a [`Ttl`]. An entry with a TTL of zero
    /// is absent at once.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// use std::time::Duration;
    /// cache.insert_with("short", "v", InsertOptions::new().ttl(Duration::from_secs(60)))?;
    /// assert!(cache.get_ref("short").unwrap().ttl() <= Some(Duration::from_secs(60)));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.ttl = Some(ttl.into());
        self
    }

    /// How long the value stays after its TTL: 97 days at most, and only if the TTL has less than 97 days. In this time
    /// a call with a loader reloads it, and all others get the stale value: see [`crate::Pool::get_or_load`]. Without a
    /// TTL it has no effect. Default: zero.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// use std::time::Duration;
    /// let options = InsertOptions::new().ttl(Duration::from_secs(60));
    /// cache.insert_with("page", "<html>", options.stale_while_revalidate(Duration::from_secs(600)))?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.stale_while_revalidate = Some(window);
        self
    }

    /// Cost of a miss of the entry, in any unit that all entries share, such as milliseconds: with [`Objective::Cost`]
    /// an eviction keeps the entries whose hits save the most. A cost is rounded to the nearest power of two from 2^-15
    /// to 2^15; zero and NaN count as the smallest. Default: 1; of a loaded value the milliseconds that its loader
    /// took.
    ///
    /// [`Objective::Cost`]: crate::Objective::Cost
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, Objective};
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).objective(Objective::Cost).build()?;
    /// cache.insert_with("report", "computed in two minutes", InsertOptions::new().cost(120_000.0))?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn cost(mut self, cost: f64) -> Self {
        self.cost = Some(cost_class(cost));
        self
    }

    /// These options, with this cost if they have none.
    pub(super) fn cost_or(mut self, cost: impl FnOnce() -> f64) -> Self {
        self.cost = self.cost.or_else(|| Some(cost_class(cost())));
        self
    }

    pub(super) fn ttl_or(self, default: Ttl) -> Ttl {
        self.ttl.unwrap_or(default)
    }

    /// These options, and where they say nothing the others.
    pub(super) fn or(self, others: Self) -> Self {
        Self {
            ttl: self.ttl.or(others.ttl),
            stale_while_revalidate: self.stale_while_revalidate.or(others.stale_while_revalidate),
            cost: self.cost.or(others.cost),
        }
    }
}

impl Pool {
    /// The life of an entry that is written with these options now.
    pub(super) fn life(&self, options: InsertOptions) -> Life {
        let (ttl, kind) = match (options.ttl, self.settings.time_to_idle) {
            (None, Some(idle)) => (idle.into(), EntryKind::Idle),
            (ttl, _) => {
                let ttl = ttl.unwrap_or(self.settings.default_ttl);
                let window = options.stale_while_revalidate.filter(|window| !window.is_zero());
                let life = window.and_then(|window| self.life_with_window(ttl, window));
                life.unwrap_or((ttl, EntryKind::Plain))
            }
        };
        Life { ttl, kind, cost: options.cost.unwrap_or(0) }
    }

    /// `None` if the entry never expires, has expired, or lives for too long before the window.
    fn life_with_window(&self, ttl: Ttl, window: Duration) -> Option<(Ttl, EntryKind)> {
        let now = self.commands.0.pool.clock.now_ms() / 1000;
        // A longer one would end after the value looks fresh again.
        let window = window.as_secs().saturating_add(u64::from(window.subsec_nanos() > 0)).min(MAX_STALE_SECONDS);
        let end = match ttl {
            Ttl::Seconds(seconds) => now + u64::from(seconds),
            Ttl::Until(second) => second,
            Ttl::Never | Ttl::Expired => return None,
        };
        let left = end.checked_sub(now).filter(|left| *left < MAX_FRESH_SECONDS)?;
        let ttl = match ttl {
            Ttl::Until(_) => Ttl::Until(end.saturating_add(window)),
            _ => Ttl::seconds(u32::try_from(left.saturating_add(window)).unwrap_or(u32::MAX)),
        };
        Some((ttl, EntryKind::served_stale(self.unix_seconds(end))))
    }

    /// A second of the store's time, since 1970.
    fn unix_seconds(&self, seconds: u64) -> u64 {
        self.commands.0.pool.clock.epoch_seconds() + seconds
    }

    /// Whether the TTL of an entry is over, which is kept for calls without a loader.
    pub(super) fn is_stale(&self, kind: EntryKind) -> bool {
        // Most entries have no window: they cost no look at the clock.
        matches!(kind, EntryKind::ServedStale { .. })
            && kind.is_stale(self.unix_seconds(self.commands.0.pool.clock.now_ms() / 1000))
    }
}

impl Life {
    /// This lifetime with another TTL and kind: the cost stays.
    pub fn of_kind(self, ttl: Ttl, kind: EntryKind) -> Self {
        Self { ttl, kind, ..self }
    }

    pub fn write(self, commands: &memcached::Pool, key: &[u8], value: &[u8], mode: Mode) -> Result<Stored, Error> {
        self.insert(commands, key, value).mode(mode).apply()
    }

    pub fn insert<'a>(self, commands: &'a memcached::Pool, key: &'a [u8], value: &'a [u8]) -> Insert<'a> {
        commands.insert(key, value).ttl(self.ttl).annotation(self.annotation())
    }

    /// The entry that an edit creates.
    pub fn new_entry(self) -> NewEntry {
        NewEntry { ttl: self.ttl, flags: Flags::from_parts(self.annotation(), true) }
    }

    fn annotation(self) -> u32 {
        Flags::annotation_with_cost(self.kind.annotation(), self.cost)
    }
}
