//! Histories of keys, and the values that may still be read of each.
//!
//! Each begin and end gets a moment of one clock. An operation takes effect at an unknown moment between its two. So a
//! value is stale for a read if another write began after its end, and ended before the read began. A write whose value
//! was read had taken effect by then: it counts as ended.
//!
//! A load takes effect when its loader begins, or not at all: it is published only if the key has not changed since the
//! miss, which is earlier. So a loaded value is stale for a read if a write began after the loader, and ended before
//! the read began. A load counts as published when a read has found its value: then it has replaced the value before.
//!
//! A value with a stale window lives until the end of the window. After its TTL a call with a loader returns it without
//! its own loader only while another such call for the key is under way.

use crate::value::Version;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// End of an event under way, and of a life without end.
pub const NEVER: u64 = u64::MAX;
/// Last events of each key that an error shows.
const PAST: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Value(Version),
    /// An increment that is under way: its result is not known yet.
    Count,
    /// A new life for the present value.
    Touch,
    /// A touch that may not have happened.
    PerhapsTouch,
    /// A delete, a flush, a write that failed.
    Gone,
    /// A load that nobody has found in the cache.
    Loaded(Version),
    /// The negative result of a load.
    Absent,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub begin: u64,
    pub end: u64,
    pub what: What,
    /// The latest time at which its life may end, in milliseconds.
    pub until: u64,
    /// The latest time at which its TTL may end before a stale window.
    stale_from: u64,
    seen: bool,
    /// A load: a change that began after it has ended it, whenever it is over.
    is_load: bool,
}

/// An operation that has started.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub begin: u64,
    /// The cache's time was at least this.
    pub time: u64,
}

/// Where the value comes from that a call with a loader has returned without running it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The cache.
    Found,
    /// A load, of this caller earlier, or of another one.
    Loaded,
    /// Either, after the end of its TTL.
    Stale,
}

/// Value that an operation read.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    pub operation: Operation,
    pub end: u64,
    pub version: Version,
    /// It was said to live at least until then.
    pub until: u64,
}

#[derive(Default)]
struct Key {
    events: Vec<Event>,
    /// Numbers that were seen while those were counting who will tell that they made them.
    open: Vec<Sight>,
    /// Begins of appends, each with the writes whose values it may have found.
    appends: Vec<(u64, Vec<u64>)>,
    /// Begins and ends of calls with a loader.
    calls: Vec<(u64, u64)>,
    /// For the report of a violation: operations and their results.
    past: VecDeque<(&'static str, Event)>,
}

pub struct Record {
    clock: AtomicU64,
    /// By thread, a moment not after the begin of its operation.
    busy: Vec<AtomicU64>,
    keys: Vec<Mutex<Key>>,
}

impl Record {
    pub fn new(keys: u64, threads: usize) -> Self {
        Self {
            clock: AtomicU64::new(1),
            busy: (0..threads).map(|_| AtomicU64::new(NEVER)).collect(),
            keys: (0..keys).map(|_| Mutex::default()).collect(),
        }
    }

    pub fn begin(&self, thread: usize, time: u64) -> Operation {
        self.busy[thread].store(self.clock.load(SeqCst), SeqCst);
        Operation { begin: self.moment(), time }
    }

    /// An operation inside of another one of its thread.
    pub fn begin_within(&self, time: u64) -> Operation {
        Operation { begin: self.moment(), time }
    }

    pub fn over(&self, thread: usize) {
        self.busy[thread].store(NEVER, SeqCst);
    }

    fn moment(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    fn key(&self, key: u64) -> MutexGuard<'_, Key> {
        self.keys[key as usize].lock().expect("a thread has seen something wrong")
    }

    /// An operation is about to change a key, if it succeeds.
    pub fn change(&self, key: u64, operation: Operation, what: What) {
        let is_load = matches!(what, What::Loaded(_) | What::Absent);
        let (begin, end, until, stale_from) = (operation.begin, NEVER, NEVER, NEVER);
        self.key(key).events.push(Event { begin, end, what, until, stale_from, seen: false, is_load });
    }

