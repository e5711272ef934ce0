//! Edits of structured values, over both tiers: see `change.rs`.

use crate::access::Access;
use crate::change::{Absence, Tried};
use crate::error::Error;
use ebbtide_store::{Edit, Editable, IfAbsent, NewEntry};

/// The decision of an edit about the value that it finds, `None` if the key is absent.
pub(crate) type Decide<'a> = dyn FnMut(Option<Editable<'_>>) -> Edit + 'a;

impl Access {
    /// Edits a value: see `ebbtide_store::Store::edit`. A new entry is as `entry` says.
    pub fn edit(&self, key: &[u8], entry: NewEntry, decide: &mut Decide<'_>) -> Result<(), Error> {
        let pool = &*self.pool;
        let participant = pool.participant();
        let target = (key, pool.store.hash(key));
        let edited = self.change(key, |now_ms, absence| {
            let if_absent = match absence {
                Absence::Certain => IfAbsent::Create(entry),
                Absence::Unknown => IfAbsent::Refuse,
                Absence::Since(ticket) => IfAbsent::Load { entry, ticket },
            };
            let is_edited = pool.store.edit(&participant, target, if_absent, now_ms, &mut *decide)?;
            Ok(Tried::of((), !is_edited))
        });
        edited.map_err(|error| match error {
            Error::ValueTooLarge { length, limit } => Error::StructureTooLarge { length, limit },
            other => other,
        })
    }
}
