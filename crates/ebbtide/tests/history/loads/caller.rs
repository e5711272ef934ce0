//! One thread that does at random what the library can do to a key, and has the record judge each answer.

use super::{Board, KEYS};
use crate::record::{NEVER, Operation, Returned, What};
use crate::value::{self, COUNTS, Version};
use ebbtide::{Error, InsertOptions, LoadError, LoadOptions, Loaded, Pool, Ttl, Value};
use ebbtide_testkit::Random;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// Number of keys that all threads of a pool use at a time.
const WINDOW: u64 = 6;
const OPERATIONS_PER_WINDOW: u64 = 60;
/// Values that a thread holds.
const HELD: usize = 20;
/// TTL of a negative result.
const NEGATIVE_SECONDS: u32 = 2;
/// A cancelled task was polled this often at most.
const MAX_POLLS: u64 = 40;

/// Why a loader has no value.
#[derive(Debug, PartialEq, Eq)]
struct NoValue;

/// A TTL, and the seconds for which the value stays after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    ttl: Ttl,
    window_seconds: u32,
}

impl Life {
    fn options(self) -> InsertOptions {
        let window = Duration::from_secs(self.window_seconds.into());
        InsertOptions::new().ttl(self.ttl).stale_while_revalidate(window)
    }
}

/// How the loader of a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Value(Life),
    Nothing,
    Failure,
    Panic,
}

/// The loader that a call has run.
#[derive(Clone, Copy, Debug)]
struct Ran {
    operation: Operation,
    ending: Ending,
    /// It is remembered that there is no value.
    is_negative: bool,
}

type Answer = Result<Option<Value>, LoadError<NoValue>>;

pub struct Caller<'a> {
    board: &'a Board<'a>,
    pool: Pool,
    thread: usize,
    random: Random,
    /// Operations under way: those inside of loaders are not the first.
    depth: u32,
    held: Vec<(Value, Vec<u8>)>,
    /// Keys with bytes that they had.
    seen: Vec<(u64, Vec<u8>)>,
    /// An error inside of a loader.
    wrong: Option<String>,
}

fn full(error: &Error) {
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}

impl<'a> Caller<'a> {
    pub fn new(board: &'a Board<'a>, thread: usize, seed: u64) -> Self {
        let random = Random::new(seed << 8 | thread as u64);
        let (held, seen) = (Vec::new(), Vec::new());
        Self { board, pool: board.pool.clone(), thread, random, depth: 0, held, seen, wrong: None }
    }

    /// Plays until all threads together have done `operations`.
    pub fn play(&mut self, operations: u64) {
        let counts = self.board.counts;
        while !self.board.over.load(Relaxed) {
            let done = counts.done.fetch_add(1, Relaxed);
            if done >= operations {
                return counts.done.store(operations, Relaxed);
            }
            let key = self.key(done);
            let stepped = self.step(key);
            if let Err(wrong) = self.wrong.take().map_or(stepped, Err) {
                self.board.over.store(true, Relaxed);
                panic!("operation {done}, thread {}, key {key}: {wrong}", self.thread);
            }
            self.board.record.over(self.thread);
        }
    }

    fn key(&mut self, done: u64) -> u64 {
        if self.random.chance(20) {
            return self.random.uniform(KEYS);
        }
        let window = done / OPERATIONS_PER_WINDOW * WINDOW * 7;
        (window + self.random.uniform(WINDOW)) % KEYS
    }

    fn begin(&self) -> Operation {
        let time = self.board.mover.bounds().earliest;
        match self.depth {
            0 => self.board.record.begin(self.thread, time),
            _ => self.board.record.begin_within(time),
        }
    }

    fn ttl(&mut self) -> Ttl {
        match self.random.uniform(10) {
            0..2 => Ttl::seconds(1 + self.random.uniform(4) as u32),
            2..4 => Ttl::seconds(20 + self.random.uniform(60) as u32),
            _ => Ttl::Never,
        }
    }

