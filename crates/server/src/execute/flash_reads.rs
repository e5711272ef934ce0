//! Keys that are on flash only, for workers that never wait for a device.
//!
//! ```text
//! command -> key not in memory, maybe on flash -> reads start, the connection is parked
//!    ^                                                    | the last read completes: the worker is woken
//!    +---------- executed again: promote, look again <----+
//!                                or, of a plain get: answer with the completed read
//! ```
//! `ebbtide::memcached::FlashReads` holds the reads and decides about them; this file parks connections and wakes them.
//! A command that needs such a key is not executed: the session gives it again when its reads have completed. No later
//! command of the connection is executed before it, so answers keep their order. A run of gets reads all its keys at
//! once, of whatever pools.
//!
//! A command needs the key when its answer says whether the key exists. A delete needs to know only that: its key is
//! not promoted. When the device is not healthy a delete reads nothing: a key that flash may have counts as found, and
//! a delete that waits proceeds. A delete with `noreply` reads nothing. A value that cannot be promoted for lack of
//! memory is not a miss: the command is refused as out of memory.
//!
//! A connection parks with reads that end by themselves, or with a single one that queues, and then it holds no
//! completed read. A connection that waits for its client or has executed all its input holds none either. So
//! connections never wait for each other (`ebbtide::WhenBusy`).

use std::sync::Arc;
use std::time::Duration;

use ebbtide::flash::Health;
use ebbtide::memcached::{Error, FlashProbe, Item, Mode, Patience, ReadOutcome, ReadPurpose, ReadWake};
use ebbtide_protocol::{MAX_KEY, MetaCommand, Request, StoreMode, binary};

use super::Executor;
use super::meta::can_win_recache;
use super::modes::{meta_mode, put_mode};
use crate::connection_wait::{ConnectionWait, WakeOnDrop};
use crate::session::StopReason;

/// Interval of checks of the health of flash, while connections or requests may wait for flash.
pub const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
/// Error of a command whose current value is on flash and cannot be promoted for lack of memory.
pub(super) const NO_MEMORY_FOR_PRESENT: Error =
    Error::OutOfMemory { reason: "the present value is on flash, and memory has no space for it" };

/// Result of looking for a key on flash that memory does not have.
pub enum FlashOutcome<'a> {
    /// Reads are pending: the connection is parked.
    Parked,
    /// The command repeats the lookup in memory and takes its result.
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
    /// The object is on flash and cannot be promoted for lack of memory.
    NoMemory,
}

impl Executor {
    /// True when deletes that wait for flash proceed without it: its device is not healthy.
    pub fn abandons_delete_waits(&self) -> bool {
        self.has_flash && self.cache.flash_health() != Some(Health::Healthy)
    }

    /// Parks the connection until the result is dropped.
    pub(super) fn park_until_dropped(&self) -> WakeOnDrop {
        let (inbox, connection_key) = (Arc::clone(&self.inbox), self.connection_key.get());
        self.wait.borrow_mut().park_for_task(inbox, connection_key)
    }

    /// A waker of the current connection.
    fn wake(&self) -> ReadWake {
        let (inbox, connection_key) = (Arc::clone(&self.inbox), self.connection_key.get());
        Box::new(move || inbox.notify_reads_done(connection_key))
    }

    /// Exchanges the wait of the current connection: lends it to the executor, or takes it back.
    pub fn swap_wait(&self, wait: &mut ConnectionWait) {
        std::mem::swap(&mut *self.wait.borrow_mut(), wait);
    }

    /// The reason why a session stops at a command that is not answered.
    pub fn stop_reason(&self) -> StopReason {
        if self.wait.borrow().is_parked() { StopReason::Parked } else { StopReason::OutputFull }
    }

    /// A probe of flash for a key that memory does not have; `None` when flash does not have it either.
    #[inline]
    pub(super) fn probe_flash(&self, key: &[u8]) -> Option<FlashProbe> {
        if !self.has_flash || self.compact(key).is_some() {
            return None;
        }
        self.pool(key).probe_flash(&self.wait.borrow().reads, key)
    }

    /// Reads keys of gets from flash; memory does not have the first one. With `is_plain` (value, key and client flags
    /// are enough) the value is answered from flash; otherwise it is promoted first.
    pub(super) fn read_from_flash(&self, probe: FlashProbe, keys: &[&[u8]], is_plain: bool) -> FlashOutcome<'_> {
        self.read_for(if is_plain { ReadPurpose::Answer } else { ReadPurpose::Memory }, probe, keys)
    }

    fn read_for(&self, purpose: ReadPurpose, probe: FlashProbe, keys: &[&[u8]]) -> FlashOutcome<'_> {
        let wait = &mut *self.wait.borrow_mut();
        wait.is_delete = false;
        let pool_of = |key: &[u8]| self.compact(key).is_none().then(|| self.pool(key));
        let pool = self.pool(keys[0]);
        match pool.read_from_flash_over(&mut wait.reads, probe, keys, purpose, &pool_of, || self.wake()) {
            ReadOutcome::Pending => FlashOutcome::Parked,
            ReadOutcome::Hit(item) if !can_win_recache(&item) => FlashOutcome::Served(item),
            ReadOutcome::Hit(_) | ReadOutcome::Absent | ReadOutcome::MemoryDecides => FlashOutcome::MemoryDecides,
            ReadOutcome::Refused(Error::WouldWait { reason }) => {
                wait.wait_for_memory(reason, self.cache.wait_limit(reason));
                self.counters().memory_waits.add(1);
                FlashOutcome::Parked
            }
            ReadOutcome::Refused(_) => {
                wait.end_memory_wait();
                self.set_patience(Patience::Whole);
                FlashOutcome::NoMemory
            }
        }
    }

    /// Where the current value of a key is; starts reads when flash may have it.
    pub(super) fn presence(&self, key: &[u8]) -> KeyPresence {
        if !self.has_flash || self.compact(key).is_some() || self.pool(key).peek(key).is_hit() {
            return KeyPresence::Known;
        }
        let Some(probe) = self.probe_flash(key) else { return KeyPresence::Known };
        match self.read_for(ReadPurpose::Change, probe, &[key]) {
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
        if !self.has_flash || self.cache.flash_health() != Some(Health::Healthy) {
            return Some(self.pool(key).delete(key));
        }
        let wait = &mut *self.wait.borrow_mut();
        wait.is_delete = true;
        self.pool(key).try_delete(&mut wait.reads, key, || self.wake())
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
