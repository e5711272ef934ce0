//! ma: incr and decr on terms.

use ebbtide::memcached::{Change, Changed, Count, Error, Number, Ttl};
use ebbtide_protocol::{Meta, reply};

use super::{Remaining, answer_code, reflect};
use crate::execute::Executor;
use crate::output::Output;
use crate::watch::FetchVerb;

impl Executor {
    pub(super) fn meta_arithmetic(&self, meta: &Meta<'_>, key: &[u8], output: &mut Output) {
        let delta = meta.number(b'D').unwrap_or(1);
        let increments = !matches!(meta.mode(), Some(b'D' | b'-'));
        let change = if increments { Change::Add(delta) } else { Change::Subtract(delta) };
        // The later flag of T and N sets the life of a new item.
        let last = meta.flags().filter(|flag| matches!(flag[0], b'T' | b'N')).last();
        let initial = last.filter(|_| meta.has(b'N')).and_then(|flag| self.life(meta, flag[0]));
        let count = Count {
            change,
            // A token of 0 is no condition.
            expected: meta.number(b'C').filter(|token| *token != 0),
            token: meta.number(b'E'),
            ttl: self.life(meta, b'T'),
            initial: initial.map(|ttl| (meta.number(b'J').unwrap_or(0), ttl)),
            ticket: None,
        };
        let counters = self.counters();
        let (hits, misses) = match increments {
            true => (&counters.incr_hits, &counters.incr_misses),
            false => (&counters.decr_hits, &counters.decr_misses),
        };
        let Some(counted) = self.park_if_waiting(self.pool(key).count(key, &count)) else { return };
        let found = match &counted {
            Ok(Changed::Done(number)) => !number.is_new,
            Ok(Changed::Exists) | Err(Error::NotNumeric) => true,
            Ok(Changed::Absent) | Err(_) => false,
        };
        self.note_keyed(key, found, FetchVerb::Arithmetic);
        match counted {
            Ok(Changed::Done(number)) => {
                hits.add(u64::from(!number.is_new));
                if !meta.has(b'q') {
                    self.answer_number(meta, key, &number, output);
                }
            }
            Ok(Changed::Absent) => {
                misses.add(1);
                answer_code(meta, key, b"NF", output);
            }
            Ok(Changed::Exists) => answer_code(meta, key, b"EX", output),
            Err(Error::NotNumeric) => output.bytes().extend_from_slice(reply::NON_NUMERIC),
            Err(_) => output.bytes().extend_from_slice(reply::OUT_OF_MEMORY),
        }
    }

    fn answer_number(&self, meta: &Meta<'_>, key: &[u8], number: &Number, output: &mut Output) {
        let out = output.bytes();
        let mut digits = Vec::new();
        if meta.has(b'v') {
            reply::number(&mut digits, number.value);
            out.extend_from_slice(b"VA ");
            reply::number(out, digits.len() as u64);
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut remaining = match number.is_new {
            true => self.remaining(Ttl::Never),
            false => Remaining::of(self.cache.remaining_ttl(number)),
        };
        for flag in meta.flags() {
            match flag[0] {
                b'c' => {
                    reply::meta_flag(out, b'c');
                    reply::number(out, self.pool(key).keep_cas(key, number.token));
                }
                b't' => remaining.answer(out),
                letter @ (b'T' | b'N') if letter == b'T' || number.is_new => {
                    remaining = self.life(meta, letter).map_or(remaining, |ttl| self.remaining(ttl));
                }
                _ => {
                    reflect(flag, key, meta.has(b'b'), out);
                }
            }
        }
        out.extend_from_slice(reply::LINE_END);
        if meta.has(b'v') {
            out.extend_from_slice(&digits);
            out.extend_from_slice(reply::LINE_END);
        }
    }
}
