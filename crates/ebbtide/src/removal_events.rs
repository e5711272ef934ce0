//! Removal events: calls of the eviction listener of a cache, outside of all locks.
//!
//! ```text
//! an item leaves the index --> event of this thread --- the operation has ended ---> listener, on this thread
//!                                    |
//!                                    +--- the thread holds a hit, or runs the listener ---> waiting events
//!                                                                                               |
//!                                    listener, on the maintenance thread <----------------------+
//! ```
//! The store notes an item under its locks, so an event is a copy of key and value. The thread that has removed the
//! items tells their events when its operation holds no lock any more. It cannot do so while it runs the listener,
//! which would recurse, nor while it holds a hit, because writes of the listener would find no memory. Then the events
//! wait for the maintenance thread, or with a manual clock for the next operation.
//!
//! Bounds: a long operation tells its events whenever they have [`MAX_THREAD_BYTES`]. When waiting events have
//! [`MAX_WAITING_BYTES`], each operation tells
//! [`TOLD_PER_OPERATION`] of them before it ends. Only removals that the listener itself causes cannot
//! be told then: they are counted as untold.

use ebbtide_store::{Cause, Removed};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Events that an operation collects before it tells them: more than most operations cause.
const MAX_THREAD_BYTES: usize = 1 << 20;
/// Events that wait for the maintenance thread.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Waiting events that one operation tells: more than an operation causes on average.
const TOLD_PER_OPERATION: usize = 64;
/// Memory of an event beside its key and value, rounded up.
const EVENT_BYTES: usize = 128;

/// Why an entry has left the memory of a cache.
///
/// ```
/// use ebbtide::{ByteSize, Cache, RemovalCause, Value};
///
/// let listener = |key: &[u8], _: Value, cause: RemovalCause| match cause {
///     RemovalCause::Evicted | RemovalCause::RejectedByFlash => println!("lost: {key:?}"),
///     _ => {}
/// };
/// let cache = Cache::builder().memory(ByteSize::mib(64)).eviction_listener(listener).build()?;
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// Its TTL has ended.
    Expired,
    /// Evicted to make space, in a cache without flash.
    Evicted,
    /// Replaced by a new value of its key.
    Replaced,
    /// Removed by its key, or by `invalidate_all`.
    Removed,
    /// Evicted, and found on flash from now on.
    Demoted,
    /// Evicted, and not taken by flash: the cache has lost it.
    RejectedByFlash,
}

pub(crate) type EvictionListener = Arc<dyn Fn(&[u8], &Arc<[u8]>, RemovalCause) + Send + Sync>;

/// The listener of a cache, and its events that wait.
pub(crate) struct RemovalEvents {
    listener: EvictionListener,
    has_flash: bool,
    /// Without a maintenance thread each operation tells the waiting events.
    is_manual: bool,
    waiting: Mutex<VecDeque<Event>>,
    /// Of the waiting events. Changes under their lock; a look without it is approximate.
    waiting_bytes: AtomicUsize,
    panics: AtomicU64,
    untold: AtomicU64,
}

struct Event {
    key: Box<[u8]>,
    value: Arc<[u8]>,
    cause: RemovalCause,
}

/// The events of a thread, each with the cache that it belongs to.
#[derive(Default)]
struct ThreadEvents {
    events: RefCell<Vec<(Arc<RemovalEvents>, Event)>>,
    bytes: Cell<usize>,
    is_telling: Cell<bool>,
}

thread_local! {
    static THREAD: ThreadEvents = ThreadEvents::default();
}

impl Event {
    fn bytes(&self) -> usize {
        EVENT_BYTES + self.key.len() + self.value.len()
    }
}

impl ThreadEvents {
    fn take(&self) -> Vec<(Arc<RemovalEvents>, Event)> {
        self.bytes.set(0);
        self.events.take()
    }

    /// Has the events wait for the maintenance threads of their caches.
    fn hand_over(&self) {
        self.take().into_iter().for_each(|(owner, event)| owner.wait(event, self.is_telling.get()));
    }
}

impl Drop for ThreadEvents {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Whether the calling thread has enough events that its operation must deliver them.
pub(crate) fn are_many() -> bool {
    THREAD.try_with(|thread| thread.bytes.get() > MAX_THREAD_BYTES).unwrap_or(false)
}

/// Makes the events of the calling thread wait, because it holds memory that the listener may need.
pub(crate) fn hand_over() {
    let _ = THREAD.try_with(ThreadEvents::hand_over);
}

impl RemovalEvents {
    pub fn new(listener: EvictionListener, has_flash: bool, is_manual: bool) -> Arc<Self> {
        Arc::new(Self {
            listener,
            has_flash,
            is_manual,
            waiting: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            panics: AtomicU64::new(0),
            untold: AtomicU64::new(0),
        })
    }

