//! mg, and me, which shows the metadata of a value.

use std::time::Duration;

use ebbtide::memcached::{Creation, Item, Lookup, MetaFlags, MetaFlagsChange, MetaFlagsLookup, MetaFlagsOutcome};
use ebbtide_protocol::encoding::base64_encode;
use ebbtide_protocol::{Keys, Meta, reply};

use super::{Remaining, answer_code, reflect};
use crate::execute::Executor;
use crate::execute::payload::{Payload, payload, send};
use crate::output::Output;
use crate::watch::FetchVerb;

/// Uses of an item before a lookup; the lookup itself changes them.
#[derive(Clone, Copy)]
pub struct Uses {
    was_used: bool,
    idle: Duration,
}

impl Uses {
    #[inline]
    pub fn of(item: &Item<'_>) -> Self {
        Self { was_used: item.was_used(), idle: item.idle() }
    }
}

/// Properties of an item that an answer returns.
struct ItemFacts {
    length: usize,
    client_flags: u32,
    /// `None`: the token of the item, if the client requests one.
    token: Option<u64>,
    remaining: Remaining,
    uses: Uses,
    is_stale: bool,
    is_won: bool,
    /// Whether the answer tells the client to store a new value.
    wins: bool,
}

impl ItemFacts {
    #[inline]
    fn of(item: &Item<'_>, token: Option<u64>) -> Self {
        Self {
            length: item.len(),
            client_flags: item.flags(),
            token,
            remaining: Remaining::of(item.ttl()),
            uses: Uses::of(item),
            is_stale: item.is_stale(),
            is_won: item.is_won(),
            wins: false,
        }
    }

    /// Of an item that the command has made.
    fn of_new(token: u64) -> Self {
        Self {
            length: 0,
            client_flags: 0,
            token: Some(token),
            remaining: Remaining(None),
            uses: Uses { was_used: false, idle: Duration::ZERO },
            is_stale: false,
            is_won: false,
            wins: true,
        }
    }
}

impl ItemFacts {
    fn token(&self, item: Option<&Item<'_>>) -> u64 {
        self.token.or(item.map(Item::cas)).expect("what has no item has a token")
    }
}

/// Parts of a line that an answer needs: the key, and the flags in their order.
#[derive(Clone)]
struct MetaQuery<'a> {
    key: &'a [u8],
    flags: Keys<'a>,
    is_base64: bool,
    value: bool,
}

/// Whether an item needs a visit even by an mg without changes: it is stale, and the first client wins.
#[inline]
pub fn can_win_recache(item: &Item<'_>) -> bool {
    item.is_stale() && !item.is_won()
}

/// Answers a hit of an mg that changes nothing.
#[inline]
pub fn answer_hit(key: &[u8], flags: Keys<'_>, value: bool, item: &Item<'_>, output: &mut Output) {
    let query = MetaQuery { key, flags, is_base64: false, value };
    answer(&query, &ItemFacts::of(item, None), Some(item), |_, _| None, output);
}

/// Answers a hit of an mg by its line.
pub fn answer_line(meta: &Meta<'_>, key: &[u8], item: &Item<'_>, output: &mut Output) {
    let query = MetaQuery { key, flags: meta.flags(), is_base64: meta.has(b'b'), value: meta.has(b'v') };
    answer(&query, &ItemFacts::of(item, None), Some(item), |_, _| None, output);
}

/// Answers a miss.
pub fn answer_miss(key: &[u8], flags: Keys<'_>, is_base64: bool, output: &mut Output) {
    let out = output.bytes();
    out.extend_from_slice(b"EN");
    for flag in flags {
        reflect(flag, key, is_base64, out);
    }
    out.extend_from_slice(reply::LINE_END);
}

