//! get, gets, gat and gats.
//!
//! Consecutive gets of one read, however many keys each has, form runs of up to [`RUN_KEYS`] keys, and each run is one
//! batch for the cache. A gat is a write and is executed key by key.
//!
//! When the output is full in the middle of a run the remaining keys are not answered: the caller is told where in the
//! input the first of them stands, sends what there is, and parses on from there.

use ebbtide::{Handle, Item, Lookup};
use ebbtide_protocol::{Get, reply};

use super::Executor;
use super::expiry::{ttl, unix_now};
use crate::observe::Command;
use crate::output::Output;

/// Keys per batch: enough to overlap all the memory accesses a core can have in flight several times over.
pub const RUN_KEYS: usize = 64;
/// Values from here on are not copied but sent from where they lie in the cache.
const STREAM_BYTES: usize = 64 << 10;
/// The largest value that is copied after all, when the cache does not let more memory be pinned.
const COPY_BYTES: usize = 1 << 20;

/// Gets that wait to be executed together.
pub struct GetRun<'a> {
    keys: [&'a [u8]; RUN_KEYS],
    marks: [Mark; RUN_KEYS],
    length: usize,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// Where in the input the key stands.
    position: u32,
    with_cas: bool,
    /// The command ends with this key.
    last: bool,
}

/// Where to go on parsing when not all keys were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub position: usize,
    pub with_cas: bool,
    pub touch: Option<i32>,
}

impl<'a> GetRun<'a> {
    pub fn new() -> Self {
        Self { keys: [&[]; RUN_KEYS], marks: [Mark::default(); RUN_KEYS], length: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.length == RUN_KEYS
    }

    pub fn push(&mut self, key: &'a [u8], position: usize, with_cas: bool) {
        self.keys[self.length] = key;
        self.marks[self.length] = Mark { position: position as u32, with_cas, last: false };
        self.length += 1;
    }

    /// The key pushed last is the last of its command.
    pub fn end_command(&mut self) {
        self.marks[self.length - 1].last = true;
    }
}

impl Executor {
    /// Answers a run and empties it. `failed` is true while the rest of a command is not answered any more, because
    /// an error has taken its place.
    pub fn get_run(&self, run: &mut GetRun<'_>, failed: &mut bool, output: &mut Output) -> Result<(), Unanswered> {
        if run.length == 0 {
            return Ok(());
        }
        let marks = &run.marks[..run.length];
        let keys = &run.keys[..run.length];
        let (mut hits, mut misses) = (0, 0);
        let mut unanswered = None;
        let told = self.tells_fetches();
        self.cache.get_batch(keys, |index, lookup| {
            let mark = marks[index];
            if unanswered.is_some() || output.is_full() {
                unanswered.get_or_insert(Unanswered {
                    position: mark.position as usize,
                    with_cas: mark.with_cas,
                    touch: None,
                });
                return;
            }
            if told {
                self.tell_fetch(keys[index], lookup.item().map(Item::len));
            }
            match lookup {
                Lookup::Hit(_) if *failed => {}
                Lookup::Hit(item) => {
                    hits += 1;
                    *failed = !write_item(keys[index], &item, mark.with_cas, output);
                }
                Lookup::Miss => misses += 1,
            }
            if mark.last {
                end_get(failed, output);
            }
        });
        if self.probe.is_sampling() && unanswered.is_none() {
            let commands = marks.iter().filter(|mark| mark.last).count();
            self.probe.note_gets(self.samples(), keys, commands);
        }
        run.length = 0;
        self.counters().get_hits.add(hits);
        self.counters().get_misses.add(misses);
        unanswered.map_or(Ok(()), Err)
    }

    /// Executes gat and gats.
    pub fn get_and_touch(
        &self,
        get: &Get<'_>,
        exptime: i32,
        input: &[u8],
        failed: &mut bool,
        output: &mut Output,
    ) -> Result<(), Unanswered> {
        let ttl = ttl(exptime, unix_now);
        for key in get.keys.clone() {
            if output.is_full() {
                return Err(Unanswered {
                    position: position_in(input, key),
                    with_cas: get.with_cas,
                    touch: Some(exptime),
                });
            }
            if *failed {
                continue;
            }
            let lookup = self.cache.get_and_touch(key, ttl);
            if let Ok(lookup) = &lookup
                && self.tells_fetches()
            {
                self.tell_fetch(key, lookup.item().map(Item::len));
            }
            match lookup {
                Ok(Lookup::Hit(item)) => {
                    self.counters().touch_hits.add(1);
                    *failed = !write_item(key, &item, get.with_cas, output);
                }
                Ok(Lookup::Miss) => self.counters().touch_misses.add(1),
                Err(_) => {
                    *failed = true;
                    output.bytes().extend_from_slice(reply::OUT_OF_MEMORY_WRITING);
                }
            }
        }
        if get.last {
            end_get(failed, output);
            self.probe.note(self.samples(), Command::GetAndTouch, get.keys.clone().next());
        }
        Ok(())
    }
}

/// Ends the answer of a command, unless an error has ended it.
pub fn end_get(failed: &mut bool, output: &mut Output) {
    if !std::mem::take(failed) {
        output.bytes().extend_from_slice(reply::END);
    }
}

/// Where in `input` the subslice `key` begins.
pub fn position_in(input: &[u8], key: &[u8]) -> usize {
    key.as_ptr() as usize - input.as_ptr() as usize
}

/// How a value is sent.
pub enum Payload {
    Copy,
    /// From where it lies.
    Stream(Handle),
    /// It can neither be pinned nor copied.
    Refused,
}

#[inline]
pub fn payload(item: &Item<'_>) -> Payload {
    let length = item.len();
    if length < STREAM_BYTES {
        return Payload::Copy;
    }
    match item.to_handle() {
        Ok(handle) => Payload::Stream(handle),
        Err(_) if length <= COPY_BYTES => Payload::Copy,
        Err(_) => Payload::Refused,
    }
}

/// False if the value can neither be pinned nor copied: then an error has been answered.
fn write_item(key: &[u8], item: &Item<'_>, with_cas: bool, output: &mut Output) -> bool {
    let payload = payload(item);
    if let Payload::Refused = payload {
        output.bytes().extend_from_slice(reply::OUT_OF_MEMORY_WRITING);
        return false;
    }
    let cas = with_cas.then(|| item.cas());
    reply::value_header(output.bytes(), key, item.flags(), item.len(), cas);
    match payload {
        Payload::Stream(handle) => output.push_value(handle),
        Payload::Copy | Payload::Refused => item.copy_to(output.bytes()),
    }
    output.bytes().extend_from_slice(reply::LINE_END);
    true
}
