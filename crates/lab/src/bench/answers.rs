//! Requests that wait for their answers, and results of the answers.
//!
//! `pending` holds the requests in the order they were sent, `numbers` the keys of the gets among them. A memcached
//! server answers a get with the values that it has in the order of the keys: each VALUE line takes keys off `numbers`
//! up to its own, those before it missed, and so did those left at END. A Redis server answers each key, present or
//! not, and the last one ends the answer. Bodies are passed over without being collected.

use std::collections::VecDeque;
use std::time::Instant;

use super::args::Dialect;
use super::load_kind::LoadKind;
use super::plan::Plan;
use super::resp;
use super::tally::{LatencyTally, record};
use crate::keys::KeyBuffer;
use ebbtide_protocol::client;

/// A request that waits for its answer.
#[derive(Clone, Copy)]
struct AwaitedAnswer {
    since: Instant,
    operation: SentOperation,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SentOperation {
    /// A get, with the number of keys that have no answer yet.
    Get(u16),
    /// As `Get`, before the line with the number of answers.
    List(u16),
    Fill,
    /// Of the key with this number.
    Write(LoadKind, u64),
}

/// Counters of answers.
pub(super) struct Ledger<'a> {
    pub(super) plan: &'a Plan,
    pub(super) tally: &'a mut LatencyTally,
    /// Missed keys that are to be set.
    pub(super) fills: &'a mut VecDeque<u64>,
    /// When the answers arrived.
    pub(super) now: Instant,
}

#[derive(Default)]
pub(super) struct Answers {
    pending: VecDeque<AwaitedAnswer>,
    numbers: VecDeque<u64>,
    /// Bytes of a value and its line end that have not arrived.
    body_left: u64,
    key: KeyBuffer,
}

