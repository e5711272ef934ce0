//! What is on flash only, for workers that never wait for a device.
//!
//! ```text
//! command -> key not in memory, maybe on flash -> reads begin, the connection is parked
//!    ^                                                    | the last has landed: the worker is woken
//!    +---------- executed again: promote, look again <----+
//!                                or, of a plain get: answer with what has landed
//! ```
//! A command that needs such a key is not executed: the session gives it again when what it needs has landed. So answers keep
//! their order, as nothing behind a command is executed before it. A run of gets has all its keys read at once.
//!
//! Every command whose answer says whether a key is there needs the key. A delete needs to know of the value only that it is there:
//! it is not promoted. One that answers nothing (`noreply`) reads nothing, and none reads from a device that is not healthy: then a
//! key that flash may have counts as found, and a delete that waits already goes on. What memory has no room for is not absent: the command
//! is refused for want of memory.
//!
//! A connection parks with reads that end by themselves, or with a single one that queues, and then it holds no value that has
//! landed; nor does one that waits for its client, or has executed all that has arrived. So connections never wait for each other (`ebbtide::WhenBusy`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ebbtide::flash::Health;
use ebbtide::{Cache, Error, Fetch, Fetched, Item, Mode, Patience, Resolved, WhenBusy};
use ebbtide_protocol::{MAX_KEY, MetaCommand, Request, StoreMode, binary};

use super::Executor;
use super::binary::put_mode;
use super::memory_wait::MemoryWait;
use super::meta::{must_visit, set_mode};
use crate::session::Stopped;
use crate::shared::{Inbox, Place, lock};

/// So many reads of a key come to nothing because flash has moved it, or the key has changed, before it is a miss.
const LOOKS: u32 = 4;
/// Why a command is refused whose present value memory has no room for.
pub(super) const NO_MEMORY_FOR_PRESENT: Error =
    Error::OutOfMemory { reason: "the present value is on flash, and memory has no room for it" };

/// What a connection waits for, and what has landed for it.
#[derive(Default)]
pub struct Pending {
    flight: Option<Arc<Flight>>,
    /// Whether that is for a delete, which can do without what it waits for.
    is_delete: bool,
    pub(super) landed: Vec<Landed>,
    /// Reads in a row that came to nothing.
    looks: u32,
    /// How long the command has waited for memory.
    pub(super) memory: Option<MemoryWait>,
    /// It is to be executed again later.
    pub(super) waits_for_memory: bool,
}

pub(super) struct Landed {
    key: Box<[u8]>,
    fetched: Fetched,
}

/// What a command does about a key that memory does not have.
pub enum Below<'a> {
    /// It waits: the connection is parked.
    Parked,
    /// It looks in memory again, which then decides.
    Decided,
    /// It answers with this, now.
    Served(Item<'a>),
    /// Flash has the value, and memory no room for it.
    NoMemory,
}

/// What is known of a key before a command that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Memory tells whether it is there.
    Known,
    /// The connection is parked until flash was read.
    Awaited,
    /// It is there, on flash, and memory has no room for it.
    NoMemory,
}

/// Reads that a connection waits for together.
struct Flight {
    /// How many have not landed; one more while reads are added.
    left: AtomicUsize,
    landed: Mutex<Vec<Landed>>,
    inbox: Arc<Inbox>,
    place: Place,
}

impl Pending {
    /// Whether a connection is parked.
    pub fn is_parked(&self) -> bool {
        self.flight.is_some() || self.waits_for_memory
    }

    /// Ends the wait of a delete, whose read may never end: it is executed again. True if there was one.
    pub fn give_up_delete(&mut self) -> bool {
        let gives_up = self.is_delete && self.flight.is_some();
        if gives_up {
            self.flight = None;
        }
        gives_up
    }

    /// Takes what has landed. False while something is under way or waited for.
    pub fn arrive(&mut self) -> bool {
        let Some(flight) = &self.flight else { return !self.waits_for_memory };
        // Acquire pairs with the AcqRel in `Flight::end`.
        if flight.left.load(Ordering::Acquire) > 0 {
            return false;
        }
        self.landed.append(&mut lock(&flight.landed));
        self.flight = None;
        true
    }

    /// Drops what has landed, unless something is under way: the connection waits for its client, and others' reads must not
    /// wait with it. What it still needs is read again.
    pub fn give_way(&mut self) {
        if self.arrive() {
            self.landed.clear();
        }
    }

    fn position(&self, key: &[u8]) -> Option<usize> {
        self.landed.iter().position(|landed| *landed.key == *key)
    }

