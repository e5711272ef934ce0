//! Meta commands on keys of compact pools.

use ebbtide::memcached::{CompactPool, Lookup, Stored};
use ebbtide_protocol::{Meta, MetaCommand, MetaSet, reply};

use super::get::{answer_line, answer_miss};
use super::{answer_code, reflect};
use crate::execute::body::{MetaAnswer, StoreTarget};
use crate::execute::compact::{CompactPut, Refusal};
use crate::execute::modes::meta_mode;
use crate::execute::{Executor, Next};
use crate::output::Output;
use crate::watch::DeleteCommand;

impl Executor {
    /// Executes a meta command other than ms on a key of a compact pool.
    pub(in crate::execute) fn meta_compact(
        &self,
        pool: &CompactPool,
        command: MetaCommand,
        (meta, key): (&Meta<'_>, &[u8]),
        output: &mut Output,
    ) {
        let refused = match command {
            MetaCommand::Get if meta.has(b'N') || meta.has(b'R') => "mg has no N and R",
            MetaCommand::Get => return self.meta_get_compact(pool, meta, key, output),
            MetaCommand::Delete if b"ICx".iter().any(|flag| meta.has(*flag)) => "md has no I, C and x",
            MetaCommand::Delete => return self.meta_delete_compact(pool, meta, key, output),
            MetaCommand::Arithmetic => "it has no numbers",
            MetaCommand::Debug => "it has no me",
        };
        output.bytes().extend_from_slice(&Refusal::command(pool, refused).line());
    }

    fn meta_get_compact(&self, pool: &CompactPool, meta: &Meta<'_>, key: &[u8], output: &mut Output) {
        let lookup = match self.life(meta, b'T') {
            None => {
                let lookup = pool.look_up(key);
                self.count_get(key, lookup.is_hit());
                Ok(lookup)
            }
            Some(ttl) => self.touch_and_look_up(pool, key, ttl),
        };
        match lookup {
            Ok(Lookup::Hit(item)) => answer_line(meta, key, &item, output),
            Ok(Lookup::Miss) if meta.has(b'q') => {}
            Ok(Lookup::Miss) => answer_miss(key, meta.flags(), meta.has(b'b'), output),
            Err(refusal) => output.bytes().extend_from_slice(&refusal.line()),
        }
    }

    fn meta_delete_compact(&self, pool: &CompactPool, meta: &Meta<'_>, key: &[u8], output: &mut Output) {
        match self.remove_compact(pool, key, DeleteCommand::MetaDelete) {
            Ok(true) if meta.has(b'q') => {}
            Ok(true) => answer_code(meta, key, b"HD", output),
            Ok(false) => answer_code(meta, key, b"NF", output),
            Err(refusal) => output.bytes().extend_from_slice(&refusal.line()),
        }
    }

    /// Executes an ms on a key of a compact pool.
    pub(in crate::execute) fn meta_set_compact(
        &self,
        pool: &CompactPool,
        set: &MetaSet<'_>,
        key: &[u8],
        output: &mut Output,
    ) -> Next {
        let (meta, mode) = (&set.meta, meta_mode(&set.meta));
        let Some(value) = set.value else {
            return self.receive_compact(pool, StoreTarget::meta(key, set, mode), output);
        };
        let ttl = self.ttl(meta.exptime(b'T').unwrap_or(0));
        let written = self.write_compact(pool, &CompactPut { key, value, flags: meta.client_flags(), ttl, mode });
        self.answer_set_compact(&MetaAnswer::of(meta), key, written, value.len(), output);
        Next::Continue
    }

    /// Answers an ms on a key of a compact pool. The CAS token of its entries is 0.
    pub(in crate::execute) fn answer_set_compact(
        &self,
        meta_answer: &MetaAnswer,
        key: &[u8],
        written: Result<Stored, Refusal>,
        length: usize,
        output: &mut Output,
    ) {
        let out = output.bytes();
        out.extend_from_slice(match written {
            Ok(Stored::Stored) if meta_answer.quiet => return,
            Ok(Stored::Stored) => b"HD",
            Ok(_) => b"NS",
            Err(refusal) => return out.extend_from_slice(&refusal.line()),
        });
        for flag in Meta::flags_in(&meta_answer.flags) {
            let number = match flag[0] {
                b'c' => 0,
                b's' => length as u64,
                _ => {
                    reflect(flag, key, meta_answer.is_base64, out);
                    continue;
                }
            };
            reply::meta_flag(out, flag[0]);
            reply::number(out, number);
        }
        out.extend_from_slice(reply::LINE_END);
    }
}
