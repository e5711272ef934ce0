//! A cache as a plain map: the contract that every answer is judged by.
//!
//! A key is present, absent, or perhaps present: within the allowance before its expiry (1 s or 1.6 % of its TTL, none
//! for an exact one), and always if the cache may evict. An answer that reveals which it was settles it: what has been
//! seen absent must not come back unless it is stored again.

use crate::operation::{Answer, Hit, Life, Mode, Operation, Write};
use std::collections::HashMap;

/// A plain map with time.
pub struct Model {
    now_ms: u64,
    flush_at_ms: Option<u64>,
    entries: HashMap<Vec<u8>, Entry>,
    versions: u64,
    evicts: bool,
    value_limit: usize,
}

struct Entry {
    value: Vec<u8>,
    flags: u32,
    expiry: Option<Expiry>,
    version: u64,
    marks: Marks,
}

/// State stored with a value.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    stale: bool,
    won: bool,
    /// Given by a client.
    token: Option<u64>,
}

/// The key must be absent from `latest_ms` on, and must not expire before `earliest_ms`.
#[derive(Clone, Copy)]
struct Expiry {
    earliest_ms: u64,
    latest_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    Perhaps,
    Present,
}

/// In longer values, which may not lie in one piece, no number is promised to be found.
const NUMBER_LIMIT: usize = 3500;

type Judgement = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Judgement {
    if holds { Ok(()) } else { Err(why()) }
}

impl Model {
    /// `evicts`: whether a stored key may miss. `value_limit`: the bytes of the longest value.
    pub fn new(evicts: bool, value_limit: usize) -> Self {
        Self { now_ms: 0, flush_at_ms: None, entries: HashMap::new(), versions: 0, evicts, value_limit }
    }

    /// An operation happens at `now_ms`; if that is in the past, it happens at the latest time seen.
    pub fn observe_time(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.flush_at_ms.is_some_and(|at| self.now_ms >= at) {
            self.flush_at_ms = None;
            self.entries.clear();
        }
    }

    /// The number of the value that a key has, if it may have one: it changes with the value.
    pub fn version(&self, key: &[u8]) -> Option<u64> {
        self.entries.get(key).map(|entry| entry.version)
    }

    fn presence(&self, key: &[u8]) -> Presence {
        let Some(entry) = self.entries.get(key) else { return Presence::Absent };
        match entry.expiry {
            Some(expiry) if self.now_ms >= expiry.latest_ms => Presence::Absent,
            Some(expiry) if self.now_ms >= expiry.earliest_ms => Presence::Perhaps,
            _ if self.evicts => Presence::Perhaps,
            _ => Presence::Present,
        }
    }

    /// An answer has revealed whether the key is present.
    fn settle(&mut self, key: &[u8], present: bool) -> Judgement {
        let presence = self.presence(key);
        ensure(presence != if present { Presence::Absent } else { Presence::Present }, || {
            format!("the answer takes the key for {}, it is {presence:?}", if present { "present" } else { "absent" })
        })?;
        if !present {
            self.entries.remove(key);
        }
        Ok(())
    }