    fn has(&self, key: &[u8]) -> bool {
        self.position(key).is_some()
    }

    fn take(&mut self, key: &[u8]) -> Option<Landed> {
        self.position(key).map(|position| self.landed.swap_remove(position))
    }
}

impl Flight {
    /// Adds a read to it.
    fn add(self: &Arc<Self>, cache: &Cache, key: &[u8], when_busy: WhenBusy) -> Fetch {
        self.left.fetch_add(1, Ordering::Relaxed);
        let (flight, theirs) = (Arc::clone(self), Box::<[u8]>::from(key));
        let landing = Box::new(move |fetched| {
            lock(&flight.landed).push(Landed { key: theirs, fetched });
            if flight.end() {
                flight.inbox.land(flight.place);
            }
        });
        let fetch = cache.fetch(key, when_busy, landing);
        if matches!(fetch, Fetch::Absent | Fetch::Refused) {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        fetch
    }

    /// One has landed, or no more are added. Whether that was the last.
    fn end(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Something else than reads of keys, for which a connection is parked until this is dropped.
pub(super) struct Errand(Arc<Flight>);

impl Drop for Errand {
    fn drop(&mut self) {
        if self.0.end() {
            self.0.inbox.land(self.0.place);
        }
    }
}

impl Executor {
    /// Parks the connection.
    pub(super) fn send_out(&self) -> Errand {
        let flight = Arc::new(self.new_flight());
        let pending = &mut *self.pending.borrow_mut();
        pending.landed.clear();
        pending.is_delete = false;
        pending.flight = Some(Arc::clone(&flight));
        Errand(flight)
    }

    /// For the connection that is served, and ready to land.
    fn new_flight(&self) -> Flight {
        let (inbox, place) = (Arc::clone(&self.inbox), self.place.get());
        Flight { left: AtomicUsize::new(1), landed: Mutex::default(), inbox, place }
    }

    /// Lends what a connection has fetched, or takes it back.
    pub fn swap_pending(&self, pending: &mut Pending) {
        std::mem::swap(&mut *self.pending.borrow_mut(), pending);
    }

    /// Why a session stops at something that is not answered.
    pub fn why_unanswered(&self) -> Stopped {
        if self.pending.borrow().is_parked() { Stopped::Below } else { Stopped::Full }
    }

    /// Whether a key that memory does not have is to be looked for on flash.
    #[inline]
    pub(super) fn may_be_below(&self, key: &[u8]) -> bool {
        // What has landed was asked for before: admission to flash counts each request once.
        self.has_flash && (self.pending.borrow().has(key) || self.cache.may_be_on_flash(key))
    }

    /// Sees to keys of which memory does not have the first. Only what is wanted as `is_plain`, its value, key and flags, is answered from
    /// flash: whatever needs more finds it in memory.
    pub(super) fn raise(&self, keys: &[&[u8]], is_plain: bool) -> Below<'_> {
        let pending = &mut *self.pending.borrow_mut();
        pending.is_delete = false;
        loop {
            if let Some(landed) = pending.take(keys[0])
                && let Some(decided) = self.decide(landed, is_plain, pending)
            {
                return decided;
            }
            match self.depart(keys, pending) {
                Some(flight) => pending.flight = Some(flight),
                None => return Below::Decided,
            }
            if !pending.arrive() {
                return Below::Parked;
            }
        }
    }

    /// Answers with what has landed, or promotes it. None if flash had the key and that was not its value any more, so that it is worth
    /// to read it again.
    fn decide(&self, landed: Landed, is_plain: bool, pending: &mut Pending) -> Option<Below<'_>> {
        pending.looks += 1;
        let looks_again = match is_plain {
            false => match self.cache.promote(&landed.fetched) {
                Ok(looks_again) => looks_again,
                Err(Error::WouldWait { reason }) => {
                    pending.looks -= 1;
                    pending.wait_for_memory(reason, self.cache.wait_limit(reason));
                    self.counters().memory_waits.add(1);
                    return Some(Below::Parked);
                }
                Err(_) => {
                    pending.looks = 0;
                    pending.end_memory_wait();
                    self.cache.set_patience(Patience::Whole);
                    return Some(Below::NoMemory);
                }
            },
            true => match self.cache.resolve(landed.fetched) {
                Resolved::Hit(item) if !must_visit(&item) => {
                    pending.looks = 0;
                    return Some(Below::Served(item));
                }
                Resolved::Hit(_) | Resolved::Changed => true,
                Resolved::Miss => false,
            },
        };
        let is_overtaken = looks_again && !self.cache.peek(&landed.key).is_hit();
        if is_overtaken && pending.looks < LOOKS {
            return None;
        }
        pending.looks = 0;
        Some(Below::Decided)
    }

    /// Begins to read the first of these keys, and of those behind what memory does not have and there is room for. None if
    /// flash has not the first.
    fn depart(&self, keys: &[&[u8]], pending: &mut Pending) -> Option<Arc<Flight>> {
        let flight = Arc::new(self.new_flight());
        match flight.add(&self.cache, keys[0], WhenBusy::Queue) {
            Fetch::Absent => return None,
            Fetch::Refused => unreachable!("a fetch that may queue is not refused"),
            Fetch::Queued => pending.landed.clear(),
            Fetch::UnderWay => {
                let missing = keys[1..].iter().filter(|key| !pending.has(key) && !self.cache.peek(key).is_hit());
                let mut added = missing.map(|key| flight.add(&self.cache, key, WhenBusy::Refuse));
                added.find(|fetch| *fetch == Fetch::Refused);
            }
        }
        flight.end();
        Some(flight)
    }

    /// What is known of the key of a command that needs it.
    pub(super) fn presence(&self, key: &[u8]) -> Presence {
        if !self.has_flash || self.cache.peek(key).is_hit() || !self.may_be_below(key) {
            return Presence::Known;
        }
        match self.raise(&[key], false) {
            Below::Parked => Presence::Awaited,
            Below::NoMemory => Presence::NoMemory,
            Below::Decided | Below::Served(_) => Presence::Known,
        }
    }

    /// As [`Executor::presence`], for the key that a command other than a get needs, if it needs one.
    pub(super) fn request_presence(&self, request: &Request<'_>) -> Presence {
        if !self.has_flash {
            return Presence::Known;
        }
        let mut buffer = [0; MAX_KEY];
        needed_key(request, &mut buffer).map_or(Presence::Known, |key| self.presence(key))
    }

    /// As `request_presence`, of the binary protocol.
    pub(super) fn command_presence(&self, command: &binary::Command<'_>) -> Presence {
        if !self.has_flash {
            return Presence::Known;
        }
        needed_by_binary(command).map_or(Presence::Known, |key| self.presence(key))
    }

    /// Deletes a key. Whether it was there; `None`, with nothing done, if flash has to be read for that: the connection is parked.
    pub(super) fn delete_known(&self, key: &[u8]) -> Option<bool> {
        if !self.has_flash {
            return Some(self.cache.delete(key));
        }
        if self.cache.delete_in_memory(key) {
            return Some(true);
        }
        if self.cache.flash_health() != Some(Health::Healthy) {
            return Some(self.cache.delete(key));
        }
        let pending = &mut *self.pending.borrow_mut();
        pending.is_delete = true;
        loop {
            if let Some(landed) = pending.take(key) {
                pending.looks += 1;
                let deleted = self.cache.delete_fetched(key, &landed.fetched);
                if deleted.is_some() || pending.looks == LOOKS {
                    pending.looks = 0;
                    return Some(deleted.unwrap_or_else(|| self.cache.delete(key)));
                }
            }
            match self.depart(&[key], pending) {
                Some(flight) => pending.flight = Some(flight),
                None => return self.cache.delete_fetched(key, &Fetched::default()),
            }
            if !pending.arrive() {
                return None;
            }
        }
    }
}

/// The key whose present value matters to a command. A value that is still to come is waited for first.
fn needed_key<'a>(request: &'a Request<'_>, buffer: &'a mut [u8; MAX_KEY]) -> Option<&'a [u8]> {
    match request {
        Request::Store(store) => (store.value.is_some() && store.mode != StoreMode::Set).then_some(store.key),
        Request::MetaSet(set) if set.value.is_some() && set_mode(&set.meta) != Mode::Set => Some(set.meta.key(buffer)),
        // It looks itself.
        Request::Meta { command: MetaCommand::Delete, meta } if !b"ICx".iter().any(|flag| meta.has(*flag)) => None,
        Request::Meta { meta, .. } => Some(meta.key(buffer)),
        Request::Touch { key, .. } | Request::Arithmetic { key, .. } => Some(key),
        _ => None,
    }
}

fn needed_by_binary<'a>(command: &binary::Command<'a>) -> Option<&'a [u8]> {
    use binary::Command;
    match command {
        Command::Put(put) => (put.value.is_some() && put_mode(put) != Mode::Set).then_some(put.key),
        Command::Delete { key, cas } => (*cas != 0).then_some(*key),
        Command::Touch { key, .. } | Command::Arithmetic { key, .. } => Some(key),
        _ => None,
    }
}
