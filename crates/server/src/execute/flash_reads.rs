//! What is on flash only, for workers that never wait for a device.
//!
//! ```text
//! command -> key not in memory, maybe on flash -> reads begin, the connection is parked
//!    ^                                                    | the last has completed: the worker is woken
//!    +---------- executed again: promote, look again <----+
//!                                or, of a plain get: answer with what has completed
//! ```
//! A command that needs such a key is not executed: the session gives it again when what it needs has completed. So
//! answers keep their order, as nothing behind a command is executed before it. A run of gets has all its keys read at
//! once.
//!
//! Every command whose answer says whether a key is there needs the key. A delete needs to know of the value only that
//! it is there: it is not promoted. One that answers nothing (`noreply`) reads nothing, and none reads from a device
//! that is not healthy: then a key that flash may have counts as found, and a delete that waits already goes on. What
//! memory has no room for is not absent: the command is refused for want of memory.
//!
//! A connection parks with reads that end by themselves, or with a single one that queues, and then it holds no value
//! that has completed; nor does one that waits for its client, or has executed all that has arrived. So connections
//! never wait for each other (`ebbtide::WhenBusy`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ebbtide::flash::Health;
use ebbtide::{Cache, Error, Fetch, Fetched, Item, Mode, Patience, Resolved, WhenBusy};
use ebbtide_protocol::{MAX_KEY, MetaCommand, Request, StoreMode, binary};

use super::Executor;
use super::binary::put_mode;
use super::memory_wait::MemoryWait;
use super::meta::{can_win_recache, set_mode};
use crate::session::StopReason;
use crate::shared::{ConnectionKey, Inbox, lock};

/// So many reads of a key come to nothing because flash has moved it, or the key has changed, before it is a miss.
const MAX_READ_ATTEMPTS: u32 = 4;
/// Why a command is refused whose present value memory has no room for.
pub(super) const NO_MEMORY_FOR_PRESENT: Error =
    Error::OutOfMemory { reason: "the present value is on flash, and memory has no room for it" };

/// What a connection waits for, and what has completed for it.
#[derive(Default)]
pub struct ConnectionWait {
    group: Option<Arc<ReadGroup>>,
    /// Whether that is for a delete, which can do without what it waits for.
    is_delete: bool,
    pub(super) completed: Vec<CompletedRead>,
    /// Reads in a row that came to nothing.
    attempts: u32,
    /// How long the command has waited for memory.
    pub(super) memory: Option<MemoryWait>,
    /// It is to be executed again later.
    pub(super) waits_for_memory: bool,
}

pub(super) struct CompletedRead {
    key: Box<[u8]>,
    fetched: Fetched,
}

/// What a command does about a key that memory does not have.
pub enum FlashOutcome<'a> {
    /// It waits: the connection is parked.
    Parked,
    /// It looks in memory again, which then decides.
    MemoryDecides,
    /// It answers with this, now.
    Served(Item<'a>),
    /// Flash has the value, and memory no room for it.
    NoMemory,
}

/// What is known of a key before a command that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPresence {
    /// Memory tells whether it is there.
    Known,
    /// The connection is parked until flash was read.
    NeedsFlash,
    /// It is there, on flash, and memory has no room for it.
    NoMemory,
}

/// Reads that a connection waits for together.
struct ReadGroup {
    /// How many have not completed; one more while reads are added.
    unfinished: AtomicUsize,
    completed: Mutex<Vec<CompletedRead>>,
    inbox: Arc<Inbox>,
    connection_key: ConnectionKey,
}

impl ConnectionWait {
    /// Whether a connection is parked.
    pub fn is_parked(&self) -> bool {
        self.group.is_some() || self.waits_for_memory
    }

    /// Ends the wait of a delete, whose read may never end: it is executed again. True if there was one.
    pub fn abandon_delete_wait(&mut self) -> bool {
        let gives_up = self.is_delete && self.group.is_some();
        if gives_up {
            self.group = None;
        }
        gives_up
    }

    /// Takes what has completed. False while something is under way or waited for.
    pub fn take_completed(&mut self) -> bool {
        let Some(group) = &self.group else { return !self.waits_for_memory };
        // Acquire pairs with the AcqRel in `ReadGroup::end`.
        if group.unfinished.load(Ordering::Acquire) > 0 {
            return false;
        }
        self.completed.append(&mut lock(&group.completed));
        self.group = None;
        true
    }

    /// Drops what has completed, unless something is under way: the connection waits for its client, and others' reads
    /// must not wait with it. What it still needs is read again.
    pub fn release_completed(&mut self) {
        if self.take_completed() {
            self.completed.clear();
        }
    }