    /// The operation has changed the key, to a life that ends at this time at the latest.
    pub fn changed(&self, key: u64, operation: Operation, until: u64) {
        let end = self.moment();
        let mut key = self.key(key);
        let event = key.event(operation);
        (event.end, event.until) = (event.end.min(end), until);
        key.note("done", operation);
        self.forget(&mut key);
    }

    /// A load is over, and was published or not: to a life that ends at this time at the latest.
    pub fn loaded(&self, key: u64, operation: Operation, until: u64) {
        let mut key = self.key(key);
        key.event(operation).until = until;
        key.note("loaded", operation);
        self.forget(&mut key);
    }

    /// The value of an operation that has not ended yet may be served after this time, when its TTL has ended.
    pub fn turns_stale(&self, key: u64, operation: Operation, from: u64) {
        self.key(key).event(operation).stale_from = from;
    }

    /// A call with a loader begins.
    pub fn called(&self, key: u64, operation: Operation) {
        self.key(key).calls.push((operation.begin, NEVER));
    }

    /// A call with a loader is over, or was cancelled.
    pub fn call_over(&self, key: u64, operation: Operation) {
        let end = self.moment();
        let mut key = self.key(key);
        let call = key.calls.iter_mut().find(|call| call.0 == operation.begin).expect("it is under way");
        call.1 = end;
        self.forget(&mut key);
    }

    /// Judges what a call with a loader has returned that has not run its own: something of the cache, or the value of
    /// another load, of which nobody knows whether it was published.
    pub fn returned(&self, key: u64, operation: Operation, version: Version) -> Result<Returned, String> {
        let end = self.moment();
        let mut key = self.key(key);
        let event = key.event_of(version);
        let load = event.filter(|event| event.is_load);
        match load {
            Some(load) => key.check_current(load, operation)?,
            None => key.see(Sight { operation, end, version, until: 0 })?,
        }
        let is_other = |call: &&(u64, u64)| call.0 != operation.begin && call.0 < end && call.1 > operation.begin;
        match event.filter(|event| event.stale_from <= operation.time) {
            Some(event) if key.calls.iter().find(is_other).is_none() => {
                Err(format!("{operation:?} got {event:?} after its TTL, and nobody loads; {:#?}", key.past))
            }
            Some(_) => Ok(Returned::Stale),
            None => Ok(if load.is_some() { Returned::Loaded } else { Returned::Found }),
        }
    }

    /// Judges that a key had a negative result.
    pub fn was_absent(&self, key: u64, operation: Operation) -> Result<(), String> {
        let key = self.key(key);
        let is_current = |event: &&Event| event.what == What::Absent && key.successor(event, operation.begin).is_none();
        match key.events.iter().filter(is_current).any(|event| event.until > operation.time) {
            true => Ok(()),
            false => Err(format!("a negative result was found that has no load; {:#?}", key.past)),
        }
    }

    /// The operation has changed nothing.
    pub fn unchanged(&self, key: u64, operation: Operation) -> Result<(), String> {
        let mut key = self.key(key);
        let event = *key.event(operation);
        key.note("refused", operation);
        key.events.retain(|event| event.begin != operation.begin);
        self.look_again(&mut key)?;
        if event.seen { Err(format!("{event:?} was read, but failed")) } else { Ok(()) }
    }

    /// The operation reported nothing to touch. Its touch may have happened, if the value was evicted before the
    /// operation read it again.
    pub fn perhaps_touched(&self, key: u64, operation: Operation, until: u64) {
        self.key(key).event(operation).what = What::PerhapsTouch;
        self.changed(key, operation, until);
    }

    /// The operation ended the key's value, whatever else it was to do.
    pub fn ended(&self, key: u64, operation: Operation) -> Result<(), String> {
        let end = self.moment();
        let mut key = self.key(key);
        let event = key.event(operation);
        let before = *event;
        (event.what, event.end) = (What::Gone, end);
        key.note("ended", operation);
        self.forget(&mut key);
        if before.seen { Err(format!("{before:?} was read, but failed")) } else { Ok(()) }
    }