    /// Judges the answer to an operation, and carries the operation out. `token_version`: the version of the value
    /// whose token a cas has used.
    pub fn judge(&mut self, operation: &Operation, answer: &Answer, token_version: Option<u64>) -> Judgement {
        match (operation, answer) {
            (Operation::Get(key) | Operation::Hold(key), Answer::Lookup(hit)) => self.judge_lookup(key, hit.as_ref()),
            (Operation::GetBatch(keys), Answer::Lookups(hits)) => {
                ensure(keys.len() == hits.len(), || "not one answer per key".into())?;
                keys.iter().zip(hits).try_for_each(|(key, hit)| self.judge_lookup(key, hit.as_ref()))
            }
            (Operation::Write(write), _) => match write.mode {
                Mode::Append | Mode::Prepend => self.judge_extension(write, answer),
                _ => self.judge_write(write, answer, token_version),
            },
            (Operation::Delete(key), Answer::Was(present)) => {
                self.settle(key, *present)?;
                self.entries.remove(key);
                Ok(())
            }
            (Operation::Touch(key, life), Answer::Was(present)) => {
                self.settle(key, *present)?;
                self.live_anew(key, *life);
                Ok(())
            }
            (Operation::GetAndTouch(key, life), Answer::Lookup(hit)) => {
                // The hit shows the new life, so that is given first; a past one after the answer.
                self.settle(key, hit.is_some())?;
                if *life != Life::Past {
                    self.live_anew(key, *life);
                }
                hit.as_ref().map_or(Ok(()), |hit| self.judge_hit(key, hit))?;
                self.live_anew(key, *life);
                Ok(())
            }
            (Operation::MarkStale(key, token), Answer::Was(present)) => {
                self.settle(key, *present)?;
                self.change(key, |entry| entry.marks = Marks { stale: true, won: false, token: *token });
                Ok(())
            }
            (Operation::Win(key), Answer::Won(won)) => {
                self.settle(key, won.is_some())?;
                let Some(entry) = self.entries.get_mut(key) else { return Ok(()) };
                let was_won = std::mem::replace(&mut entry.marks.won, true);
                ensure(*won == Some(!was_won), || format!("it was won before: {was_won}"))
            }
            (
                Operation::Touch(..) | Operation::GetAndTouch(..) | Operation::MarkStale(..) | Operation::Win(..),
                Answer::Full,
            ) => self.excuse_full(),
            (Operation::Increment(key, delta), _) => self.judge_number(key, answer, |n| n.wrapping_add(*delta)),
            (Operation::Decrement(key, delta), _) => self.judge_number(key, answer, |n| n.saturating_sub(*delta)),
            (Operation::Flush { delay_ms }, Answer::Done) => {
                self.flush_at_ms = Some(self.now_ms + delay_ms);
                self.observe_time(0);
                Ok(())
            }
            (Operation::Abandon { .. } | Operation::Release | Operation::Maintain, Answer::Done) => Ok(()),
            (Operation::Abandon { length, .. }, Answer::TooLarge) if *length > self.value_limit => Ok(()),
            (Operation::Abandon { .. }, Answer::Full) => self.excuse_full(),
            _ => Err("this is no answer to that".into()),
        }
    }

    fn excuse_full(&self) -> Judgement {
        ensure(self.evicts, || "there is space".into())
    }

    fn judge_lookup(&mut self, key: &[u8], hit: Option<&Hit>) -> Judgement {
        self.settle(key, hit.is_some())?;
        hit.map_or(Ok(()), |hit| self.judge_hit(key, hit))
    }

    fn judge_hit(&self, key: &[u8], hit: &Hit) -> Judgement {
        let entry = &self.entries[key];
        ensure(hit.value == entry.value, || {
            let start = entry.value[..entry.value.len().min(24)].escape_ascii();
            format!("the value is another: {} bytes {start}", entry.value.len())
        })?;
        ensure(hit.flags == entry.flags, || format!("the flags are {}", entry.flags))?;
        let marks = entry.marks;
        let has_its_token = marks.token.is_none_or(|token| token == hit.token);
        ensure((hit.stale, hit.won) == (marks.stale, marks.won) && has_its_token, || {
            format!("stale {}, won {}, token {}; it has {marks:?}", hit.stale, hit.won, hit.token)
        })?;
        match (hit.expiry_ms, entry.expiry) {
            (None, None) => Ok(()),
            (Some(said), Some(expiry)) => ensure((expiry.earliest_ms..=expiry.latest_ms).contains(&said), || {
                format!("it expires from {} to {} ms", expiry.earliest_ms, expiry.latest_ms)
            }),
            _ => Err("the one expires, the other does not".into()),
        }
    }

    fn expiry(&self, life: Life) -> Option<Expiry> {
        match life {
            Life::Never | Life::Past => None,
            Life::Seconds(seconds) => {
                let ttl_ms = u64::from(seconds) * 1000;
                let latest_ms = self.now_ms + ttl_ms;
                Some(Expiry { earliest_ms: latest_ms - (ttl_ms * 16 / 1000).max(1000), latest_ms })
            }
            Life::Exactly(seconds) => {
                let end_ms = (self.now_ms / 1000 + u64::from(seconds)) * 1000;
                Some(Expiry { earliest_ms: end_ms, latest_ms: end_ms })
            }
        }
    }

    /// Changes an entry, if it is present; its earlier tokens become invalid.
    fn change(&mut self, key: &[u8], change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(key) {
            change(entry);
            self.versions += 1;
            entry.version = self.versions;
        }
    }

    fn live_anew(&mut self, key: &[u8], life: Life) {
        let expiry = self.expiry(life);
        if life == Life::Past {
            self.entries.remove(key);
        } else if let Some(entry) = self.entries.get_mut(key) {
            entry.expiry = expiry;
        }
    }