    /// Notes an item that has left the index. The caller may hold locks of the store.
    pub fn note(self: &Arc<Self>, removed: &Removed<'_>) {
        let mut value = Vec::with_capacity(removed.item.len());
        removed.item.copy_to(&mut value);
        let cause = match removed.cause {
            Cause::Expired => RemovalCause::Expired,
            Cause::Replaced => RemovalCause::Replaced,
            Cause::Flushed | Cause::Removed => RemovalCause::Removed,
            Cause::Memory | Cause::IndexFull if !self.has_flash => RemovalCause::Evicted,
            Cause::Memory | Cause::IndexFull if removed.is_demoted => RemovalCause::Demoted,
            Cause::Memory | Cause::IndexFull => RemovalCause::RejectedByFlash,
        };
        let mut event = Some(Event { key: removed.item.key().into(), value: value.into(), cause });
        // A thread that ends may use the cache in the destructor of another thread-local.
        let _ = THREAD.try_with(|thread| {
            let event = event.take().expect("it was just made");
            thread.bytes.set(thread.bytes.get() + event.bytes());
            thread.events.borrow_mut().push((Arc::clone(self), event));
        });
        event.into_iter().for_each(|event| self.wait(event, false));
    }

    /// Adds an event to those that wait. One that the listener has caused is counted instead where they are too many.
    fn wait(&self, event: Event, is_caused_by_listener: bool) {
        let mut waiting = self.waiting.lock().expect("nothing panics under this lock");
        if is_caused_by_listener && self.waiting_bytes.load(Ordering::Relaxed) >= MAX_WAITING_BYTES {
            self.untold.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.waiting_bytes.fetch_add(event.bytes(), Ordering::Relaxed);
        waiting.push_back(event);
    }

    fn next_waiting(&self) -> Option<Event> {
        let mut waiting = self.waiting.lock().expect("nothing panics under this lock");
        let event = waiting.pop_front()?;
        self.waiting_bytes.fetch_sub(event.bytes(), Ordering::Relaxed);
        Some(event)
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// The calling thread has ended an operation, and holds no lock: tells its events. While the thread runs the
    /// listener, or holds a hit, the events wait.
    pub fn tell(&self, is_pinned: bool) {
        let _ = THREAD.try_with(|thread| {
            let is_full = self.waiting_bytes() >= MAX_WAITING_BYTES;
            if thread.is_telling.get() || is_pinned && !is_full {
                return thread.hand_over();
            }
            let max = if is_full || self.is_manual { TOLD_PER_OPERATION } else { 0 };
            self.tell_thread(thread, max);
        });
    }

    /// Tells the events of the calling thread, and all that wait: for the maintenance thread, and for the end of a
    /// cache.
    pub fn tell_all(&self) {
        let _ = THREAD.try_with(|thread| match thread.is_telling.get() {
            true => thread.hand_over(),
            false => self.tell_thread(thread, usize::MAX),
        });
    }

    /// Tells the events of the calling thread, and those that wait, up to `max_waiting`.
    fn tell_thread(&self, thread: &ThreadEvents, max_waiting: usize) {
        if thread.bytes.get() == 0 && (max_waiting == 0 || self.waiting_bytes() == 0) {
            return;
        }
        let count = self.waiting.lock().expect("nothing panics under this lock").len().min(max_waiting);
        thread.is_telling.set(true);
        for (owner, event) in thread.take() {
            owner.call(&event);
        }
        // Ends: events that the listener causes now are not among these.
        for _ in 0..count {
            let Some(event) = self.next_waiting() else { break };
            self.call(&event);
        }
        thread.hand_over();
        thread.is_telling.set(false);
    }

    fn call(&self, event: &Event) {
        // The panic hook has printed the message.
        let called = catch_unwind(AssertUnwindSafe(|| (self.listener)(&event.key, &event.value, event.cause)));
        if called.is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls of the listener that have panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Removals that the listener was not told of.
    pub fn untold(&self) -> u64 {
        self.untold.load(Ordering::Relaxed)
    }
}
