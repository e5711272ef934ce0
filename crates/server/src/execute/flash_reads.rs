//! Keys that only flash has, for workers that never wait for a device.
//!
//! ```text
//! command -> key not in memory, maybe on flash -> reads start, the connection is parked
//!    ^                                                    | the last read has ended: the worker is woken
//!    +---------- executed again: promote, look again <----+
//!                                or, of a plain get: answer with the value that was read
//! ```
//! `ebbtide::FlashReads` holds the reads and decides about them; this file parks connections and wakes them. A command
//! that needs such a key is not executed: the session gives it again when the key was read. So answers keep their
//! order, as no command behind it is executed before it. A run of gets has all its keys read at once.
//!
//! Every command whose answer says whether a key is there needs the key. A delete needs to know of the value only that
//! it is there: it is not promoted. A command without an answer (`noreply`) reads nothing, and no command reads from a
//! device that is not healthy: then a key that flash may have counts as found, and a delete that waits already goes on.
//! A value for which memory has no place is not absent: the command is refused for want of memory.
//!
//! A connection parks with reads that end by themselves, or with a single one that queues, and then it holds no value;
//! nor does one that waits for its client, or has executed all that has arrived. So connections never wait for each
//! other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebbtide::flash::Health;
use ebbtide::{Error, FlashProbe, FlashReads, Item, Mode, Patience, ReadOutcome, ReadPurpose, ReadWake};
use ebbtide_protocol::{MAX_KEY, MetaCommand, Request, StoreMode, binary};

use super::Executor;
use super::binary::put_mode;
use super::memory_wait::MemoryWait;
use super::meta::{can_win_recache, set_mode};
use crate::session::StopReason;
use crate::shared::{ConnectionKey, Inbox};

/// How often the health of flash is looked at, where connections or requests may wait for it.
pub const HEALTH_INTERVAL: Duration = Duration::from_millis(500);
/// Why a command is refused whose present value memory has no place for.
pub(super) const NO_MEMORY_FOR_PRESENT: Error =
    Error::OutOfMemory { reason: "the present value is on flash, and memory has no room for it" };

/// What a connection waits for, and the values that were read for it.
#[derive(Default)]
pub struct ConnectionWait {
    pub(super) reads: FlashReads,
    /// Whether they are for a delete, which can do without its read.
    is_delete: bool,
    /// Work of another thread.
    task: Option<Arc<Task>>,
    /// How long the command has waited for memory.
    pub(super) memory: Option<MemoryWait>,
    /// The command is to be executed again later.
    pub(super) waits_for_memory: bool,
}

/// What a command does about a key that memory does not have.
pub enum FlashOutcome<'a> {
    /// It waits: the connection is parked.
    Parked,
    /// It looks in memory again, which then decides.
    MemoryDecides,
    /// It answers with this, now.
    Served(Item<'a>),
    /// Flash has the value, and memory no place for it.
    NoMemory,
}

/// What is known of a key before a command that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPresence {
    /// Memory tells whether it is there.
    Known,
    /// The connection is parked until flash was read.
    NeedsFlash,
    /// It is there, on flash, and memory has no place for it.
    NoMemory,
}

/// Work of another thread for a parked connection.
struct Task {
    is_done: AtomicBool,
    inbox: Arc<Inbox>,
    connection_key: ConnectionKey,
}

/// Parks a connection until it is dropped.
pub(super) struct WakeOnDrop(Arc<Task>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `ConnectionWait::take_completed`.
        self.0.is_done.store(true, Ordering::Release);
        self.0.inbox.notify_reads_done(self.0.connection_key);
    }
}

impl ConnectionWait {
    /// Whether a connection is parked.
    pub fn is_parked(&self) -> bool {
        self.reads.is_waiting() || self.task.is_some() || self.waits_for_memory
    }

    /// Ends the wait of a delete, whose read may never end: it is executed again. True if there was one.
    pub fn abandon_delete_wait(&mut self) -> bool {
        let abandons = self.is_delete && self.reads.is_waiting();
        if abandons {
            self.reads.abandon();
        }
        abandons
    }

