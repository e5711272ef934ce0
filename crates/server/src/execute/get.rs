//! get, gets, gat and gats, and plain mg.
//!
//! Consecutive gets and plain mgs of one read form runs of up to [`RUN_KEYS`] keys, and each run is one batch for the
//! cache. A gat is a write and is executed key by key. An mg that finds a stale item is a write, too: it ends the
//! batch, and another batch continues behind it. So does a key that only flash may have (`execute/flash_reads.rs`); a
//! get that needs only value, key and client flags may be answered from flash.
//!
//! When the output is full in the middle of a run, the remaining keys are not answered: the caller learns the position
//! of the first of them in the input, sends the output, and continues parsing there.

use std::ops::ControlFlow;

use ebbtide::memcached::{FlashProbe, Item, Lookup};
use ebbtide_protocol::{Get, Keys, Meta, Parser, Request, Step, reply};

use super::Executor;
use super::flash_reads::{FlashOutcome, KeyPresence};
use super::meta::{Uses, answer_hit, answer_miss, can_win_recache};
use super::payload::{Payload, payload, send};
use crate::observe::CommandKind;
use crate::output::Output;

/// Keys per batch: several times the number of memory accesses that a core can have in flight.
pub const RUN_KEYS: usize = 64;
/// The word that an mg begins with.
const META_GET: &[u8] = b"mg";
/// Flags of an mg that need the item in memory: its token and its earlier uses.
const NEEDS_MEMORY: [u8; 3] = [b'c', b'h', b'l'];
/// Gets that wait to be executed together.
pub struct GetRun<'a> {
    /// The input that holds the keys.
    input: &'a [u8],
    keys: [&'a [u8]; RUN_KEYS],
    run_keys: [RunKey; RUN_KEYS],
    length: usize,
}

#[derive(Clone, Copy, Default)]
struct RunKey {
    /// Position in the input to continue from if the key is not answered: the key, or the line of an mg.
    position: u32,
    /// Of an mg: the length of its flags, which follow the key.
    flag_bytes: u16,
    form: AnswerForm,
    /// True for the last key of a command.
    last: bool,
}

/// How a key is answered.
#[derive(Clone, Copy, Default)]
enum AnswerForm {
    #[default]
    Get,
    GetWithCas,
    Meta {
        value: bool,
        quiet: bool,
        /// No flag needs the item in memory.
        is_plain: bool,
    },
}

impl AnswerForm {
    /// True when the key can be answered from flash.
    fn is_plain(self) -> bool {
        matches!(self, Self::Get | Self::Meta { is_plain: true, .. })
    }
}

/// Where parsing continues when not all keys were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub position: usize,
    pub rest: Rest,
}

/// Syntax at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    Line,
    Keys { with_cas: bool, touch: Option<i32> },
}

/// Why a batch ended before its run, with the number of the key.
enum RunStop {
    Full(usize),
    Visit(usize, Uses),
    OnFlash(usize, FlashProbe),
}

/// Start of the line of an mg with this key, without leading spaces. The bytes before it need not end a line: a refused
/// value is skipped by its length.
pub fn line_of(input: &[u8], key: &[u8]) -> usize {
    input[..position_in(input, key)].trim_ascii_end().len() - META_GET.len()
}

impl<'a> GetRun<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, keys: [&[]; RUN_KEYS], run_keys: [RunKey::default(); RUN_KEYS], length: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.length == RUN_KEYS
    }

    pub fn push(&mut self, key: &'a [u8], position: usize, with_cas: bool) {
        let form = if with_cas { AnswerForm::GetWithCas } else { AnswerForm::Get };
        self.add(key, RunKey { position: position as u32, flag_bytes: 0, form, last: false });
    }

    /// Adds a plain mg.
    pub fn push_meta(&mut self, meta: &Meta<'a>) {
        let key = meta.key_word();
        let flags = meta.flag_bytes();
        // A line of commands is shorter than 16 KiB.
        let (position, flag_bytes) = (line_of(self.input, key) as u32, flags.len() as u16);
        let is_plain = !NEEDS_MEMORY.iter().any(|flag| meta.has(*flag));
        let form = AnswerForm::Meta { value: meta.has(b'v'), quiet: meta.has(b'q'), is_plain };
        self.add(key, RunKey { position, flag_bytes, form, last: true });
    }

    fn add(&mut self, key: &'a [u8], run_key: RunKey) {
        self.keys[self.length] = key;
        self.run_keys[self.length] = run_key;
        self.length += 1;
    }

    /// Marks the key pushed last as the last one of its command.
    pub fn end_command(&mut self) {
        self.run_keys[self.length - 1].last = true;
    }

    /// Empties the run at a key that is not answered.
    fn stop_at(&mut self, index: usize) -> Unanswered {
        self.length = 0;
        self.unanswered(index)
    }

    fn unanswered(&self, index: usize) -> Unanswered {
        let run_key = self.run_keys[index];
        let position = run_key.position as usize;
        let rest = match run_key.form {
            AnswerForm::Get => Rest::Keys { with_cas: false, touch: None },
            AnswerForm::GetWithCas => Rest::Keys { with_cas: true, touch: None },
            AnswerForm::Meta { .. } => Rest::Line,
        };
        Unanswered { position, rest }
    }

    /// The flags of the mg with this number.
    fn flags(&self, index: usize) -> Keys<'a> {
        let key = self.keys[index];
        let start = position_in(self.input, key) + key.len();
        Meta::flags_in(&self.input[start..start + usize::from(self.run_keys[index].flag_bytes)])
    }
}

