//! Listeners of removals. Listeners of `on_removal` get items that were evicted, have expired, or were flushed; the one
//! of `on_any_removal` also gets items that a caller removes or replaces.
//!
//! A copy of an item that replaces it (a new expiry, another segment, a number counted in place) is no removal. Each
//! other item that leaves the index is reported once, by the thread that has emptied its slot.

use crate::epoch::{Participant, Pin};
use crate::index::{Control, Found, Slot};
use crate::item::ItemAt;
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
    /// Removed by a caller.
    Removed,
    /// Replaced by a caller with a new value.
    Replaced,
}

/// An item that was just removed: not in the index any more, but readable as long as this exists.
pub struct Removed<'s> {
    pub item: Item<'s>,
    pub cause: Cause,
    /// Whether the lower tier has taken an evicted item. False without a lower tier.
    pub is_demoted: bool,
    /// The time of the removal, in milliseconds of the store's time.
    pub now_ms: u64,
}

type Listener = Box<dyn Fn(&Removed<'_>) + Send + Sync>;

/// The listeners of a store.
#[derive(Default)]
pub struct RemovalListeners {
    /// Listeners of removals by the store.
    by_store: [OnceLock<Listener>; LISTENERS_MAX],
    /// Listener of all removals.
    any: OnceLock<Listener>,
}

impl RemovalListeners {
    fn is_empty(&self) -> bool {
        self.by_store[0].get().is_none() && self.any.get().is_none()
    }
}

/// Item and pin for the notification of a removal, taken before the slot is emptied.
pub(crate) struct RemovalNotice {
    found: Found,
    /// Keeps the item in place.
    pin: Pin,
    is_demoted: bool,
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
        self.removal_listeners.by_store.iter().any(|place| {
            if let Some(given) = listener.take() {
                listener = place.set(given).err();
            }
            listener.is_none()
        })
    }

    /// Sets the listener of all removals: by the store, as in `on_removal`, and by callers. The rules of `on_removal`
    /// hold.
    ///
    /// # Panics
    /// If it is set already.
    pub fn on_any_removal(&self, listener: impl Fn(&Removed<'_>) + Send + Sync + 'static) {
        let is_set = self.removal_listeners.any.set(Box::new(listener)).is_ok();
        assert!(is_set, "a store has one listener of all removals");
    }

    /// To be called before the bucket of `slot`, with this control word, is unlocked. `None` without listeners.
    #[inline]
    pub(crate) fn prepare_removal_notice(
        &self,
        participant: &Participant,
        slot: Slot,
        control: Control,
        is_demoted: bool,
    ) -> Option<RemovalNotice> {
        if self.removal_listeners.is_empty() {
            return None;
        }
        let found = Found { bucket: 0, position: 0, slot, control };
        Some(RemovalNotice { found, pin: participant.pin(), is_demoted })
    }

    /// As `prepare_removal_notice`, for an item that a caller removes or replaces. `None` without a listener of all
    /// removals.
    #[inline]
    pub(crate) fn prepare_change_notice(
        &self,
        participant: &Participant,
        slot: Slot,
        control: Control,
    ) -> Option<RemovalNotice> {
        self.removal_listeners.any.get()?;
        self.prepare_removal_notice(participant, slot, control, false)
    }

    /// The cause of a removal by a caller, of an item that may have been dead.
    #[cold]
    pub(crate) fn cause_of_change(&self, item: &ItemAt, is_live: bool, is_replaced: bool) -> Cause {
        match is_live {
            true if is_replaced => Cause::Replaced,
            true => Cause::Removed,
            false if self.was_flushed(item) => Cause::Flushed,
            false => Cause::Expired,
        }
    }

    /// Calls the listeners. No bucket may be locked.
    #[cold]
    pub(crate) fn notify_removed(&self, notice: RemovalNotice, cause: Cause, moment: Moment) {
        let RemovalNotice { found, pin, is_demoted } = notice;
        let item = self.hit(self.item(found.slot), &found, pin);
        let removed = Removed { item, cause, is_demoted, now_ms: moment.ms };
        let by_store = match cause {
            Cause::Removed | Cause::Replaced => &[][..],
            _ => &self.removal_listeners.by_store[..],
        };
        for listener in by_store.iter().chain([&self.removal_listeners.any]).filter_map(OnceLock::get) {
            // The caller may hold a stripe or a job; a panic would leave its segments draining for ever. The panic hook
            // has printed the message.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(&removed)));
        }
    }
}