    /// The operation has put something behind the key's value.
    pub fn extended(&self, key: u64, operation: Operation) {
        let until = {
            let mut key = self.key(key);
            let before: Vec<Event> = key.current(operation).collect();
            key.appends.push((operation.begin, before.iter().map(|event| event.begin).collect()));
            before.into_iter().map(|event| key.latest_life(event, operation.begin)).max().unwrap_or(0)
        };
        self.changed(key, operation, until);
    }

    /// Judges the version before an append, in a value that was read.
    pub fn follows(&self, key: u64, append: Version, before: Version) -> Result<(), String> {
        let key = self.key(key);
        // One that is not over yet is in no list.
        let follows = |(begin, after): &(u64, Vec<u64>)| *begin != append.written || after.contains(&before.written);
        match key.appends.iter().all(follows) {
            true => Ok(()),
            false => Err(format!(
                "{append:?} was put behind {before:?}, which was stale; {:?}, {:#?}",
                key.appends, key.past
            )),
        }
    }

    /// All keys have ended.
    pub fn flushed(&self, operation: Operation) {
        let end = self.moment();
        for key in 0..self.keys.len() as u64 {
            self.change(key, operation, What::Gone);
            let mut key = self.key(key);
            key.event(operation).end = end;
            key.note("flushed", operation);
            self.forget(&mut key);
        }
    }

    /// The operation has counted the key's number up by one, to this.
    pub fn counted(&self, key: u64, operation: Operation, to: Version) -> Result<(), String> {
        let end = self.moment();
        let mut key = self.key(key);
        let twin = key.events.iter().find(|event| event.what == What::Value(to)).copied();
        let from = Version { counts: to.counts.wrapping_sub(1), ..to };
        let counted = key.event_of(from);
        let until = counted.map_or(NEVER, |event| key.latest_life(event, operation.begin));
        let event = key.event(operation);
        (event.what, event.end, event.until) = (What::Value(to), end, until);
        event.stale_from = counted.map_or(NEVER, |counted| counted.stale_from);
        key.note("counted", operation);
        if let Some(twin) = twin {
            return Err(format!("counted to {to:?}, as {twin:?} did"));
        }
        key.see(Sight { operation, end, version: from, until: operation.time })?;
        self.look_again(&mut key)?;
        self.forget(&mut key);
        Ok(())
    }

    /// Judges a value that an operation read.
    pub fn saw(&self, key: u64, operation: Operation, version: Version, until: u64) -> Result<(), String> {
        let end = self.moment();
        self.key(key).see(Sight { operation, end, version, until })
    }

    /// Judges that an operation took the place of this version.
    pub fn replaced(&self, key: u64, operation: Operation, version: Version) -> Result<(), String> {
        self.saw(key, operation, version, 0)
    }

    /// Judges that an operation found something.
    pub fn found(&self, key: u64, operation: Operation) -> Result<(), String> {
        let key = self.key(key);
        let is_alive = |event: Event| key.latest_life(event, operation.begin) > operation.time;
        match key.current(operation).any(is_alive) {
            true => Ok(()),
            false => Err(format!("something was found, though all is gone; {:#?}", key.past)),
        }
    }

    /// Checks, when no operation is under way, that each value read is known.
    pub fn verify(&self) -> Result<(), String> {
        (0..self.keys.len() as u64).try_for_each(|key| self.look_again(&mut self.key(key)))
    }

    fn look_again(&self, key: &mut Key) -> Result<(), String> {
        std::mem::take(&mut key.open).into_iter().try_for_each(|sight| key.see(sight))
    }

