//! Listeners of removals: items that were evicted, have expired, or were flushed. Not of items that a caller deletes or
//! overwrites, because the caller knows of them.

use crate::epoch::{Participant, Pin};
use crate::index::{Control, Found, Slot};
use crate::ops::Item;
use crate::store::Store;
use crate::time::Moment;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Listeners that a store can have.
const LISTENERS_MAX: usize = 4;

/// Why an item was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Evicted for memory.
    Memory,
    /// Replaced by another key in a full index.
    IndexFull,
    /// Expired.
    Expired,
    /// Flushed.
    Flushed,
}

/// An item that was just removed: not in the index any more, but readable as long as this exists.
pub struct Removed<'s> {
    pub item: Item<'s>,
    pub cause: Cause,
    /// The time of the removal, in milliseconds of the store's time.
    pub now_ms: u64,
}

type Listener = Box<dyn Fn(&Removed<'_>) + Send + Sync>;

/// The listeners of a store.
#[derive(Default)]
pub struct RemovalListeners([OnceLock<Listener>; LISTENERS_MAX]);

impl RemovalListeners {
    fn is_empty(&self) -> bool {
        self.0[0].get().is_none()
    }
}

/// What a notification of a removal needs, taken before the slot is emptied.
pub(crate) struct RemovalNotice {
    found: Found,
    /// Keeps the item in place.
    pin: Pin,
}

impl Store {
    /// Adds a listener of items that the store evicts, expires or flushes. It is called by the removing thread within
    /// its operation: it must be quick, and must not use the store. A panic ends that call and nothing else. An expired
    /// item is reported when its memory is freed, which may be long after its expiry; an item that is overwritten
    /// before that is not reported.
    ///
    /// False if the store has four listeners already. Listeners stay as long as the store.
    pub fn on_removal(&self, listener: impl Fn(&Removed<'_>) + Send + Sync + 'static) -> bool {
        let mut listener: Option<Listener> = Some(Box::new(listener));
        self.removal_listeners.0.iter().any(|place| {
            if let Some(given) = listener.take() {
                listener = place.set(given).err();
            }
            listener.is_none()
        })
    }

    /// To be called before the bucket of `slot`, with this control word, is unlocked. `None` without listeners.
    #[inline]
    pub(crate) fn prepare_removal_notice(
        &self,
        participant: &Participant,
        slot: Slot,
        control: Control,
    ) -> Option<RemovalNotice> {
        if self.removal_listeners.is_empty() {
            return None;
        }
        let found = Found { bucket: 0, position: 0, slot, control };
        Some(RemovalNotice { found, pin: participant.pin() })
    }

    /// Calls the listeners. No bucket may be locked.
    #[cold]
    pub(crate) fn notify_removed(&self, notice: RemovalNotice, cause: Cause, moment: Moment) {
        let RemovalNotice { found, pin } = notice;
        let removed = Removed { item: self.hit(self.item(found.slot), &found, pin), cause, now_ms: moment.ms };
        for listener in self.removal_listeners.0.iter().filter_map(OnceLock::get) {
            // The caller may hold a stripe or a job; a panic would leave its segments draining for ever. The panic hook
            // has printed the message.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(&removed)));
        }
    }
}