/// Answers a hit. `new_life` gives the life from a flag on.
#[inline]
fn answer(
    query: &MetaQuery<'_>,
    facts: &ItemFacts,
    item: Option<&Item<'_>>,
    new_life: impl Fn(u8, Remaining) -> Option<Remaining>,
    output: &mut Output,
) {
    let payload = item.filter(|_| query.value).map_or(Payload::Copy, payload);
    if let Payload::Refused = payload {
        return output.bytes().extend_from_slice(reply::OUT_OF_MEMORY_WRITING);
    }
    let out = output.bytes();
    if query.value {
        out.extend_from_slice(b"VA ");
        reply::number(out, facts.length as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    let mut remaining = facts.remaining;
    for flag in query.flags.clone() {
        let number = match flag[0] {
            b's' => facts.length as u64,
            b'c' => facts.token(item),
            b'f' => facts.client_flags.into(),
            b'l' => facts.uses.idle.as_secs(),
            b'h' => facts.uses.was_used.into(),
            b't' => {
                remaining.answer(out);
                continue;
            }
            letter => {
                if !reflect(flag, query.key, query.is_base64, out) {
                    remaining = new_life(letter, remaining).unwrap_or(remaining);
                }
                continue;
            }
        };
        reply::meta_flag(out, flag[0]);
        reply::number(out, number);
    }
    for (letter, is_set) in [(b'Z', facts.is_won), (b'X', facts.is_stale), (b'W', facts.wins)] {
        if is_set {
            reply::meta_flag(out, letter);
        }
    }
    out.extend_from_slice(reply::LINE_END);
    if query.value {
        if let Some(item) = item {
            send(item, payload, output);
        }
        output.bytes().extend_from_slice(reply::LINE_END);
    }
}

impl Executor {
    /// Executes an mg that may change the item, create one, or must not count as a use. `uses`: those before an earlier
    /// lookup that counted as a use.
    pub(in crate::execute) fn meta_get(
        &self,
        meta: &Meta<'_>,
        key: &[u8],
        mut uses: Option<Uses>,
        output: &mut Output,
    ) {
        let touch = self.life(meta, b'T');
        let recache = self.life(meta, b'R');
        let create = self.creation(meta);
        // R compares the remaining life at its position among the flags.
        let touches_first =
            meta.flags().find(|flag| matches!(flag[0], b'T' | b'R')).is_some_and(|flag| flag[0] == b'T');
        let mut wins = false;
        let mut is_known = false;
        let counts = uses.is_none() && !meta.has(b'u');
        let outcome = self.pool(key).update_meta_flags(key, MetaFlagsLookup { create, counts }, |item| {
            uses.get_or_insert_with(|| Uses::of(item));
            is_known = meta.number(b'C').is_some_and(|token| item.has_cas(token));
            let remaining = match touch {
                Some(ttl) if touches_first => self.remaining(ttl),
                _ => Remaining::of(item.ttl()),
            };
            let runs_out = recache.is_some_and(|ttl| remaining.is_below(self.remaining(ttl)));
            wins = !item.is_won() && (item.is_stale() || runs_out);
            Some(MetaFlagsChange { ttl: touch, flags: if wins { MetaFlags::Won } else { MetaFlags::Unchanged } })
        });
        let Some(outcome) = self.park_if_waiting(outcome) else { return };
        // A value whose token the client has is left out.
        let value = meta.has(b'v') && !is_known;
        let query = MetaQuery { key, flags: meta.flags(), is_base64: meta.has(b'b'), value };
        match outcome {
            Ok(MetaFlagsOutcome::Found { item, token }) => {
                self.count_found(key, touch.is_some());
                if self.notes_gets() {
                    self.note_get(key, Some(item.len()));
                }
                // Kept if it is handed out.
                let token = if meta.has(b'c') { self.pool(key).keep_cas(key, token) } else { token };
                let facts = ItemFacts::of(&item, Some(token));
                let facts = ItemFacts { wins, uses: uses.unwrap_or(facts.uses), ..facts };
                let new_life = |letter, _| touch.filter(|_| letter == b'T').map(|ttl| self.remaining(ttl));
                answer(&query, &facts, Some(&item), new_life, output);
            }
            Ok(MetaFlagsOutcome::Created { token }) => {
                self.count_found(key, touch.is_some());
                if self.notes_gets() {
                    self.note_get(key, None);
                }
                let new_life = |letter, _| match letter {
                    b'T' | b'N' => self.life(meta, letter).map(|ttl| self.remaining(ttl)),
                    _ => None,
                };
                answer(&query, &ItemFacts::of_new(token), None, new_life, output);
            }
            Ok(MetaFlagsOutcome::Absent) => {
                self.count_get(key, false);
                if self.notes_gets() {
                    self.note_get(key, None);
                }
                if !meta.has(b'q') {
                    answer_miss(key, meta.flags(), meta.has(b'b'), output);
                }
            }
            Err(_) => output.bytes().extend_from_slice(reply::OUT_OF_MEMORY),
        }
    }

    /// Counts an mg that found an item: one with a new life is a touch.
    fn count_found(&self, key: &[u8], touches: bool) {
        match touches {
            true => self.counters().touch_hits.add(1),
            false => self.count_get(key, true),
        }
    }

    /// Item that N creates on a miss, with the life of the later flag of T and N. `None` without N.
    fn creation(&self, meta: &Meta<'_>) -> Option<Creation> {
        meta.has(b'N').then(|| {
            let last = meta.flags().filter(|flag| matches!(flag[0], b'T' | b'N')).last();
            let ttl = self.life(meta, last.map_or(b'N', |flag| flag[0])).expect("it is in the line");
            Creation { ttl, token: meta.number(b'E'), ticket: None }
        })
    }

    /// Executes me.
    pub(super) fn meta_debug(&self, meta: &Meta<'_>, key: &[u8], output: &mut Output) {
        self.counters().meta_commands.add(1);
        let lookup = self.pool(key).peek(key);
        self.note_keyed(key, lookup.is_hit(), FetchVerb::Get);
        let Lookup::Hit(item) = lookup else {
            return answer_code(meta, key, b"EN", output);
        };
        let facts = ItemFacts::of(&item, None);
        let out = output.bytes();
        out.extend_from_slice(b"ME ");
        match meta.has(b'b') {
            true => base64_encode(out, key),
            false => out.extend_from_slice(key),
        }
        out.extend_from_slice(b" exp=");
        facts.remaining.write(out);
        out.extend_from_slice(b" la=");
        reply::number(out, facts.uses.idle.as_secs());
        out.extend_from_slice(b" cas=");
        reply::number(out, facts.token(Some(&item)));
        out.extend_from_slice(if facts.uses.was_used { b" fetch=yes" } else { b" fetch=no" });
        out.extend_from_slice(b" cls=");
        reply::number(out, self.router.class(key).into());
        out.extend_from_slice(b" size=");
        reply::number(out, item.stored_bytes());
        out.extend_from_slice(reply::LINE_END);
    }
}
