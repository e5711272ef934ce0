//! Lookups of tasks: at once if memory has the key, else by a read of flash that wakes the task.

use super::pool::{Pool, byte_range, has_value, with_bytes};
use super::value::Value;
use crate::flash::read::{FlashProbe, FlashReads, ReadWake};
use crate::flash::resolve::{ReadOutcome, ReadPurpose};
use crate::lookup::Item;
use crate::memcached;
use std::cell::Cell;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Lookups for tasks of any executor; no runtime is needed. A key that memory has is answered at the first poll. A key
/// that only flash may have is read by the cache's threads, which wake the task. No call blocks the executor. A future
/// that is dropped gives its reads up.
impl Pool {
    /// As [`Pool::get`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("k", "v").await?;
    /// assert_eq!(cache.get_async("k").await.unwrap(), "v");
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub async fn get_async(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        let read = |_: &Pool, item: &Item<'_>| has_value(item).then(|| Value::of(item));
        let value = self.look_up_async(&[key.as_ref()], ReadPurpose::Answer, read).await.pop().flatten();
        self.count(value.is_some());
        value
    }

    /// As [`Pool::with`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("greeting", "hello").await?;
    /// assert_eq!(cache.with_async("greeting", |bytes| bytes.len()).await, Some(5));
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub async fn with_async<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let read = Cell::new(Some(read));
        let read = move |_: &Self, item: &Item<'_>| {
            let read = read.take().filter(|_| has_value(item))?;
            Some(with_bytes(item, read))
        };
        let result = self.look_up_async(&[key.as_ref()], ReadPurpose::Answer, read).await.pop().flatten();
        self.count(result.is_some());
        result
    }

    /// As [`Pool::contains_key`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// assert!(!cache.contains_key_async("absent").await);
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub async fn contains_key_async(&self, key: impl AsRef<[u8]>) -> bool {
        let commands = self.commands.without_waiting();
        let read = |_: &Self, item: &Item<'_>| has_value(item).then_some(());
        let mut lookups = Lookups::new(self, commands, 1, ReadPurpose::Answer, read);
        let keys = [key.as_ref()];
        let found = poll_fn(|context| lookups.poll(&keys, context)).await;
        found.contains(&Some(()))
    }

    /// As [`Pool::get_range`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("file", "0123456789").await?;
    /// assert_eq!(cache.get_range_async("file", 2, 3).await.unwrap(), b"234");
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub async fn get_range_async(&self, key: impl AsRef<[u8]>, offset: usize, length: usize) -> Option<Vec<u8>> {
        let range = byte_range(offset, length);
        let read = |_: &Pool, item: &Item<'_>| has_value(item).then(|| item.range_to_vec(range));
        let bytes = self.look_up_async(&[key.as_ref()], ReadPurpose::Range(range), read).await.pop().flatten();
        self.count(bytes.is_some());
        bytes
    }

    /// As [`Pool::get_many`]. Flash is read for several keys at once.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("a", "1").await?;
    /// let values = cache.get_many_async(&["a", "b"]).await;
    /// assert!(values[0].is_some() && values[1].is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub async fn get_many_async<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Option<Value>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let read = |_: &Pool, item: &Item<'_>| has_value(item).then(|| Value::of(item));
        let values = self.look_up_async(&keys, ReadPurpose::Answer, read).await;
        values.iter().for_each(|value| self.count(value.is_some()));
        values
    }

    /// Reads the entries of keys, without counting hits and misses.
    pub(super) async fn look_up_async<T>(
        &self,
        keys: &[&[u8]],
        purpose: ReadPurpose,
        read: impl Fn(&Pool, &Item<'_>) -> Option<T>,
    ) -> Vec<Option<T>> {
        let commands = self.commands.without_waiting();
        let mut lookups = Lookups::new(self, commands, keys.len(), purpose, read);
        let values = poll_fn(|context| lookups.poll(keys, context)).await;
        if !lookups.idle.is_empty() {
            let pool = self.without_waiting();
            for key in lookups.idle.iter().map(|i| keys[*i]) {
                // Without memory for a value on flash it lives as long as it would have.
                if pool.promote_async(key).await.is_ok() {
                    self.touch_idle(&pool.commands, key);
                }
            }
        }
        values
    }
}