impl Executor {
    /// Answers a run and empties it. `failed` is true while an error has replaced the rest of a command's answer.
    pub fn get_run(&self, run: &mut GetRun<'_>, failed: &mut bool, output: &mut Output) -> Result<(), Unanswered> {
        let mut from = 0;
        // The first key has been looked for on flash: memory decides.
        let mut memory_decides = false;
        while from < run.length {
            match self.batch(run, from, std::mem::take(&mut memory_decides), failed, output) {
                None => break,
                Some(RunStop::Visit(index, uses)) => {
                    self.answer_stale_key(run, index, uses, output);
                    if self.is_waiting() {
                        return Err(run.stop_at(index));
                    }
                    from = index + 1;
                }
                Some(RunStop::OnFlash(index, probe)) => {
                    match self.read_from_flash(probe, &run.keys[index..run.length], run.run_keys[index].form.is_plain())
                    {
                        // A get that needs a token misses when its value cannot be promoted.
                        FlashOutcome::MemoryDecides | FlashOutcome::NoMemory => {
                            self.end_memory_wait();
                            (memory_decides, from) = (true, index);
                        }
                        FlashOutcome::Served(item) => {
                            self.answer_served(run, index, item, failed, output);
                            from = index + 1;
                        }
                        FlashOutcome::Parked => return Err(run.stop_at(index)),
                    }
                }
                Some(RunStop::Full(index)) => return Err(run.stop_at(index)),
            }
        }
        if run.length > 0 && self.probe.is_sampling() {
            let commands = run.run_keys[..run.length].iter().filter(|run_key| run_key.last).count();
            self.probe.note_gets(self.samples(), &run.keys[..run.length], commands, |key| self.is_in_memory(key));
        }
        run.length = 0;
        Ok(())
    }

    /// Answers the keys of a run from `from` as one batch.
    fn batch(
        &self,
        run: &GetRun<'_>,
        from: usize,
        memory_decides: bool,
        failed: &mut bool,
        output: &mut Output,
    ) -> Option<RunStop> {
        if output.is_full() {
            return Some(RunStop::Full(from));
        }
        let mut stop = None;
        let noted = self.notes_gets();
        self.answer_batch(&run.keys[from..run.length], |index, lookup| {
            let index = from + index;
            let run_key = run.run_keys[index];
            let key = run.keys[index];
            if let AnswerForm::Meta { .. } = run_key.form
                && let Some(item) = lookup.item()
                && can_win_recache(item)
            {
                stop = Some(RunStop::Visit(index, Uses::of(item)));
                return ControlFlow::Break(None);
            }
            let is_wanted = || !*failed || matches!(run_key.form, AnswerForm::Meta { .. });
            let is_open = index > from || !memory_decides;
            if !lookup.is_hit()
                && is_open
                && is_wanted()
                && let Some(probe) = self.probe_flash(key)
            {
                stop = Some(RunStop::OnFlash(index, probe));
                return ControlFlow::Break(None);
            }
            if noted {
                self.note_get(key, lookup.item().map(Item::len));
            }
            let is_hit = answer_key(run, index, &lookup, failed, output);
            // Before the next lookup, which would count as a use of a key that is not answered.
            if output.is_full() && index + 1 < run.length {
                stop = Some(RunStop::Full(index + 1));
                return ControlFlow::Break(is_hit);
            }
            ControlFlow::Continue(is_hit)
        });
        stop
    }

    /// Answers a key of a run with a value read from flash.
    fn answer_served(&self, run: &GetRun<'_>, index: usize, item: Item<'_>, failed: &mut bool, output: &mut Output) {
        if self.notes_gets() {
            self.note_get(run.keys[index], Some(item.len()));
        }
        if answer_key(run, index, &Lookup::Hit(item), failed, output).is_some() {
            self.count_get(run.keys[index], true);
        }
    }