    fn judge_write(&mut self, write: &Write, answer: &Answer, token_version: Option<u64>) -> Judgement {
        let Write { key, mode, .. } = write;
        match (mode, answer) {
            (Mode::Set, Answer::Stored) => {}
            (Mode::Add, Answer::Stored) => self.settle(key, false)?,
            (Mode::Add, Answer::NotStored) => return self.settle(key, true),
            (Mode::Replace, Answer::Stored) => self.settle(key, true)?,
            (Mode::Replace, Answer::NotStored) => return self.settle(key, false),
            (Mode::Cas(_), Answer::NotFound) => return self.settle(key, false),
            (Mode::Cas(_), Answer::Exists) => return self.settle(key, true),
            (Mode::Cas(_), Answer::Stored) => {
                self.settle(key, true)?;
                let version = self.version(key);
                ensure(version == token_version, || {
                    format!("the token is of version {token_version:?}, the value of {version:?}")
                })?;
            }
            (_, Answer::TooLarge | Answer::Full) => {
                let excused = match answer {
                    Answer::Full => self.evicts,
                    _ => write.value.len() > self.value_limit,
                };
                if *mode == Mode::Set {
                    self.entries.remove(key);
                }
                return ensure(excused, || "there is space".into());
            }
            _ => return Err("this is no answer to that".into()),
        }
        ensure(write.value.len() <= self.value_limit, || "the value is too large".into())?;
        self.versions += 1;
        let entry = Entry {
            value: write.value.clone(),
            flags: write.flags,
            expiry: self.expiry(write.life),
            version: self.versions,
            marks: Marks::default(),
        };
        self.entries.insert(key.clone(), entry);
        self.live_anew(key, write.life);
        Ok(())
    }

    fn judge_extension(&mut self, write: &Write, answer: &Answer) -> Judgement {
        let length = self.entries.get(&write.key).map_or(0, |entry| entry.value.len()) + write.value.len();
        match answer {
            Answer::NotStored => self.settle(&write.key, false),
            Answer::Full => self.excuse_full(),
            Answer::TooLarge => ensure(length > self.value_limit, || "the value would fit".into()),
            Answer::Stored => {
                self.settle(&write.key, true)?;
                ensure(length <= self.value_limit, || "the value is too large".into())?;
                self.change(&write.key, |entry| {
                    let at = if write.mode == Mode::Append { entry.value.len() } else { 0 };
                    entry.value.splice(at..at, write.value.iter().copied());
                    entry.marks = Marks::default();
                });
                Ok(())
            }
            _ => Err("this is no answer to that".into()),
        }
    }

    fn judge_number(&mut self, key: &[u8], answer: &Answer, change: impl Fn(u64) -> u64) -> Judgement {
        match answer {
            Answer::Number(None) => self.settle(key, false),
            Answer::Full => self.excuse_full(),
            Answer::NotNumeric => {
                self.settle(key, true)?;
                let value = &self.entries[key].value;
                ensure(number(value).is_none() || value.len() > NUMBER_LIMIT, || "it is a number".into())
            }
            Answer::Number(Some(said)) => {
                self.settle(key, true)?;
                let new = number(&self.entries[key].value).map(change);
                ensure(new == Some(*said), || format!("the number is {new:?}"))?;
                self.change(key, |entry| {
                    // As memcached does: a shorter number is filled up with spaces, and one that outgrows its width is
                    // another value.
                    let text = format!("{said:<width$}", width = entry.value.len()).into_bytes();
                    entry.marks = match text.len() > entry.value.len() {
                        true => Marks::default(),
                        false => Marks { token: None, ..entry.marks },
                    };
                    entry.value = text;
                });
                Ok(())
            }
            _ => Err("this is no answer to that".into()),
        }
    }
}