/// The state of a run of lookups between two polls.
struct Lookups<'p, T, F> {
    pool: &'p Pool,
    commands: memcached::Pool,
    purpose: ReadPurpose,
    read: F,
    /// Keys whose life begins anew with this use.
    idle: Vec<usize>,
    /// The values of the first keys.
    values: Vec<Option<T>>,
    reads: FlashReads,
    /// Of the first key without a value, if flash is read for it.
    probe: Option<FlashProbe>,
    /// Flash was asked for that key, and does not decide.
    memory_decides: bool,
    waker: Arc<WakerCell>,
}

/// The waker of the latest poll.
#[derive(Default)]
pub(super) struct WakerCell(Mutex<Option<Waker>>);

impl WakerCell {
    pub fn set(&self, waker: &Waker) {
        let _old = self.0.lock().expect("nothing panics under this lock").replace(waker.clone());
    }

    /// Wakes the task.
    pub fn read_wake(self: &Arc<Self>) -> ReadWake {
        let cell = Arc::clone(self);
        Box::new(move || {
            let waker = cell.0.lock().expect("nothing panics under this lock").take();
            waker.into_iter().for_each(Waker::wake);
        })
    }
}

impl<'p, T, F: Fn(&Pool, &Item<'_>) -> Option<T>> Lookups<'p, T, F> {
    fn new(pool: &'p Pool, commands: memcached::Pool, keys: usize, purpose: ReadPurpose, read: F) -> Self {
        let (values, reads, idle) = (Vec::with_capacity(keys), FlashReads::default(), Vec::new());
        let (probe, memory_decides, waker) = (None, false, Arc::default());
        Self { pool, commands, purpose, read, idle, values, reads, probe, memory_decides, waker }
    }

    fn poll(&mut self, keys: &[&[u8]], context: &Context<'_>) -> Poll<Vec<Option<T>>> {
        // Ends: each round answers the first key without a value, or asks flash for it once.
        loop {
            if self.probe.is_none() {
                self.look_in_memory(keys);
            }
            let Some(probe) = self.probe else { return Poll::Ready(std::mem::take(&mut self.values)) };
            self.waker.set(context.waker());
            let wake = || self.waker.read_wake();
            let left = &keys[self.values.len()..];
            match self.commands.read_from_flash(&mut self.reads, probe, left, self.purpose, wake) {
                ReadOutcome::Pending => return Poll::Pending,
                ReadOutcome::Hit(item) => {
                    self.idle.extend(self.pool.is_half_idle(&item).then_some(self.values.len()));
                    self.values.push((self.read)(self.pool, &item));
                }
                ReadOutcome::Absent | ReadOutcome::MemoryDecides | ReadOutcome::Refused(_) => {
                    self.memory_decides = true
                }
            }
            self.probe = None;
        }
    }

    /// Answers keys until flash must be asked for one.
    fn look_in_memory(&mut self, keys: &[&[u8]]) {
        let Self { pool, commands, purpose, read, idle, values, reads, probe, memory_decides, .. } = self;
        let first = values.len();
        commands.get_batch_while(&keys[first..], |i, lookup| {
            let hit = lookup.hit();
            if hit.is_none() && !(i == 0 && *memory_decides) {
                *probe = commands.probe_flash(reads, keys[first + i]);
                if let Some(probe) = probe {
                    if let (ReadPurpose::Range(range), true) = (*purpose, i == 0) {
                        *purpose = commands.0.range_purpose(probe, range);
                    }
                    return ControlFlow::Break(());
                }
            }
            idle.extend(hit.as_ref().filter(|item| pool.is_half_idle(item)).map(|_| first + i));
            values.push(hit.and_then(|item| read(pool, &item)));
            ControlFlow::Continue(())
        });
        self.memory_decides = false;
    }
}