    /// A TTL, often a short one with a stale window.
    fn life(&mut self) -> Life {
        if self.random.chance(40) {
            return Life { ttl: Ttl::seconds(1), window_seconds: 1 + self.random.uniform(8) as u32 };
        }
        Life { ttl: self.ttl(), window_seconds: if self.random.chance(30) { 3 } else { 0 } }
    }

    /// The latest time at which a life ends that began up to now.
    fn until(&self, ttl: Ttl) -> u64 {
        match ttl {
            Ttl::Seconds(seconds) => (self.board.mover.bounds().latest / 1000 + u64::from(seconds)) * 1000,
            _ => NEVER,
        }
    }

    /// Records when the value of an operation turns stale. Returns the latest time at which its life ends.
    fn note_life(&self, key: u64, operation: Operation, life: Life) -> u64 {
        let end = self.until(life.ttl);
        if end == NEVER || life.window_seconds == 0 {
            return end;
        }
        self.board.record.turns_stale(key, operation, end);
        end + u64::from(life.window_seconds) * 1000
    }

    fn step(&mut self, key: u64) -> Result<(), String> {
        match self.random.uniform(1000) {
            0..150 => self.get(key),
            150..180 => self.get_many(key),
            180..210 => self.get_ref(key),
            210..380 => self.call(key, |caller, call| caller.load(key, call)),
            380..460 => self.call(key, |caller, call| caller.load_or_nothing(key, call)),
            460..540 => self.call(key, |caller, call| caller.load_in_task(key, call)),
            540..660 => self.insert(key),
            660..710 => self.insert_if_absent(key),
            710..760 => self.compare_and_swap(key),
            760..810 if value::is_number(key) => self.increment(key),
            760..810 => self.touch(key),
            810..840 => self.touch(key),
            840..960 => self.remove(key),
            960..985 => self.take(key),
            985..998 => {
                let by = self.random.uniform(500);
                self.board.move_time(by);
                Ok(())
            }
            _ if self.random.chance(10) => self.flush(),
            _ => Ok(()),
        }
    }

    /// Judges a value that was found in the cache.
    fn look(&mut self, key: u64, operation: Operation, bytes: &[u8], until: u64) -> Result<(), String> {
        let (version, _) = value::read(key, bytes)?;
        self.board.record.saw(key, operation, version, until)?;
        self.board.counts.hits.fetch_add(1, Relaxed);
        self.remember(key, bytes);
        Ok(())
    }

    fn remember(&mut self, key: u64, bytes: &[u8]) {
        if self.seen.len() == HELD {
            self.seen.swap_remove(self.random.uniform(HELD as u64) as usize);
        }
        self.seen.push((key, bytes.to_vec()));
    }

    /// Holds a value, some in place of others.
    fn hold(&mut self, value: Value) {
        assert!(self.held.iter().all(|(value, bytes)| value[..] == bytes[..]), "a held value keeps its bytes");
        if self.held.len() == HELD {
            self.held.swap_remove(self.random.uniform(HELD as u64) as usize);
        }
        let bytes = value.to_vec();
        self.held.push((value, bytes));
    }

    fn get(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        let Some(found) = self.pool.get(value::name(key)) else { return Ok(()) };
        self.look(key, operation, &found, 0)?;
        if self.random.chance(10) {
            self.hold(found);
        }
        Ok(())
    }

    fn get_many(&mut self, first: u64) -> Result<(), String> {
        let keys: Vec<u64> = (0..1 + self.random.uniform(6)).map(|more| (first + more) % KEYS).collect();
        let names: Vec<Vec<u8>> = keys.iter().map(|&key| value::name(key)).collect();
        let operation = self.begin();
        let values = self.pool.get_many(&names);
        keys.into_iter().zip(values).try_for_each(|(key, found)| match found {
            Some(found) => self.look(key, operation, &found, 0),
            None => Ok(()),
        })
    }

