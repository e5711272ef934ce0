//! Keys that are on flash only, for workers that never wait for a device.
//!
//! ```text
//! command -> key not in memory, maybe on flash -> reads start, the connection is parked
//!    ^                                                    | the last read completes: the worker is woken
//!    +---------- executed again: promote, look again <----+
//!                                or, of a plain get: answer with the completed read
//! ```
//! A command that needs such a key is not executed: the session gives it again when its reads have completed. No later
//! command of the connection is executed before it, so answers keep their order. A run of gets reads all its keys at
//! once.
//!
//! A command needs the key when its answer says whether the key exists. A delete needs to know only that: its key is
//! not promoted. A command with `noreply` reads nothing. When the device is not healthy nothing is read: a key that
//! flash may have counts as found, and a delete that waits proceeds. A value that cannot be promoted for lack of memory
//! is not a miss: the command is refused as out of memory.
//!
//! A connection parks with reads that end by themselves, or with a single one that queues, and then it holds no
//! completed read. A connection that waits for its client or has executed all its input holds none either. So
//! connections never wait for each other (`ebbtide::WhenBusy`).

use std::sync::Arc;
use std::time::Duration;

use ebbtide::flash::Health;
use ebbtide::{Error, Fetch, Fetched, Item, Mode, Patience, Resolved, WhenBusy};
use ebbtide_protocol::{MAX_KEY, MetaCommand, Request, StoreMode, binary};

use super::Executor;
use super::meta::can_win_recache;
use super::modes::{meta_mode, put_mode};
use crate::connection_wait::{CompletedRead, ConnectionWait, ReadGroup, WakeOnDrop};
use crate::session::StopReason;

/// Reads of a key whose result was not current (flash moved the object, or the key changed) before the get is a miss.
const MAX_READ_ATTEMPTS: u32 = 4;
/// Interval of checks of the health of flash, while connections or requests may wait for flash.
pub const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
/// Error of a command whose current value is on flash and cannot be promoted for lack of memory.
pub(super) const NO_MEMORY_FOR_PRESENT: Error =
    Error::OutOfMemory { reason: "the present value is on flash, and memory has no room for it" };

/// Result of looking for a key on flash that memory does not have.
pub enum FlashOutcome<'a> {
    /// Reads are pending: the connection is parked.
    Parked,
    /// The command looks in memory again and takes that result.
    MemoryDecides,
    /// The value, read from flash.
    Served(Item<'a>),
    /// Flash has the value, and it cannot be promoted for lack of memory.
    NoMemory,
}

/// Where the current value of a key is, before a command that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPresence {
    /// A lookup in memory decides whether the key exists.
    Known,
    /// Flash may have it: the connection is parked until it has been read.
    NeedsFlash,
    /// It is on flash and cannot be promoted for lack of memory.
    NoMemory,
}

impl Executor {
    /// True when deletes that wait for flash proceed without it: its device is not healthy.
    pub fn abandons_delete_waits(&self) -> bool {
        self.has_flash && self.cache.flash_health() != Some(Health::Healthy)
    }

    /// Parks the connection until the result is dropped.
    pub(super) fn park_until_dropped(&self) -> WakeOnDrop {
        let group = Arc::new(self.new_group());
        let wait = &mut *self.wait.borrow_mut();
        wait.completed.clear();
        wait.is_delete = false;
        wait.group = Some(Arc::clone(&group));
        WakeOnDrop(group)
    }

    /// A group of reads for the current connection.
    fn new_group(&self) -> ReadGroup {
        ReadGroup::new(Arc::clone(&self.inbox), self.connection_key.get())
    }

    /// Exchanges the wait of the current connection: lends it to the executor, or takes it back.
    pub fn swap_wait(&self, wait: &mut ConnectionWait) {
        std::mem::swap(&mut *self.wait.borrow_mut(), wait);
    }

    /// The reason why a session stops at a command that is not answered.
    pub fn stop_reason(&self) -> StopReason {
        if self.wait.borrow().is_parked() { StopReason::Parked } else { StopReason::OutputFull }
    }

    /// True when a key that memory does not have must be looked for on flash.
    #[inline]
    pub(super) fn may_be_on_flash(&self, key: &[u8]) -> bool {
        // A completed read was requested before: admission counts each request once.
        self.has_flash && (self.wait.borrow().has(key) || self.cache.may_be_on_flash(key))
    }

    /// Reads keys from flash; memory does not have the first one. With `is_plain` (value, key and client flags are
    /// enough) the value is answered from flash; otherwise it is promoted first.
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

    /// Answers with a completed read, or promotes it. `None` when the value read is not current, so that another read
    /// is worthwhile.
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

    /// Starts reads of the first key and of those later keys that memory does not have, as many as the device queue
    /// accepts. `None` when flash does not have the first key.
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

    /// Where the current value of a key is; starts reads when flash may have it.
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

    /// As [`Executor::presence`], for the key of a command other than a get, if the command needs its value.
    pub(super) fn request_presence(&self, request: &Request<'_>) -> KeyPresence {
        if !self.has_flash {
            return KeyPresence::Known;
        }
        let mut buffer = [0; MAX_KEY];
        needed_key(request, &mut buffer).map_or(KeyPresence::Known, |key| self.presence(key))
    }

    /// As `request_presence`, for the binary protocol.
    pub(super) fn command_presence(&self, command: &binary::BinaryCommand<'_>) -> KeyPresence {
        if !self.has_flash {
            return KeyPresence::Known;
        }
        needed_by_binary(command).map_or(KeyPresence::Known, |key| self.presence(key))
    }

    /// Deletes a key. Returns whether it existed, or `None` when flash must be read first: nothing is done and the
    /// connection is parked.
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

/// The key whose current value a command needs. A value that is still arriving is received first.
fn needed_key<'a>(request: &'a Request<'_>, buffer: &'a mut [u8; MAX_KEY]) -> Option<&'a [u8]> {
    match request {
        Request::Store(store) => (store.value.is_some() && store.mode != StoreMode::Set).then_some(store.key),
        Request::MetaSet(set) if set.value.is_some() && meta_mode(&set.meta) != Mode::Set => Some(set.meta.key(buffer)),
        // A plain md looks for the key itself.
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
