//! Edits of structured values, over both tiers.
//!
//! ```text
//! load ticket? -- memory has the key --> edit in memory; evicted meanwhile: start again
//!     | absent in memory
//! flash has it? -- yes --> promote, start again
//!     | no
//! create, if the ticket is valid: nobody has written the key since; else start again
//! ```
//! The ticket is taken before flash is read. So a value that another thread creates, and memory evicts to flash, after
//! the read is not overwritten by a new one.

use crate::access::Access;
use crate::error::Error;
use crate::flash::pool_flash::PoolFlash;
use ebbtide_store::{Edit, Editable, IfAbsent, NewEntry};

/// The decision of an edit about the value that it finds, `None` if the key is absent.
pub(crate) type Decide<'a> = dyn FnMut(Option<Editable<'_>>) -> Edit + 'a;

impl Access {
    /// Edits a value: see `ebbtide_store::Store::edit`. A new entry is as `entry` says.
    pub fn edit(&self, key: &[u8], entry: NewEntry, decide: &mut Decide<'_>) -> Result<(), Error> {
        match &self.pool.flash {
            Some(flash) if self.waits => self.edit_over_flash(flash, key, entry, decide),
            _ => self.edit_in_memory(key, IfAbsent::Create(entry), decide).map(drop),
        }
    }

    fn edit_over_flash(
        &self,
        flash: &PoolFlash,
        key: &[u8],
        entry: NewEntry,
        decide: &mut Decide<'_>,
    ) -> Result<(), Error> {
        let (store, hash) = (&self.pool.store, self.pool.store.hash(key));
        // Ends: each further round the key was written, promoted or evicted meanwhile.
        loop {
            let ticket = store.begin_load(key, hash, self.pool.clock.now_ms()).map_err(Error::from_store)?;
            let Some(ticket) = ticket else {
                if self.edit_in_memory(key, IfAbsent::Refuse, decide)? {
                    return Ok(());
                }
                continue;
            };
            let edited = match self.get_from_flash(flash, key).is_hit() {
                true => self.promote_if_on_flash(key).map(|()| false),
                false => self.edit_in_memory(key, IfAbsent::Load { entry, ticket }, decide),
            };
            store.end_load(hash, ticket);
            if edited? {
                return Ok(());
            }
        }
    }

    fn edit_in_memory(&self, key: &[u8], if_absent: IfAbsent, decide: &mut Decide<'_>) -> Result<bool, Error> {
        let pool = &*self.pool;
        let participant = pool.participant();
        let target = (key, pool.store.hash(key));
        let edit = |now_ms| pool.store.edit(&participant, target, if_absent, now_ms, &mut *decide);
        let edited = match self.waits {
            true => pool.write_with_eviction(self.waiting(), &participant, edit),
            false => self.change_with_eviction(key, edit),
        };
        edited.map_err(|error| match error {
            Error::ValueTooLarge { length, limit } => Error::StructureTooLarge { length, limit },
            other => other,
        })
    }
}