    fn position(&self, key: &[u8]) -> Option<usize> {
        self.completed.iter().position(|completed| *completed.key == *key)
    }

    fn has(&self, key: &[u8]) -> bool {
        self.position(key).is_some()
    }

    fn take(&mut self, key: &[u8]) -> Option<CompletedRead> {
        self.position(key).map(|position| self.completed.swap_remove(position))
    }
}

impl ReadGroup {
    /// Adds a read to it.
    fn add(self: &Arc<Self>, cache: &Cache, key: &[u8], when_busy: WhenBusy) -> Fetch {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let (group, owned_key) = (Arc::clone(self), Box::<[u8]>::from(key));
        let on_read = Box::new(move |fetched| {
            lock(&group.completed).push(CompletedRead { key: owned_key, fetched });
            if group.end() {
                group.inbox.notify_reads_done(group.connection_key);
            }
        });
        let fetch = cache.fetch(key, when_busy, on_read);
        if matches!(fetch, Fetch::Absent | Fetch::Refused) {
            self.unfinished.fetch_sub(1, Ordering::Relaxed);
        }
        fetch
    }

    /// One has completed, or no more are added. Whether that was the last.
    fn end(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Something else than reads of keys, for which a connection is parked until this is dropped.
pub(super) struct WakeOnDrop(Arc<ReadGroup>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        if self.0.end() {
            self.0.inbox.notify_reads_done(self.0.connection_key);
        }
    }
}

impl Executor {
    /// Parks the connection.
    pub(super) fn park_until_dropped(&self) -> WakeOnDrop {
        let group = Arc::new(self.new_group());
        let wait = &mut *self.wait.borrow_mut();
        wait.completed.clear();
        wait.is_delete = false;
        wait.group = Some(Arc::clone(&group));
        WakeOnDrop(group)
    }

    /// For the connection that is served, and ready to land.
    fn new_group(&self) -> ReadGroup {
        let (inbox, connection_key) = (Arc::clone(&self.inbox), self.connection_key.get());
        ReadGroup { unfinished: AtomicUsize::new(1), completed: Mutex::default(), inbox, connection_key }
    }

    /// Lends what a connection has fetched, or takes it back.
    pub fn swap_wait(&self, wait: &mut ConnectionWait) {
        std::mem::swap(&mut *self.wait.borrow_mut(), wait);
    }

    /// Why a session stops at something that is not answered.
    pub fn stop_reason(&self) -> StopReason {
        if self.wait.borrow().is_parked() { StopReason::Parked } else { StopReason::OutputFull }
    }

    /// Whether a key that memory does not have is to be looked for on flash.
    #[inline]
    pub(super) fn may_be_on_flash(&self, key: &[u8]) -> bool {
        // What has completed was asked for before: admission to flash counts each request once.
        self.has_flash && (self.wait.borrow().has(key) || self.cache.may_be_on_flash(key))
    }

    /// Sees to keys of which memory does not have the first. Only what is wanted as `is_plain`, its value, key and
    /// flags, is answered from flash: whatever needs more finds it in memory.
    pub(super) fn read_from_flash(&self, keys: &[&[u8]], is_plain: bool) -> FlashOutcome<'_> {
        let wait = &mut *self.wait.borrow_mut();
        wait.is_delete = false;
        loop {
            if let Some(completed) = wait.take(keys[0])
                && let Some(decided) = self.resolve_read(completed, is_plain, wait)
            {
                return decided;
            }
            match self.start_reads(keys, wait) {
                Some(group) => wait.group = Some(group),
                None => return FlashOutcome::MemoryDecides,
            }
            if !wait.take_completed() {
                return FlashOutcome::Parked;
            }
        }
    }