    fn get_ref(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        let pool = self.pool.clone();
        let Some(found) = pool.get_ref(value::name(key)) else { return Ok(()) };
        let staleness = self.board.mover.bounds().staleness;
        let until =
            found.ttl().map_or(NEVER, |ttl| (operation.time + ttl.as_millis() as u64).saturating_sub(staleness));
        self.look(key, operation, &found, until)
    }

    /// A loader of this key. It has the moment at which it begins as version.
    fn run_loader(&mut self, key: u64, ran: &mut Option<Ran>, may_be_absent: bool) -> Result<Option<Loaded>, NoValue> {
        let operation = self.board.record.begin_within(self.board.mover.bounds().earliest);
        let version = Version::of_write(operation.begin);
        let ending = match self.random.uniform(100) {
            0..15 => Ending::Failure,
            15..17 => Ending::Panic,
            17..60 if may_be_absent => Ending::Nothing,
            _ => Ending::Value(self.life()),
        };
        let is_negative = may_be_absent && matches!(ending, Ending::Nothing | Ending::Failure);
        self.board.record.change(key, operation, if is_negative { What::Absent } else { What::Loaded(version) });
        *ran = Some(Ran { operation, ending, is_negative });
        if let Err(wrong) = self.meanwhile(key) {
            self.wrong.get_or_insert(wrong);
        }
        match ending {
            Ending::Value(Life { ttl, window_seconds }) => {
                let window = Duration::from_secs(window_seconds.into());
                Ok(Some(Loaded::new(value::of(key, operation.begin)).ttl(ttl).stale_while_revalidate(window)))
            }
            Ending::Nothing => Ok(None),
            Ending::Failure => Err(NoValue),
            Ending::Panic => resume_unwind(Box::new(NoValue)),
        }
    }

    /// Operations of a loader on its own thread.
    fn meanwhile(&mut self, key: u64) -> Result<(), String> {
        self.depth += 1;
        let done = match self.random.uniform(22) {
            0..8 => Ok(()),
            8..13 => {
                (0..self.random.uniform(8)).for_each(|_| thread::yield_now());
                Ok(())
            }
            13 => self.insert(key),
            14 => self.remove(key),
            15 => self.insert_if_absent(key),
            16 => self.take(key),
            20 => self.get(key),
            17..20 if self.depth < 3 => self.call(key, |caller, call| caller.load(key, call)),
            _ => {
                let other = self.random.uniform(KEYS);
                self.insert(other)
            }
        };
        self.depth -= 1;
        done
    }

    /// A call with a loader.
    fn call(&mut self, key: u64, call: impl FnOnce(&mut Self, Operation) -> Result<(), String>) -> Result<(), String> {
        let operation = self.begin();
        self.board.record.called(key, operation);
        let judged = call(self, operation);
        self.board.record.call_over(key, operation);
        judged
    }

    fn load(&mut self, key: u64, operation: Operation) -> Result<(), String> {
        let (pool, mut ran) = (self.pool.clone(), None);
        let called = catch_unwind(AssertUnwindSafe(|| {
            let load = || self.run_loader(key, &mut ran, false).map(|loaded| loaded.expect("it may not be absent"));
            pool.try_get_or_insert_with(value::name(key), load).map(Some)
        }));
        self.conclude(key, operation, ran, called.ok())
    }

    fn load_or_nothing(&mut self, key: u64, operation: Operation) -> Result<(), String> {
        let (pool, mut ran) = (self.pool.clone(), None);
        let called = catch_unwind(AssertUnwindSafe(|| {
            let options = LoadOptions::new().negative_ttl(Duration::from_secs(NEGATIVE_SECONDS.into()));
            pool.get_or_load(value::name(key), options, || self.run_loader(key, &mut ran, true))
        }));
        self.conclude(key, operation, ran, called.ok())
    }