/// The number that a value of digits stands for, which a space may end.
fn number(value: &[u8]) -> Option<u64> {
    let count = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends = value.get(count).is_none_or(|byte| *byte == b' ');
    std::str::from_utf8(&value[..count]).ok().filter(|_| ends)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &[u8], value: &[u8], life: Life) -> Operation {
        let (key, value) = (key.to_vec(), value.to_vec());
        Operation::Write(Write { key, value, flags: 0, life, mode: Mode::Set, pieces: None })
    }

    fn hit(value: &[u8], expiry_ms: Option<u64>) -> Answer {
        Answer::Lookup(Some(Hit { value: value.to_vec(), flags: 0, token: 1, stale: false, won: false, expiry_ms }))
    }

    fn get() -> Operation {
        Operation::Get(b"k".to_vec())
    }

    #[test]
    fn a_wrong_answer_is_refused() {
        let mut model = Model::new(false, 100);
        assert!(model.judge(&get(), &hit(b"v", None), None).is_err(), "nothing was stored");
        model.judge(&set(b"k", b"v", Life::Never), &Answer::Stored, None).unwrap();
        assert!(model.judge(&get(), &hit(b"w", None), None).is_err(), "another value");
        assert!(model.judge(&get(), &Answer::Lookup(None), None).is_err(), "a miss of what is there");
        assert!(model.judge(&set(b"k", b"v", Life::Never), &Answer::Full, None).is_err(), "there is space");
        model.judge(&set(b"k", b"v", Life::Past), &Answer::Stored, None).unwrap();
        assert!(model.judge(&get(), &hit(b"v", None), None).is_err(), "it is past");
    }

    #[test]
    fn expiry_is_judged_by_its_allowance() {
        let mut model = Model::new(false, 100);
        model.observe_time(500);
        model.judge(&set(b"k", b"v", Life::Seconds(1000)), &Answer::Stored, None).unwrap();
        let latest = 1_000_500;
        model.observe_time(latest - 16_001);
        assert!(model.judge(&get(), &Answer::Lookup(None), None).is_err(), "too early");
        assert!(model.judge(&get(), &hit(b"v", Some(latest + 1)), None).is_err(), "it says too long a life");
        model.judge(&get(), &hit(b"v", Some(latest)), None).unwrap();
        model.observe_time(latest);
        assert!(model.judge(&get(), &hit(b"v", Some(latest)), None).is_err(), "expired");
    }

    #[test]
    fn an_exact_expiry_has_no_allowance() {
        let mut model = Model::new(false, 100);
        model.observe_time(500);
        model.judge(&set(b"k", b"v", Life::Exactly(1000)), &Answer::Stored, None).unwrap();
        assert!(model.judge(&get(), &hit(b"v", Some(999_000)), None).is_err(), "it says too short a life");
        model.observe_time(999_999);
        assert!(model.judge(&get(), &Answer::Lookup(None), None).is_err(), "too early");
        model.judge(&get(), &hit(b"v", Some(1_000_000)), None).unwrap();
        model.observe_time(1_000_000);
        assert!(model.judge(&get(), &hit(b"v", Some(1_000_000)), None).is_err(), "expired");
    }

    #[test]
    fn what_was_missed_does_not_come_back() {
        let mut model = Model::new(true, 100);
        model.judge(&set(b"k", b"v", Life::Never), &Answer::Stored, None).unwrap();
        model.judge(&get(), &Answer::Lookup(None), None).unwrap();
        assert!(model.judge(&get(), &hit(b"v", None), None).is_err());
    }

    #[test]
    fn a_flush_takes_effect_in_time() {
        let mut model = Model::new(false, 100);
        model.judge(&Operation::Flush { delay_ms: 10 }, &Answer::Done, None).unwrap();
        model.judge(&set(b"k", b"v", Life::Never), &Answer::Stored, None).unwrap();
        model.observe_time(9);
        model.judge(&get(), &hit(b"v", None), None).unwrap();
        model.observe_time(10);
        assert!(model.judge(&get(), &hit(b"v", None), None).is_err());
    }

    #[test]
    fn marks_are_judged() {
        let mut model = Model::new(false, 100);
        let win = Operation::Win(b"k".to_vec());
        model.judge(&set(b"k", b"v", Life::Never), &Answer::Stored, None).unwrap();
        model.judge(&Operation::MarkStale(b"k".to_vec(), Some(1)), &Answer::Was(true), None).unwrap();
        assert!(model.judge(&get(), &hit(b"v", None), None).is_err(), "it is stale");
        assert!(model.judge(&win, &Answer::Won(None), None).is_err(), "it is there");
        model.judge(&win, &Answer::Won(Some(true)), None).unwrap();
        assert!(model.judge(&win, &Answer::Won(Some(true)), None).is_err(), "one wins");
        model.judge(&set(b"k", b"v", Life::Never), &Answer::Stored, None).unwrap();
        model.judge(&get(), &hit(b"v", None), None).unwrap();
        assert!(model.judge(&win, &Answer::Won(Some(false)), None).is_err(), "nobody had won");
    }

    #[test]
    fn numbers_are_filled_with_spaces() {
        assert_eq!(number(b"007"), Some(7));
        assert_eq!(number(b"9 "), Some(9));
        assert_eq!(number(b"9x"), None);
        assert_eq!(number(b""), None);
        let mut model = Model::new(false, 100);
        model.judge(&set(b"k", b"10", Life::Never), &Answer::Stored, None).unwrap();
        model.judge(&Operation::Decrement(b"k".to_vec(), 1), &Answer::Number(Some(9)), None).unwrap();
        model.judge(&get(), &hit(b"9 ", None), None).unwrap();
    }
}