    /// Takes over what has ended. False while the connection waits for something.
    pub fn take_completed(&mut self) -> bool {
        // Acquire pairs with the Release in `WakeOnDrop::drop`.
        self.task = self.task.take().filter(|task| !task.is_done.load(Ordering::Acquire));
        self.reads.collect() && self.task.is_none() && !self.waits_for_memory
    }

    /// Drops the values that were read, unless the connection waits for a read: it waits for its client, and others'
    /// reads must not wait with it. A value that it still needs is read again.
    pub fn release_completed(&mut self) {
        self.reads.release();
    }
}

impl Executor {
    /// Whether deletes that wait for flash go on without it: its device does nothing, or fails.
    pub fn abandons_delete_waits(&self) -> bool {
        self.has_flash && self.cache.flash_health() != Some(Health::Healthy)
    }

    /// Parks the connection.
    pub(super) fn park_until_dropped(&self) -> WakeOnDrop {
        let (inbox, connection_key) = (Arc::clone(&self.inbox), self.connection_key.get());
        let task = Arc::new(Task { is_done: AtomicBool::new(false), inbox, connection_key });
        let wait = &mut *self.wait.borrow_mut();
        wait.reads.release();
        wait.is_delete = false;
        wait.task = Some(Arc::clone(&task));
        WakeOnDrop(task)
    }

    /// Wakes the connection that is served.
    fn wake(&self) -> ReadWake {
        let (inbox, connection_key) = (Arc::clone(&self.inbox), self.connection_key.get());
        Box::new(move || inbox.notify_reads_done(connection_key))
    }

    /// Lends what a connection waits for, or takes it back.
    pub fn swap_wait(&self, wait: &mut ConnectionWait) {
        std::mem::swap(&mut *self.wait.borrow_mut(), wait);
    }

    /// Why a session stops at something that is not answered.
    pub fn stop_reason(&self) -> StopReason {
        if self.wait.borrow().is_parked() { StopReason::Parked } else { StopReason::OutputFull }
    }

    /// Whether a key that memory does not have is to be looked for on flash.
    #[inline]
    pub(super) fn probe_flash(&self, key: &[u8]) -> Option<FlashProbe> {
        if self.has_flash { self.cache.probe_flash(&self.wait.borrow().reads, key) } else { None }
    }

    /// Reads keys of which memory does not have the first. Only a plain get, for value, key and flags, is answered from
    /// flash: other commands find the value in memory.
    pub(super) fn read_from_flash(&self, probe: FlashProbe, keys: &[&[u8]], is_plain: bool) -> FlashOutcome<'_> {
        let wait = &mut *self.wait.borrow_mut();
        wait.is_delete = false;
        let purpose = if is_plain { ReadPurpose::Answer } else { ReadPurpose::Memory };
        match self.cache.read_from_flash(&mut wait.reads, probe, keys, purpose, || self.wake()) {
            ReadOutcome::Pending => FlashOutcome::Parked,
            ReadOutcome::Hit(item) if !can_win_recache(&item) => FlashOutcome::Served(item),
            ReadOutcome::Hit(_) | ReadOutcome::MemoryDecides => FlashOutcome::MemoryDecides,
            ReadOutcome::Refused(Error::WouldWait { reason }) => {
                wait.wait_for_memory(reason, self.cache.wait_limit(reason));
                self.counters().memory_waits.add(1);
                FlashOutcome::Parked
            }
            ReadOutcome::Refused(_) => {
                wait.end_memory_wait();
                self.cache.set_patience(Patience::Whole);
                FlashOutcome::NoMemory
            }
        }
    }

    /// What is known of the key of a command that needs it.
    pub(super) fn presence(&self, key: &[u8]) -> KeyPresence {
        if !self.has_flash || self.cache.peek(key).is_hit() {
            return KeyPresence::Known;
        }
        let Some(probe) = self.probe_flash(key) else { return KeyPresence::Known };
        match self.read_from_flash(probe, &[key], false) {
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
        if !self.has_flash || self.cache.flash_health() != Some(Health::Healthy) {
            return Some(self.cache.delete(key));
        }
        let wait = &mut *self.wait.borrow_mut();
        wait.is_delete = true;
        self.cache.try_delete(&mut wait.reads, key, || self.wake())
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