    /// A load in a task that may be cancelled, before, in or after its loader.
    fn load_in_task(&mut self, key: u64, operation: Operation) -> Result<(), String> {
        let (pool, mut ran) = (self.pool.clone(), None);
        let (pauses, polls) = (self.random.uniform(3), 1 + self.random.uniform(MAX_POLLS));
        let called = catch_unwind(AssertUnwindSafe(|| {
            let load = async {
                let loaded = self.run_loader(key, &mut ran, false);
                for _ in 0..pauses {
                    pause().await;
                }
                loaded.map(|loaded| loaded.expect("it may not be absent"))
            };
            poll_some(pool.try_get_or_insert_with_async(value::name(key), load), polls)
        }));
        match called {
            Ok(Some(answer)) => self.conclude(key, operation, ran, Some(answer.map(Some))),
            // It was published, or not.
            Ok(None) => match ran {
                Some(Ran { operation, ending: Ending::Value(life), .. }) => {
                    self.board.counts.failed.fetch_add(1, Relaxed);
                    self.board.record.loaded(key, operation, self.note_life(key, operation, life));
                    Ok(())
                }
                Some(ran) => self.board.record.unchanged(key, ran.operation),
                None => Ok(()),
            },
            Err(_) => self.conclude(key, operation, ran, None),
        }
    }

    /// Judges the answer of a call with a loader; `None` if it has panicked.
    fn conclude(&mut self, key: u64, call: Operation, ran: Option<Ran>, answer: Option<Answer>) -> Result<(), String> {
        let (record, counts) = (self.board.record, self.board.counts);
        let Some(Ran { operation, ending, is_negative }) = ran else {
            return self.conclude_without_loader(key, call, answer);
        };
        match (ending, answer) {
            (Ending::Value(life), Some(Ok(Some(found)))) if found[..] == value::of(key, operation.begin)[..] => {
                counts.loaded.fetch_add(1, Relaxed);
                self.remember(key, &found);
                self.board.record.loaded(key, operation, self.note_life(key, operation, life));
                Ok(())
            }
            (Ending::Nothing, Some(Ok(None))) | (Ending::Failure, Some(Err(LoadError::Loader(NoValue)))) => {
                counts.failed.fetch_add(1, Relaxed);
                if !is_negative {
                    return record.unchanged(key, operation);
                }
                record.loaded(key, operation, self.until(Ttl::seconds(NEGATIVE_SECONDS)));
                Ok(())
            }
            (Ending::Panic, None) => {
                counts.failed.fetch_add(1, Relaxed);
                record.unchanged(key, operation)
            }
            (ending, answer) => Err(format!("a loader with {ending:?}, and the answer {answer:?}")),
        }
    }

    fn conclude_without_loader(&mut self, key: u64, call: Operation, answer: Option<Answer>) -> Result<(), String> {
        let (record, counts) = (self.board.record, self.board.counts);
        match answer {
            Some(Ok(Some(found))) => {
                let (version, _) = value::read(key, &found)?;
                match record.returned(key, call, version)? {
                    Returned::Found => {}
                    Returned::Loaded => _ = counts.joined.fetch_add(1, Relaxed),
                    Returned::Stale => _ = counts.stale.fetch_add(1, Relaxed),
                }
                self.remember(key, &found);
                Ok(())
            }
            Some(Ok(None) | Err(LoadError::Cache(Error::KnownAbsent { .. } | Error::KnownFailure { .. }))) => {
                counts.absent.fetch_add(1, Relaxed);
                record.was_absent(key, call)
            }
            Some(Err(LoadError::Cache(Error::RecursiveLoad { .. }))) if self.depth > 0 => Ok(()),
            answer => Err(format!("without a loader the answer {answer:?}")),
        }
    }

    fn insert(&mut self, key: u64) -> Result<(), String> {
        let (operation, life) = (self.begin(), self.life());
        let record = self.board.record;
        record.change(key, operation, What::Value(Version::of_write(operation.begin)));
        let bytes = value::of(key, operation.begin);
        match self.pool.insert_with(value::name(key), bytes, life.options()) {
            Ok(()) => {
                record.changed(key, operation, self.note_life(key, operation, life));
                Ok(())
            }
            Err(error) => {
                full(&error);
                record.ended(key, operation)
            }
        }
    }

