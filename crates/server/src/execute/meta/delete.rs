//! md: removes an item, or marks it as stale.

use ebbtide::{Changed, Mark, Revision, Visit, Visited};
use ebbtide_protocol::{Meta, reply};

use super::answer_code;
use crate::execute::{Executor, Next};
use crate::output::Output;
use crate::watch::DeleteCommand;

impl Executor {
    pub(super) fn meta_delete(&self, meta: &Meta<'_>, key: &[u8], output: &mut Output) -> Next {
        let counters = self.counters();
        let done = if meta.has(b'I') {
            let Ok(done) = self.mark_stale(meta, key) else {
                output.bytes().extend_from_slice(reply::OUT_OF_MEMORY);
                return Next::Continue;
            };
            self.note_keyed(key, done != Changed::Absent);
            done
        } else {
            let Some(done) = self.delete_noted(key, meta.number(b'C'), DeleteCommand::MetaDelete) else {
                return Next::Below;
            };
            counters.delete_hits.add(u64::from(done == Changed::Done(())));
            done
        };
        let code = match done {
            Changed::Done(()) if meta.has(b'q') => return Next::Continue,
            Changed::Done(()) => b"HD",
            Changed::Absent => b"NF",
            Changed::Exists => b"EX",
        };
        counters.delete_misses.add(u64::from(done != Changed::Done(())));
        answer_code(meta, key, code, output);
        Next::Continue
    }

    fn mark_stale(&self, meta: &Meta<'_>, key: &[u8]) -> Result<Changed<()>, ebbtide::Error> {
        let expected = meta.number(b'C');
        let mut matches = true;
        let revision = Revision { ttl: self.life(meta, b'T'), mark: Mark::Stale { token: meta.number(b'E') } };
        let visited = self.cache.visit(key, Visit { create: None, counts: false }, |item| {
            matches = expected.is_none_or(|token| item.has_cas(token));
            matches.then_some(revision)
        })?;
        Ok(match visited {
            Visited::Absent | Visited::Created { .. } => Changed::Absent,
            Visited::Found { .. } if matches => Changed::Done(()),
            Visited::Found { .. } => Changed::Exists,
        })
    }
}
