//! The ticket of a search of flash: a key that the search did not find was absent if the ticket is still valid. The
//! protocol is described in `docs/concurrency.md`, "Flash: changes".

use ebbtide_store::{Error, Store};
use std::sync::{Arc, Mutex, Weak};

/// The load ticket of a key that memory did not have when it was taken.
pub struct AbsenceTicket {
    store: Weak<Store>,
    key: Box<[u8]>,
    hash: u64,
    number: u64,
    /// Memory had an item of the key that had expired or was flushed: flash need not be searched.
    is_certain: bool,
}

impl AbsenceTicket {
    /// `None` if memory has the key.
    ///
    /// # Errors
    /// `KeyLength`.
    pub fn take(store: &Arc<Store>, key: &[u8], now_ms: u64) -> Result<Option<Self>, Error> {
        let hash = store.hash(key);
        let number = store.begin_load(key, hash, now_ms)?;
        Ok(number.map(|number| {
            let is_certain = store.has_dead_item(key, hash, now_ms);
            Self { store: Arc::downgrade(store), key: key.into(), hash, number, is_certain }
        }))
    }

    pub fn is_certain(&self) -> bool {
        self.is_certain
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn is_of(&self, store: &Arc<Store>, key: &[u8]) -> bool {
        std::ptr::eq(self.store.as_ptr(), Arc::as_ptr(store)) && *self.key == *key
    }

    /// Whether the key has not changed since.
    pub fn is_valid(&self) -> bool {
        self.store.upgrade().is_some_and(|store| store.is_load_valid(self.hash, self.number))
    }
}

impl Drop for AbsenceTicket {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.end_load(self.hash, self.number);
        }
    }
}

/// The keys that flash did not have in each thread's last search for a handle that does not wait. The thread's change
/// of the key comes next.
#[derive(Default)]
pub struct AbsentKeys(Mutex<Vec<(usize, AbsenceTicket)>>);

impl AbsentKeys {
    pub fn put(&self, thread: usize, ticket: AbsenceTicket) {
        let mut tickets = self.0.lock().expect("nothing panics under this lock");
        match tickets.iter_mut().find(|(of, _)| *of == thread) {
            Some((_, old)) => *old = ticket,
            None => tickets.push((thread, ticket)),
        }
    }

    pub fn take(&self, thread: usize) -> Option<AbsenceTicket> {
        let mut tickets = self.0.lock().expect("nothing panics under this lock");
        let position = tickets.iter().position(|(of, _)| *of == thread)?;
        Some(tickets.swap_remove(position).1)
    }
}
