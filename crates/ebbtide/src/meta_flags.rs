//! Looks that see an entry as it is, and looks that change what stands beside its value.

use crate::cache::Cache;
use crate::error::Error;
use crate::lookup::{Item, Lookup};
use ebbtide_store::{MetaFlagsChange, MetaFlagsLookup, Number};
use std::time::Duration;

/// What came of a visit.
#[derive(Debug)]
pub enum Visited<'a> {
    Absent,
    /// The entry was absent and is there now, with this CAS token.
    Created {
        token: u64,
    },
    /// The entry as it was before the revision, and the CAS token that it has now.
    Found {
        item: Item<'a>,
        token: u64,
    },
}

impl Cache {
    /// Looks a key up without counting that as a use.
    pub fn peek(&self, key: &[u8]) -> Lookup<'_> {
        let shared = &*self.shared;
        let now_ms = shared.time.coarse_ms();
        let item = shared.store.peek(&shared.participant(), key, shared.store.hash(key), now_ms);
        self.lookup(item)
    }

    /// Looks an entry up, asks `revise` what shall become of it, and does that, as one operation: of several who find an
    /// entry stale, one marks it as won. `revise` may be asked more than once; `None` leaves the entry alone.
    ///
    /// # Errors
    /// `OutOfMemory`, `WouldWait`; `KeyLength`.
    pub fn visit(
        &self,
        key: &[u8],
        visit: MetaFlagsLookup,
        mut revise: impl FnMut(&Item<'_>) -> Option<MetaFlagsChange>,
    ) -> Result<Visited<'_>, Error> {
        let shared = &*self.shared;
        shared.promote_if_on_flash(self.waits, key)?;
        let participant = shared.participant();
        let target = (key, shared.store.hash(key));
        let wrap = |item| Item::in_memory(item, &shared.store);
        let visited = shared.write_with_eviction(self.waiting(), &participant, |now_ms| {
            shared.store.update_meta_flags(&participant, target, visit, now_ms, |item| revise(&wrap(item.clone())))
        })?;
        Ok(match visited {
            ebbtide_store::MetaFlagsOutcome::Absent => Visited::Absent,
            ebbtide_store::MetaFlagsOutcome::Created { token } => Visited::Created { token },
            ebbtide_store::MetaFlagsOutcome::Found { item, token } => Visited::Found { item: wrap(item), token },
        })
    }

    /// The life that a number had left when it was counted, before the count gave it another one; `None` if it never
    /// expires.
    pub fn remaining_ttl(&self, number: &Number) -> Option<Duration> {
        let now_ms = self.shared.time.now_ms();
        number.expiry_seconds.map(|seconds| Duration::from_millis((seconds * 1000).saturating_sub(now_ms)))
    }
}