impl Answers {
    /// How many requests wait.
    pub(super) fn awaited(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn expect(&mut self, operation: SentOperation, since: Instant) {
        self.pending.push_back(AwaitedAnswer { since, operation });
    }

    /// The next key of the get that is about to be expected.
    pub(super) fn expect_key(&mut self, number: u64) {
        self.numbers.push_back(number);
    }

    /// Takes the answers off `input`. Returns their bytes; the start of a line may remain.
    pub(super) fn take(&mut self, input: &[u8], ledger: &mut Ledger<'_>) -> Result<usize, String> {
        let mut at = 0;
        loop {
            let skipped = self.body_left.min((input.len() - at) as u64);
            self.body_left -= skipped;
            at += skipped as usize;
            let rest = &input[at..];
            let taken = match ledger.plan.args.protocol {
                Dialect::Memcached => self.take_memcached(rest, ledger)?,
                Dialect::Redis => self.take_redis(rest, ledger)?,
            };
            match taken {
                Some(taken) => at += taken,
                None => return Ok(at),
            }
        }
    }

    fn take_memcached(&mut self, input: &[u8], ledger: &mut Ledger<'_>) -> Result<Option<usize>, String> {
        use client::ClientReply;
        let Some((reply, taken)) = client::parse(input)? else {
            return Ok(None);
        };
        match (self.front()?, reply) {
            (SentOperation::Get(left), ClientReply::Value { key, length }) => {
                let misses = self.misses_before(left, key, ledger.plan)?;
                self.take_misses(misses, ledger);
                self.take_hit(left - misses, length, ledger);
            }
            (SentOperation::Get(left), ClientReply::End) => {
                self.take_misses(left, ledger);
                self.finish(ledger);
            }
            (_, ClientReply::Refused(line)) => self.take_refusal(line, ledger),
            (SentOperation::Fill, ClientReply::Stored) => self.finish(ledger),
            (SentOperation::Write(kind, number), reply) => {
                if !is_done(kind, &reply)? {
                    self.take_unmet(kind, number, ledger);
                }
                self.finish(ledger);
            }
            (_, ClientReply::NotStored) => self.take_refusal(b"NOT_STORED", ledger),
            (_, ClientReply::NotFound) => self.take_refusal(b"NOT_FOUND", ledger),
            (_, reply) => return Err(format!("{reply:?} to another request")),
        }
        Ok(Some(taken))
    }

    fn take_redis(&mut self, input: &[u8], ledger: &mut Ledger<'_>) -> Result<Option<usize>, String> {
        use resp::RespReply;
        let whole = self.body_left == 0 && self.front().is_ok_and(|operation| operation == SentOperation::Get(0));
        if whole {
            self.finish(ledger);
        }
        let Some((reply, taken)) = resp::parse(input)? else {
            return Ok(None);
        };
        match (self.front()?, reply) {
            (SentOperation::List(keys), RespReply::List(length)) if length == u64::from(keys) => {
                self.pending[0].operation = SentOperation::Get(keys);
            }
            (SentOperation::Get(left), RespReply::Value { length }) => self.take_hit(left, length, ledger),
            (SentOperation::Get(left), RespReply::Missing) => {
                self.take_misses(1, ledger);
                self.pending[0].operation = SentOperation::Get(left - 1);
            }
            (SentOperation::Fill, RespReply::Stored) => self.finish(ledger),
            (SentOperation::Write(kind, _), RespReply::Number) if !is_store(kind) => self.finish(ledger),
            (SentOperation::Write(kind, _), RespReply::Stored) if is_store(kind) => self.finish(ledger),
            (SentOperation::Write(LoadKind::Add | LoadKind::Replace, _), RespReply::Missing) => {
                ledger.tally.writes.not_stored += 1;
                self.finish(ledger);
            }
            (_, RespReply::Refused(line)) => self.take_refusal(line, ledger),
            (_, reply) => return Err(format!("{reply:?} to another request")),
        }
        Ok(Some(taken))
    }

    fn front(&self) -> Result<SentOperation, String> {
        self.pending.front().map(|pending| pending.operation).ok_or_else(|| "an answer without a request".into())
    }

    /// Number of keys at the front of the list before `key`: these missed.
    fn misses_before(&mut self, left: u16, key: &[u8], plan: &Plan) -> Result<u16, String> {
        let position = (0..left).find(|&position| {
            let number = self.numbers[usize::from(position)];
            plan.objects.write_key(number, &mut self.key) == key
        });
        position.ok_or_else(|| format!("a value of `{}`", key.escape_ascii()))
    }

    /// A value of the key in front, the first of `left`.
    fn take_hit(&mut self, left: u16, length: u64, ledger: &mut Ledger<'_>) {
        let number = self.numbers.pop_front();
        ledger.tally.note_pool(number.and_then(|number| ledger.plan.objects.pool(number)), true);
        self.body_left = length + 2;
        self.pending[0].operation = SentOperation::Get(left - 1);
        ledger.tally.gets += 1;
        ledger.tally.hits += 1;
    }

    fn take_misses(&mut self, count: u16, ledger: &mut Ledger<'_>) {
        ledger.tally.gets += u64::from(count);
        for number in self.numbers.drain(..usize::from(count)) {
            ledger.tally.note_pool(ledger.plan.objects.pool(number), false);
            if ledger.plan.args.fill {
                ledger.fills.push_back(number);
            }
        }
    }

    /// The condition of a write did not hold. A counter that is absent is filled, as an object that is missed.
    fn take_unmet(&mut self, kind: LoadKind, number: u64, ledger: &mut Ledger<'_>) {
        ledger.tally.writes.not_stored += 1;
        if kind.counts() && ledger.plan.args.fill {
            ledger.fills.push_back(number);
        }
    }

    fn take_refusal(&mut self, line: &[u8], ledger: &mut Ledger<'_>) {
        ledger.tally.error(|| line.escape_ascii().to_string());
        if let SentOperation::Get(left) | SentOperation::List(left) = self.pending[0].operation {
            ledger.tally.gets += u64::from(left);
            self.numbers.drain(..usize::from(left));
        }
        self.finish(ledger);
    }

    /// The request in front has its whole answer.
    fn finish(&mut self, ledger: &mut Ledger<'_>) {
        let Some(AwaitedAnswer { since, operation }) = self.pending.pop_front() else {
            return;
        };
        let histogram = match operation {
            SentOperation::Get(_) | SentOperation::List(_) => &mut ledger.tally.get_latency,
            SentOperation::Write(kind, _) => ledger.tally.count_write(kind),
            SentOperation::Fill => {
                ledger.tally.fills += 1;
                &mut ledger.tally.set_latency
            }
        };
        record(histogram, ledger.now.saturating_duration_since(since));
    }
}

/// Whether a write of this kind stores a value that it has whole.
fn is_store(kind: LoadKind) -> bool {
    matches!(kind, LoadKind::Set | LoadKind::Add | LoadKind::Replace)
}

/// Whether the write of this answer took effect; false if its condition did not hold.
///
/// # Errors
/// An answer to another command.
fn is_done(kind: LoadKind, reply: &client::ClientReply<'_>) -> Result<bool, String> {
    use client::ClientReply;
    let is_conditional = kind.extends() || matches!(kind, LoadKind::Add | LoadKind::Replace);
    match reply {
        ClientReply::Stored if is_conditional || kind == LoadKind::Set => Ok(true),
        ClientReply::NotStored if is_conditional => Ok(false),
        ClientReply::Deleted | ClientReply::NotFound if kind == LoadKind::Delete => Ok(true),
        ClientReply::Number if kind.counts() => Ok(true),
        ClientReply::NotFound if kind.counts() => Ok(false),
        other => Err(format!("{other:?} to {}", kind.name())),
    }
}
