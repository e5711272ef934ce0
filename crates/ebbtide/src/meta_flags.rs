//! Meta flags: an entry may be stale, and one of its readers may have won the right to store it anew.

use crate::access::Access;
use crate::change::Tried;
use crate::error::Error;
use crate::lookup::Item;
use ebbtide_store::{Creation, MetaFlagsChange, MetaFlagsLookup};

/// Result of a lookup that may change meta flags.
#[derive(Debug)]
pub enum MetaFlagsOutcome<'a> {
    Absent,
    /// The entry was absent and was created with this CAS token.
    Created {
        token: u64,
    },
    /// The entry before the change, and its CAS token after the change.
    Found {
        item: Item<'a>,
        token: u64,
    },
}

impl Access {
    pub fn update_meta_flags(
        &self,
        key: &[u8],
        lookup: MetaFlagsLookup,
        mut change: impl FnMut(&Item<'_>) -> Option<MetaFlagsChange>,
    ) -> Result<MetaFlagsOutcome<'_>, Error> {
        let pool = &*self.pool;
        let participant = pool.participant();
        let target = (key, pool.store.hash(key));
        let wrap = |item| Item::in_memory(item, &pool.store);
        let outcome = self.change(key, |now_ms, absence| {
            let create = absence.allowed(lookup.create).map(|create| Creation { ticket: absence.ticket(), ..create });
            let lookup = MetaFlagsLookup { create, ..lookup };
            let outcome = pool
                .store
                .update_meta_flags(&participant, target, lookup, now_ms, |item| change(&wrap(item.clone())))?;
            let is_absent = matches!(outcome, ebbtide_store::MetaFlagsOutcome::Absent);
            Ok(Tried::of(outcome, is_absent))
        })?;
        Ok(match outcome {
            ebbtide_store::MetaFlagsOutcome::Absent => MetaFlagsOutcome::Absent,
            ebbtide_store::MetaFlagsOutcome::Created { token } => MetaFlagsOutcome::Created { token },
            ebbtide_store::MetaFlagsOutcome::Found { item, token } => {
                MetaFlagsOutcome::Found { item: wrap(item), token }
            }
        })
    }
}