    /// Records a write that depends on what there was. Returns whether it was made.
    fn written(
        &self,
        key: u64,
        operation: Operation,
        life: Life,
        answer: &Result<bool, Error>,
    ) -> Result<bool, String> {
        if *answer == Ok(true) {
            self.board.record.changed(key, operation, self.note_life(key, operation, life));
            return Ok(true);
        }
        answer.as_ref().err().into_iter().for_each(full);
        self.board.record.unchanged(key, operation).map(|()| false)
    }

    fn insert_if_absent(&mut self, key: u64) -> Result<(), String> {
        let (operation, life) = (self.begin(), self.life());
        let record = self.board.record;
        record.change(key, operation, What::Value(Version::of_write(operation.begin)));
        let (name, bytes) = (value::name(key), value::of(key, operation.begin));
        let answer = self.pool.insert_if_absent(name, bytes, life.options());
        if answer == Ok(false) {
            record.found(key, operation)?;
        }
        self.written(key, operation, life, &answer).map(drop)
    }

    fn compare_and_swap(&mut self, key: u64) -> Result<(), String> {
        let position = self.seen.iter().rposition(|(seen, _)| *seen == key).or(self.seen.len().checked_sub(1));
        let Some(position) = position else { return Ok(()) };
        let (key, expected) = self.seen.swap_remove(position);
        let (operation, life) = (self.begin(), self.life());
        self.board.record.change(key, operation, What::Value(Version::of_write(operation.begin)));
        let (name, bytes) = (value::name(key), value::of(key, operation.begin));
        let answer = self.pool.compare_and_swap(name, &expected, bytes, life.options());
        if self.written(key, operation, life, &answer)? {
            let (version, _) = value::read(key, &expected)?;
            self.board.record.replaced(key, operation, version)?;
        }
        Ok(())
    }

    fn increment(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        let record = self.board.record;
        record.change(key, operation, What::Count);
        match self.pool.increment(value::name(key), 1) {
            Ok(Some(number)) => {
                let version = value::of_number(number);
                record.counted(key, operation, version)?;
                if version.counts > COUNTS / 2 { self.insert(key) } else { Ok(()) }
            }
            missed => {
                missed.as_ref().err().into_iter().for_each(full);
                record.unchanged(key, operation)
            }
        }
    }

    fn touch(&mut self, key: u64) -> Result<(), String> {
        let (operation, ttl) = (self.begin(), self.ttl());
        let record = self.board.record;
        record.change(key, operation, What::Touch);
        match self.pool.touch(value::name(key), ttl) {
            Ok(true) => {
                record.found(key, operation)?;
                record.changed(key, operation, self.until(ttl));
                Ok(())
            }
            missed => {
                missed.as_ref().err().into_iter().for_each(full);
                record.unchanged(key, operation)
            }
        }
    }

    fn remove(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        self.board.record.change(key, operation, What::Gone);
        self.pool.remove(value::name(key));
        self.board.record.ended(key, operation)
    }

    fn take(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        self.board.record.change(key, operation, What::Gone);
        match self.pool.take(value::name(key)) {
            Ok(Some(taken)) => {
                self.look(key, operation, &taken, 0)?;
                self.board.record.ended(key, operation)
            }
            missed => {
                missed.as_ref().err().into_iter().for_each(full);
                self.board.record.unchanged(key, operation)
            }
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let operation = self.begin();
        self.pool.invalidate_all();
        self.board.record.flushed(operation);
        Ok(())
    }
}

/// Waits until the task is polled again.
async fn pause() {
    let mut is_over = false;
    poll_fn(|_| if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Polls a task a number of times; `None` if it is not over then, and so cancelled.
fn poll_some<T>(task: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut task = pin!(task);
    for _ in 0..polls {
        if let Poll::Ready(done) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        thread::yield_now();
    }
    None
}