    /// Answers an mg of a run that found a stale item; the lookup has counted as its use.
    fn answer_stale_key(&self, run: &GetRun<'_>, index: usize, uses: Uses, output: &mut Output) {
        let line = &run.input[run.unanswered(index).position..];
        match Parser::new(0).next(line) {
            (Step::Request(Request::Meta { meta, .. }), _) => self.meta_get(&meta, run.keys[index], Some(uses), output),
            other => unreachable!("the line of an mg was parsed before: {other:?}"),
        }
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
        let ttl = self.ttl(exptime);
        for key in get.keys.clone() {
            if output.is_full() {
                let rest = Rest::Keys { with_cas: get.with_cas, touch: Some(exptime) };
                return Err(Unanswered { position: position_in(input, key), rest });
            }
            if *failed {
                continue;
            }
            if let Some(pool) = self.compact(key) {
                *failed = !self.get_and_touch_compact(pool, key, ttl, get.with_cas, output);
                continue;
            }
            let rest = Rest::Keys { with_cas: get.with_cas, touch: Some(exptime) };
            let unanswered = Unanswered { position: position_in(input, key), rest };
            let lookup = match self.presence(key) {
                KeyPresence::Known => match self.park_if_waiting(self.pool(key).get_and_touch(key, ttl)) {
                    Some(lookup) => lookup.ok(),
                    None => return Err(unanswered),
                },
                KeyPresence::NoMemory => None,
                KeyPresence::NeedsFlash => return Err(unanswered),
            };
            if let Some(lookup) = &lookup
                && self.notes_gets()
            {
                self.note_get(key, lookup.item().map(Item::len));
            }
            match lookup {
                Some(Lookup::Hit(item)) => {
                    self.counters().touch_hits.add(1);
                    *failed = !write_item(key, &item, get.with_cas, output);
                }
                Some(Lookup::Miss) => self.counters().touch_misses.add(1),
                None => {
                    *failed = true;
                    output.bytes().extend_from_slice(reply::OUT_OF_MEMORY_WRITING);
                }
            }
        }
        if get.last {
            end_get(failed, output);
            self.probe.note(self.samples(), CommandKind::GetAndTouch, get.keys.clone().next());
        }
        Ok(())
    }
}

/// Answers a key of a run. Returns whether it was a hit; `None` after an error that replaced the answer.
#[inline(always)]
fn answer_key(
    run: &GetRun<'_>,
    index: usize,
    lookup: &Lookup<'_>,
    failed: &mut bool,
    output: &mut Output,
) -> Option<bool> {
    let (run_key, key) = (run.run_keys[index], run.keys[index]);
    let outcome = match (lookup, run_key.form) {
        (Lookup::Hit(item), AnswerForm::Meta { value, .. }) => {
            answer_hit(key, run.flags(index), value, item, output);
            return Some(true);
        }
        (Lookup::Miss, AnswerForm::Meta { quiet, .. }) => {
            if !quiet {
                answer_miss(key, run.flags(index), false, output);
            }
            return Some(false);
        }
        (Lookup::Hit(_), _) if *failed => None,
        (Lookup::Hit(item), form) => {
            *failed = !write_item(key, item, matches!(form, AnswerForm::GetWithCas), output);
            Some(true)
        }
        (Lookup::Miss, _) => Some(false),
    };
    if run_key.last {
        end_get(failed, output);
    }
    outcome
}

/// Ends the answer of a command, unless an error has replaced it.
pub fn end_get(failed: &mut bool, output: &mut Output) {
    if !std::mem::take(failed) {
        output.bytes().extend_from_slice(reply::END);
    }
}

/// Where in `input` the subslice `key` begins.
pub fn position_in(input: &[u8], key: &[u8]) -> usize {
    key.as_ptr() as usize - input.as_ptr() as usize
}

/// False when the value can neither be pinned nor copied: an error is answered.
pub(super) fn write_item(key: &[u8], item: &Item<'_>, with_cas: bool, output: &mut Output) -> bool {
    let payload = payload(item);
    if let Payload::Refused = payload {
        output.bytes().extend_from_slice(reply::OUT_OF_MEMORY_WRITING);
        return false;
    }
    let cas = with_cas.then(|| item.cas());
    reply::value_header(output.bytes(), key, item.flags(), item.len(), cas);
    send(item, payload, output);
    output.bytes().extend_from_slice(reply::LINE_END);
    true
}