    /// Drops events that no operation can see, whether under way or later.
    fn forget(&self, key: &mut Key) {
        // The clock first: a thread that is not seen busy begins after this.
        let now = self.clock.load(SeqCst);
        let busy = self.busy.iter().map(|thread| thread.load(SeqCst)).min().unwrap_or(NEVER);
        let open = key.open.iter().map(|sight| sight.operation.begin).min().unwrap_or(NEVER);
        let bound = now.min(busy).min(open);
        let latest = |events: &[Event], ends: fn(What) -> bool| {
            let over = events.iter().filter(|event| event.end < bound && ends(event.what));
            over.map(|event| event.begin).max().unwrap_or(0)
        };
        let end = latest(&key.events, What::ends_others);
        let touch = latest(&key.events, |what| what == What::Touch);
        key.events.retain(|event| event.last() >= end && (!event.what.is_touch() || event.end >= touch));
        let Key { events, appends, calls, .. } = key;
        appends.retain(|append| events.iter().any(|event| event.begin == append.0));
        calls.retain(|call| call.1 >= bound);
    }
}

impl What {
    fn ends_others(self) -> bool {
        matches!(self, Self::Value(_) | Self::Gone)
    }

    /// Whether it leaves what the key has.
    fn is_touch(self) -> bool {
        matches!(self, Self::Count | Self::Touch | Self::PerhapsTouch)
    }
}

impl Event {
    /// A change that begins later has ended it when that is over.
    fn last(&self) -> u64 {
        if self.is_load { self.begin } else { self.end }
    }
}

impl Key {
    fn event(&mut self, operation: Operation) -> &mut Event {
        let mut events = self.events.iter_mut();
        events.find(|event| event.begin == operation.begin).expect("what is under way is not forgotten")
    }

    fn note(&mut self, what: &'static str, operation: Operation) {
        let event = *self.event(operation);
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back((what, event));
    }

    fn event_of(&self, version: Version) -> Option<Event> {
        let is_of = |event: &&Event| event.what == What::Value(version) || event.what == What::Loaded(version);
        self.events.iter().find(is_of).copied()
    }

    /// Events that an operation may find, except its own.
    fn current(&self, operation: Operation) -> impl Iterator<Item = Event> {
        let is_value = |event: &&Event| matches!(event.what, What::Value(_) | What::Count | What::Loaded(_));
        let others = self.events.iter().filter(is_value).filter(move |event| event.begin != operation.begin);
        others.filter(move |event| self.successor(event, operation.begin).is_none()).copied()
    }

    /// Event that ended this one before the given moment.
    fn successor(&self, event: &Event, before: u64) -> Option<&Event> {
        self.events.iter().find(|later| later.what.ends_others() && later.begin > event.last() && later.end < before)
    }

    /// Latest end of a value's life, for an operation that looks at this moment.
    fn latest_life(&self, value: Event, moment: u64) -> u64 {
        let touches = || self.events.iter().filter(|event| event.what.is_touch() && event.end >= value.begin);
        let lives = touches().filter(|event| event.what != What::Count).chain([&value]);
        let is_later =
            |later: &Event, life: &Event| later.what == What::Touch && later.begin > life.end && later.end < moment;
        let is_last = |life: &&Event| !touches().any(|later| is_later(later, life));
        let last = lives.filter(is_last);
        last.map(|life| life.until).max().unwrap_or(0)
    }

    fn see(&mut self, sight: Sight) -> Result<(), String> {
        let Sight { operation, end, version, until } = sight;
        let Some(event) = self.event_of(version) else {
            let counting = |event: &Event| event.what == What::Count && event.begin < end;
            if version.counts > 0 && self.events.iter().any(counting) {
                self.open.push(sight);
                return Ok(());
            }
            return Err(format!("{sight:?} is of no write that may be current; {:#?}", self.past));
        };
        self.check_current(event, operation)?;
        let latest = self.latest_life(event, operation.begin);
        if latest <= operation.time || latest < until {
            return Err(format!("{sight:?} lives too long, {latest} at most; {:#?}", self.past));
        }
        let event = self.events.iter_mut().find(|other| other.begin == event.begin).expect("it was found");
        (event.end, event.seen) = (event.end.min(end), true);
        if let What::Loaded(version) = event.what {
            // It was published, and had ended what was before.
            event.what = What::Value(version);
        }
        Ok(())
    }

    fn check_current(&self, event: Event, operation: Operation) -> Result<(), String> {
        match self.successor(&event, operation.begin) {
            None => Ok(()),
            Some(successor) => {
                Err(format!("{operation:?} got a stale value: {event:?} came before {successor:?}; {:#?}", self.past))
            }
        }
    }
}