    /// Answers with what has completed, or promotes it. None if flash had the key and that was not its value any more,
    /// so that it is worth to read it again.
    fn resolve_read(
        &self,
        completed: CompletedRead,
        is_plain: bool,
        wait: &mut ConnectionWait,
    ) -> Option<FlashOutcome<'_>> {
        wait.attempts += 1;
        let must_retry = match is_plain {
            false => match self.cache.promote(&completed.fetched) {
                Ok(must_retry) => must_retry,
                Err(Error::WouldWait { reason }) => {
                    wait.attempts -= 1;
                    wait.wait_for_memory(reason, self.cache.wait_limit(reason));
                    self.counters().memory_waits.add(1);
                    return Some(FlashOutcome::Parked);
                }
                Err(_) => {
                    wait.attempts = 0;
                    wait.end_memory_wait();
                    self.cache.set_patience(Patience::Whole);
                    return Some(FlashOutcome::NoMemory);
                }
            },
            true => match self.cache.resolve(completed.fetched) {
                Resolved::Hit(item) if !can_win_recache(&item) => {
                    wait.attempts = 0;
                    return Some(FlashOutcome::Served(item));
                }
                Resolved::Hit(_) | Resolved::Changed => true,
                Resolved::Miss => false,
            },
        };
        let is_overtaken = must_retry && !self.cache.peek(&completed.key).is_hit();
        if is_overtaken && wait.attempts < MAX_READ_ATTEMPTS {
            return None;
        }
        wait.attempts = 0;
        Some(FlashOutcome::MemoryDecides)
    }

    /// Begins to read the first of these keys, and of those behind what memory does not have and there is room for.
    /// None if flash has not the first.
    fn start_reads(&self, keys: &[&[u8]], wait: &mut ConnectionWait) -> Option<Arc<ReadGroup>> {
        let group = Arc::new(self.new_group());
        match group.add(&self.cache, keys[0], WhenBusy::Queue) {
            Fetch::Absent => return None,
            Fetch::Refused => unreachable!("a fetch that may queue is not refused"),
            Fetch::Queued => wait.completed.clear(),
            Fetch::UnderWay => {
                let missing = keys[1..].iter().filter(|key| !wait.has(key) && !self.cache.peek(key).is_hit());
                let mut added = missing.map(|key| group.add(&self.cache, key, WhenBusy::Refuse));
                added.find(|fetch| *fetch == Fetch::Refused);
            }
        }
        group.end();
        Some(group)
    }

    /// What is known of the key of a command that needs it.
    pub(super) fn presence(&self, key: &[u8]) -> KeyPresence {
        if !self.has_flash || self.cache.peek(key).is_hit() || !self.may_be_on_flash(key) {
            return KeyPresence::Known;
        }
        match self.read_from_flash(&[key], false) {
            FlashOutcome::Parked => KeyPresence::NeedsFlash,
            FlashOutcome::NoMemory => KeyPresence::NoMemory,
            FlashOutcome::MemoryDecides | FlashOutcome::Served(_) => KeyPresence::Known,
        }
    }

    /// As [`Executor::presence`], for the key that a command other than a get needs, if it needs one.
    pub(super) fn request_presence(&self, request: &Request<'_>) -> KeyPresence {
        if !self.has_flash {
            return KeyPresence::Known;
        }
        let mut buffer = [0; MAX_KEY];
        needed_key(request, &mut buffer).map_or(KeyPresence::Known, |key| self.presence(key))
    }

    /// As `request_presence`, of the binary protocol.
    pub(super) fn command_presence(&self, command: &binary::BinaryCommand<'_>) -> KeyPresence {
        if !self.has_flash {
            return KeyPresence::Known;
        }
        needed_by_binary(command).map_or(KeyPresence::Known, |key| self.presence(key))
    }

    /// Deletes a key. Whether it was there; `None`, with nothing done, if flash has to be read for that: the connection
    /// is parked.
    pub(super) fn delete_known_key(&self, key: &[u8]) -> Option<bool> {
        if !self.has_flash {
            return Some(self.cache.delete(key));
        }
        if self.cache.delete_in_memory(key) {
            return Some(true);
        }
        if self.cache.flash_health() != Some(Health::Healthy) {
            return Some(self.cache.delete(key));
        }
        let wait = &mut *self.wait.borrow_mut();
        wait.is_delete = true;
        loop {
            if let Some(completed) = wait.take(key) {
                wait.attempts += 1;
                let deleted = self.cache.delete_fetched(key, &completed.fetched);
                if deleted.is_some() || wait.attempts == MAX_READ_ATTEMPTS {
                    wait.attempts = 0;
                    return Some(deleted.unwrap_or_else(|| self.cache.delete(key)));
                }
            }
            match self.start_reads(&[key], wait) {
                Some(group) => wait.group = Some(group),
                None => return self.cache.delete_fetched(key, &Fetched::default()),
            }
            if !wait.take_completed() {
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

fn needed_by_binary<'a>(command: &binary::BinaryCommand<'a>) -> Option<&'a [u8]> {
    use binary::BinaryCommand;
    match command {
        BinaryCommand::Put(put) => (put.value.is_some() && put_mode(put) != Mode::Set).then_some(put.key),
        BinaryCommand::Delete { key, cas } => (*cas != 0).then_some(*key),
        BinaryCommand::Touch { key, .. } | BinaryCommand::Arithmetic { key, .. } => Some(key),
        _ => None,
    }
}
