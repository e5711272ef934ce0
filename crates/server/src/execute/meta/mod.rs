//! The meta commands. Each file holds one of them; this file holds the common parts of their answers.
//!
//! An answer is a code and the requested flags, in their order. A plain `mg` is answered in a run of gets
//! (`execute/get.rs`); commands that may change an item are executed here.

mod arithmetic;
mod compact;
mod delete;
mod get;
mod set;

pub use get::{Uses, answer_hit, answer_miss, can_win_recache};
pub use set::SetOutcome;

use std::time::Duration;

use ebbtide::Ttl;
use ebbtide_protocol::{MAX_KEY, Meta, MetaCommand, reply};

use super::{Executor, Next};
use crate::output::Output;

impl Executor {
    /// Executes a meta command other than ms.
    pub(super) fn meta(&self, command: MetaCommand, meta: &Meta<'_>, output: &mut Output) -> Next {
        let mut buffer = [0; MAX_KEY];
        let key = meta.key(&mut buffer);
        match command {
            MetaCommand::Get => self.meta_get(meta, key, None, output),
            MetaCommand::Delete => return self.meta_delete(meta, key, output),
            MetaCommand::Arithmetic => self.meta_arithmetic(meta, key, output),
            MetaCommand::Debug => self.meta_debug(meta, key, output),
        }
        if self.is_waiting() { Next::Parked } else { Next::Continue }
    }

    /// The life that a flag sets.
    fn life(&self, meta: &Meta<'_>, letter: u8) -> Option<Ttl> {
        meta.exptime(letter).map(|exptime| self.ttl(exptime))
    }

    /// Remaining time of a life that begins now.
    fn remaining(&self, ttl: Ttl) -> Remaining {
        Remaining::of(self.cache.ttl_duration(ttl))
    }
}

/// Answers a flag that every answer may have: the opaque token, or the key. False if it is none of them.
#[inline]
fn reflect(flag: &[u8], key: &[u8], is_base64: bool, out: &mut Vec<u8>) -> bool {
    match flag[0] {
        b'O' => {
            out.push(b' ');
            out.extend_from_slice(flag);
        }
        b'k' => reply::meta_key(out, key, is_base64),
        _ => return false,
    }
    true
}

/// An answer of a code and the reflected flags.
fn answer_code(meta: &Meta<'_>, key: &[u8], code: &[u8], output: &mut Output) {
    let out = output.bytes();
    out.extend_from_slice(code);
    for flag in meta.flags() {
        reflect(flag, key, meta.has(b'b'), out);
    }
    out.extend_from_slice(reply::LINE_END);
}

/// A remaining life in whole seconds, as memcached answers it; `None` if it never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remaining(Option<u64>);

impl Remaining {
    fn of(life: Option<Duration>) -> Self {
        Self(life.map(|life| life.as_millis().div_ceil(1000) as u64))
    }

    /// Whether both end, and this one first.
    fn is_below(self, other: Self) -> bool {
        matches!((self.0, other.0), (Some(left), Some(others)) if left < others)
    }

    fn answer(self, out: &mut Vec<u8>) {
        reply::meta_flag(out, b't');
        self.write(out);
    }

    fn write(self, out: &mut Vec<u8>) {
        match self.0 {
            Some(seconds) => reply::number(out, seconds),
            None => out.extend_from_slice(b"-1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_rounded_up_to_seconds() {
        let text = |remaining: Remaining| {
            let mut out = Vec::new();
            remaining.answer(&mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(text(Remaining::of(Some(Duration::from_millis(29_001)))), " t30");
        assert_eq!(text(Remaining::of(Some(Duration::from_secs(30)))), " t30");
        assert_eq!(text(Remaining::of(None)), " t-1");
        assert_eq!(text(Remaining::of(Some(Duration::ZERO))), " t0");
        let [never, left] = [None, Some(30)].map(Remaining);
        assert!(left.is_below(Remaining(Some(31))) && !left.is_below(left));
        assert!(!left.is_below(never) && !left.is_below(Remaining(Some(0))) && !never.is_below(left));
    }
}
