//! Walking through all entries of a cache.

use crate::access::Access;
use crate::engine::Owner;
use crate::error::Error;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::promoted_keys::{MAX_SCANS, PromotedSince};
use crate::lookup::Item;
use crate::pool_state::PoolState;
use ebbtide_flash::{ScanContent, ScannedObject, TierScan};
use ebbtide_store::Flags;
use std::sync::Arc;
use std::time::Duration;

/// A walk through all entries, those in memory first and then those on flash, which goes on whenever [`Scan::advance`]
/// is called: at any pace, from any thread, beside everything else. In between it holds no entry and no memory of the
/// cache, but 128 KiB if the cache has flash.
///
/// An entry that is there from the scan's beginning to its end is met at least once. In memory it is met exactly once
/// unless it was moved in the index meanwhile, which happens while the number of entries grows. What lies both in
/// memory and on flash is met in memory. An entry is met again if it moves between memory and flash meanwhile, and so
/// are some large ones that flash moves. An entry that is written, removed or evicted during the scan may be met or
/// not; nor is one promised that came from flash and that flash forgets before it is walked there, or whose bytes
/// cannot be read.
///
/// ```
/// # let cache = ebbtide::memcached::Cache::builder().memory(ebbtide::ByteSize::mib(64)).build()?;
/// cache.insert(b"a", b"1").apply()?;
/// let mut keys = Vec::new();
/// let mut scan = cache.scan()?;
/// while scan.advance(|entry| keys.push(entry.key().to_vec())) {}
/// assert_eq!(keys, [b"a"]);
/// # Ok::<(), ebbtide::Error>(())
/// ```
pub struct Scan {
    pool: Arc<PoolState>,
    _owner: Arc<Owner>,
    wanted: ScanContent,
    gives_up: bool,
    stage: Stage,
    /// With flash.
    promoted: Option<Arc<PromotedSince>>,
}

enum Stage {
    Memory(ebbtide_store::Scan<Arc<ebbtide_store::Store>>),
    Flash(TierScan),
    /// Whether all entries were met that can be found.
    End(bool),
}

/// An entry that a [`Scan`] meets.
pub struct Entry<'a> {
    place: EntrySource<'a>,
}

enum EntrySource<'a> {
    Memory { item: Item<'a>, frequency: u8, idle: Duration, bytes: u64 },
    Flash { met: ScannedObject<'a>, ttl: Option<Duration> },
}

impl Access {
    pub fn scan(&self) -> Result<Scan, Error> {
        let pool = Arc::clone(&self.pool);
        let promoted = match &pool.flash {
            Some(flash) => Some(flash.promoted_keys.keep().ok_or(Error::ScanLimit { limit: MAX_SCANS })?),
            None => None,
        };
        let _owner = Arc::clone(&self.owner);
        // If the store refuses, dropping the scan gives its place among the promoted keys back.
        let (wanted, gives_up, stage) = (ScanContent::Values, false, Stage::End(false));
        let mut scan = Scan { pool, _owner, wanted, gives_up, stage, promoted };
        scan.stage = Stage::Memory(self.pool.store.scan().map_err(Error::from_store)?);
        Ok(scan)
    }
}

impl Scan {
    /// Leaves values out that lie on flash and would have to be read for themselves: those longer than 256 KiB, about,
    /// and those that lie in several places.
    pub fn without_long_values(mut self) -> Self {
        self.wanted = ScanContent::Keys;
        self
    }

    /// Removes what lies on flash and cannot be read, and what lies beside it: no get finds it, also if it can be read
    /// later. So a scan whose caller removes what it meets leaves nothing. [`Cache::end_rerouting`] knows whether a
    /// later start may find it.
    ///
    /// [`Cache::end_rerouting`]: crate::memcached::Cache::end_rerouting
    pub fn giving_up_unread(mut self) -> Self {
        self.gives_up = true;
        self
    }

    /// Whether the next [`Scan::advance`] waits for the device.
    pub fn waits(&self) -> bool {
        matches!(self.stage, Stage::Flash(_))
    }

    /// Calls `visit` with the next few entries and sometimes none: at most 112 in memory; on flash those of a piece of
    /// 256 KiB, which is read first: see [`Scan::waits`]. False at the end of the scan. `visit` borrows what it is
    /// given and so should be brief; it cannot write to the same cache if that needs memory.
    pub fn advance(&mut self, visit: impl FnMut(Entry<'_>)) -> bool {
        match &mut self.stage {
            Stage::Memory(scan) => {
                if !advance_in_memory(&self.pool, scan, visit) {
                    let on_flash = self.pool.flash.as_ref().map(|flash| flash.tier.scan(self.wanted));
                    self.stage = match on_flash {
                        Some(scan) if self.gives_up => Stage::Flash(scan.giving_up_unread()),
                        Some(scan) => Stage::Flash(scan),
                        None => Stage::End(true),
                    };
                }
            }
            Stage::Flash(scan) => {
                let (Some(flash), Some(promoted)) = (&self.pool.flash, &self.promoted) else {
                    unreachable!("flash is walked if there is some")
                };
                if !advance_on_flash(&self.pool, flash, promoted, scan, visit) {
                    self.stage = Stage::End(scan.is_complete());
                }
            }
            Stage::End(_) => {}
        }
        !matches!(self.stage, Stage::End(_))
    }

    /// Whether it has ended and has met all entries that there were from its beginning to its end. False if flash
    /// was not walked as a whole: it has failed or was closed, or some of it could not be read and was not given up.
    pub fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::End(true))
    }

    /// How far the scan has come, from 0 to 1. It may go back a little when the cache grows.
    pub fn progress(&self) -> f64 {
        let memory = self.pool.store.memory_bytes() as f64;
        let flash = self.pool.flash.as_ref().map_or(0.0, |flash| flash.tier.capacity_bytes() as f64);
        match &self.stage {
            Stage::Memory(scan) => scan.progress() * memory / (memory + flash),
            Stage::Flash(scan) => (memory + scan.progress() * flash) / (memory + flash),
            Stage::End(_) => 1.0,
        }
    }
}

