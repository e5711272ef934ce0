//! Telling of items that the store removes on its own: what an eviction discards, what has expired, what was flushed. Not of
//! what a caller deletes or overwrites, which is no news to him.

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
    /// Its memory was needed.
    Memory,
    /// The index had no place for another key.
    IndexFull,
    /// Its life was over.
    Expired,
    /// A flush had made it worthless.
    Flushed,
}

/// An item that was just removed: it is in the index no more, and still readable while this lives.
pub struct Removed<'s> {
    pub item: Item<'s>,
    pub cause: Cause,
    /// The time of the removal, in milliseconds of the store's time.
    pub now_ms: u64,
}

type Listener = Box<dyn Fn(&Removed<'_>) + Send + Sync>;

/// Who is told.
#[derive(Default)]
pub struct RemovalListeners([OnceLock<Listener>; LISTENERS_MAX]);

impl RemovalListeners {
    fn is_empty(&self) -> bool {
        self.0[0].get().is_none()
    }
}

/// What is needed to tell of an item whose slot is about to be emptied.
pub(crate) struct RemovalNotice {
    found: Found,
    /// Keeps the item in place.
    pin: Pin,
}

impl Store {
    /// Has `listener` told of every item that the store removes on its own, on the thread that removes it, within its
    /// operation. It must be quick, and must not use the store. A panic ends that call of the listener and nothing else. An expired item is told of when its memory is taken back, which
    /// may be long after its expiry; one that is overwritten before that is not.
    ///
    /// False if the store has four listeners already. They stay as long as it does.
    pub fn on_removal(&self, listener: impl Fn(&Removed<'_>) + Send + Sync + 'static) -> bool {
        let mut listener: Option<Listener> = Some(Box::new(listener));
        self.removal_listeners.0.iter().any(|place| {
            if let Some(given) = listener.take() {
                listener = place.set(given).err();
            }
            listener.is_none()
        })
    }

    /// To be called before the bucket that held `slot` is unlocked; `control` is that of the bucket. `None` if nobody listens.
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

    /// Tells the listeners. No bucket may be locked.
    #[cold]
    pub(crate) fn notify_removed(&self, notice: RemovalNotice, cause: Cause, moment: Moment) {
        let RemovalNotice { found, pin } = notice;
        let removed = Removed { item: self.hit(self.item(found.slot), &found, pin), cause, now_ms: moment.ms };
        for listener in self.removal_listeners.0.iter().filter_map(OnceLock::get) {
            // The caller may hold a stripe, or a job whose segments drain: a panic would leave them so for ever. The hook of
            // panics has printed the message.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(&removed)));
        }
    }
}