fn advance_in_memory(
    pool: &PoolState,
    scan: &mut ebbtide_store::Scan<Arc<ebbtide_store::Store>>,
    mut visit: impl FnMut(Entry<'_>),
) -> bool {
    let now_ms = pool.clock.now_ms();
    let store = &pool.store;
    scan.advance(&pool.participant(), now_ms, |scanned| {
        let idle = Duration::from_millis(now_ms.saturating_sub(scanned.active_ms));
        let item = Item::in_memory(scanned.item, store);
        visit(Entry {
            place: EntrySource::Memory { item, frequency: scanned.frequency, idle, bytes: scanned.memory_bytes },
        });
    })
}

fn advance_on_flash(
    pool: &PoolState,
    flash: &PoolFlash,
    promoted: &PromotedSince,
    scan: &mut TierScan,
    mut visit: impl FnMut(Entry<'_>),
) -> bool {
    let now_ms = pool.clock.now_ms();
    let store = &pool.store;
    let participant = pool.participant();
    let number = flash.on_flash.number();
    scan.advance(flash.seconds(now_ms), |met| {
        if met.key.pool != number {
            return;
        }
        let hash = store.hash(met.key.bytes);
        let place = match store.peek(&participant, met.key.bytes, hash, now_ms) {
            // It was there when memory was walked.
            Some(_) if !promoted.may_contain(hash) => return,
            Some(item) => {
                let item = Item::in_memory(item, store);
                let (idle, bytes) = (item.idle(), item.stored_bytes());
                EntrySource::Memory { frequency: u8::from(item.was_used()), idle, bytes, item }
            }
            None => EntrySource::Flash { ttl: flash.remaining(met.expiry, now_ms), met },
        };
        visit(Entry { place });
    })
}

impl Drop for Scan {
    fn drop(&mut self) {
        if let (Some(flash), Some(promoted)) = (&self.pool.flash, &self.promoted) {
            flash.promoted_keys.forget(promoted);
        }
    }
}

impl<'a> Entry<'a> {
    pub fn key(&self) -> &[u8] {
        match &self.place {
            EntrySource::Memory { item, .. } => item.key(),
            EntrySource::Flash { met, .. } => met.key.bytes,
        }
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        match &self.place {
            EntrySource::Memory { item, .. } => item.len() as u64,
            EntrySource::Flash { met, .. } => met.value_bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the value; `None` if it was left out: see [`Scan::without_long_values`].
    pub fn to_vec(&self) -> Option<Vec<u8>> {
        match &self.place {
            EntrySource::Memory { item, .. } => Some(item.to_vec()),
            EntrySource::Flash { met, .. } => met.value.map(<[u8]>::to_vec),
        }
    }

    /// Client flags; 0 of an entry that the library has annotated.
    pub fn flags(&self) -> u32 {
        match &self.place {
            EntrySource::Memory { item, .. } => item.flags(),
            EntrySource::Flash { met, .. } => Flags::from_parts(met.client_flags, met.is_annotated).of_client(),
        }
    }

    /// The library's annotation of the entry; 0 without one.
    pub(crate) fn annotation(&self) -> u32 {
        match &self.place {
            EntrySource::Memory { item, .. } => item.annotation(),
            EntrySource::Flash { met, .. } => Flags::from_parts(met.client_flags, met.is_annotated).to_annotation(),
        }
    }

    /// Remaining life; `None` if it never expires.
    pub fn ttl(&self) -> Option<Duration> {
        match &self.place {
            EntrySource::Memory { item, .. } => item.ttl(),
            EntrySource::Flash { ttl, .. } => *ttl,
        }
    }

    /// The entry as a get would find it, if memory has it.
    pub fn item(&self) -> Option<&Item<'a>> {
        match &self.place {
            EntrySource::Memory { item, .. } => Some(item),
            EntrySource::Flash { .. } => None,
        }
    }

    /// How often it was read lately: at most one count per second, exact below 16, halved when an eviction keeps it. On
    /// flash 0.
    pub fn frequency(&self) -> u8 {
        match self.place {
            EntrySource::Memory { frequency, .. } => frequency,
            EntrySource::Flash { .. } => 0,
        }
    }

    /// Bytes that the entry takes: in memory metadata, key, value and, for a value longer than a segment, its whole
    /// segments; on flash key and value.
    pub fn stored_bytes(&self) -> u64 {
        match &self.place {
            EntrySource::Memory { bytes, .. } => *bytes,
            EntrySource::Flash { met, .. } => met.key.bytes.len() as u64 + met.value_bytes,
        }
    }

    /// How long ago it was last read or written, about: neighbours in the index and in memory share the notes from
    /// which this is told, and compaction keeps the age of the oldest. `None` on flash, which does not know.
    pub fn idle(&self) -> Option<Duration> {
        match self.place {
            EntrySource::Memory { idle, .. } => Some(idle),
            EntrySource::Flash { .. } => None,
        }
    }
}
