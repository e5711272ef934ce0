//! The commands of the binary protocol.

mod compact;
mod get;
mod next;
mod put;
mod put_body;
mod sasl;
mod stat;

use ebbtide::memcached::{Change, Changed, Error, Lookup, Mode, Stored};
use ebbtide_protocol::binary::reply::{self, Status};
use ebbtide_protocol::binary::{BinaryCommand, Initial, PacketHead, Touched};

use super::Executor;
use super::flash_reads::KeyPresence;
use super::value_reader::NewItem;
use crate::observe;
use crate::output::Output;
use crate::watch::DeleteCommand;

pub use get::BinaryRun;
pub use next::PacketNext;
pub use put_body::PutBody;
pub use sasl::Sasl;

impl Executor {
    /// Executes any command but a get, and records it if it is sampled. `connection`: number of the client's connection
    /// in `stats conns`.
    pub fn execute_binary(
        &self,
        head: PacketHead,
        command: BinaryCommand<'_>,
        connection: usize,
        sasl: &mut Sasl,
        output: &mut Output,
    ) -> PacketNext {
        if !self.probe.is_sampling() {
            return self.carry_out_binary(head, command, connection, sasl, output);
        }
        let (observed, key) = observe::CommandKind::of_binary(&command);
        let next = self.carry_out_binary(head, command, connection, sasl, output);
        // A value that has not arrived yet is recorded when it is stored.
        if !matches!(next, PacketNext::Receive(_) | PacketNext::Parked) {
            self.probe.note(self.samples(), observed, key);
        }
        next
    }

    fn carry_out_binary(
        &self,
        head: PacketHead,
        command: BinaryCommand<'_>,
        connection: usize,
        sasl: &mut Sasl,
        output: &mut Output,
    ) -> PacketNext {
        if self.router.has_compact()
            && let Some(next) = self.compact_command(head, &command, output)
        {
            return next;
        }
        match self.command_presence(&command) {
            KeyPresence::Known => {}
            KeyPresence::NeedsFlash => return PacketNext::Parked,
            KeyPresence::NoMemory => {
                reply::error(output.bytes(), head, Status::OutOfMemory);
                return PacketNext::Continue;
            }
        }
        match command {
            BinaryCommand::Get { .. } => unreachable!("gets are executed in runs"),
            BinaryCommand::Put(put) => return self.put(head, &put, output),
            BinaryCommand::Touch { key, exptime, answer } => self.touch_binary(head, key, exptime, answer, output),
            BinaryCommand::Delete { key, cas } => return self.delete_binary(head, key, cas, output),
            BinaryCommand::Arithmetic { key, delta, increment, initial, cas } => {
                self.arithmetic_binary(head, key, (delta, increment), initial, cas, output);
            }
            BinaryCommand::Flush { exptime } => self.flush_binary(head, exptime, output),
            BinaryCommand::Noop => self.done(head, 0, output),
            BinaryCommand::Version => reply::text(output.bytes(), head, crate::VERSION.as_bytes()),
            BinaryCommand::Stat { topic } => self.stat_binary(head, topic, connection, output),
            BinaryCommand::Quit => {
                self.done(head, 0, output);
                return PacketNext::Close;
            }
            BinaryCommand::SaslMechanisms | BinaryCommand::Sasl { .. } if !sasl.is_spoken() => {
                reply::error(output.bytes(), head, Status::UnknownCommand);
            }
            BinaryCommand::SaslMechanisms => {
                sasl.begin_again();
                reply::text(output.bytes(), head, sasl::MECHANISM);
            }
            BinaryCommand::Sasl { step, mechanism, data } => self.sasl(head, sasl, step, (mechanism, data), output),
        }
        if self.is_waiting() { PacketNext::Parked } else { PacketNext::Continue }
    }

    /// Answers that all went as expected, unless the command is quiet.
    fn done(&self, head: PacketHead, cas: u64, output: &mut Output) {
        if !head.quiet {
            reply::done(output.bytes(), head, cas);
        }
    }

    fn touch_binary(&self, head: PacketHead, key: &[u8], exptime: u32, answer: Touched, output: &mut Output) {
        let name: &[u8] = if answer == Touched::KeyAndValue { key } else { &[] };
        let Some(touched) = self.park_if_waiting(self.pool(key).get_and_touch(key, self.ttl(exptime))) else { return };
        match touched {
            Ok(Lookup::Hit(item)) => {
                self.counters().touch_hits.add(1);
                match answer {
                    Touched::Flags => reply::hit(output.bytes(), head, &[], item.flags(), 0, item.cas()),
                    Touched::Value | Touched::KeyAndValue => get::write_hit(head, name, &item, output),
                }
            }
            Ok(Lookup::Miss) => {
                self.counters().touch_misses.add(1);
                get::write_miss(head, name, output);
            }
            Err(_) => reply::error(output.bytes(), head, Status::OutOfMemory),
        }
    }

    fn flush_binary(&self, head: PacketHead, exptime: u32, output: &mut Output) {
        if !self.options().allow_flush {
            return reply::error(output.bytes(), head, Status::AuthError);
        }
        self.counters().flush_commands.add(1);
        self.flush_pools(exptime);
        self.done(head, 0, output);
    }

    fn delete_binary(&self, head: PacketHead, key: &[u8], cas: u64, output: &mut Output) -> PacketNext {
        let Some(deleted) = self.delete_noted(key, (cas != 0).then_some(cas), DeleteCommand::Delete) else {
            return PacketNext::Parked;
        };
        match deleted {
            Changed::Done(()) => {
                self.counters().delete_hits.add(1);
                self.done(head, 0, output);
            }
            Changed::Absent => {
                self.counters().delete_misses.add(1);
                reply::error(output.bytes(), head, Status::NotFound);
            }
            Changed::Exists => reply::error(output.bytes(), head, Status::Exists),
        }
        PacketNext::Continue
    }

    fn arithmetic_binary(
        &self,
        head: PacketHead,
        key: &[u8],
        (delta, increment): (u64, bool),
        initial: Option<Initial>,
        cas: u64,
        output: &mut Output,
    ) {
        let counters = self.counters();
        let (change, hits, misses) = match increment {
            true => (Change::Add(delta), &counters.incr_hits, &counters.incr_misses),
            false => (Change::Subtract(delta), &counters.decr_hits, &counters.decr_misses),
        };
        let expected = (cas != 0).then_some(cas);
        // Another client may create the entry between the lookup and the add: then the loop changes that entry.
        let (value, token) = loop {
            let changed = match self.pool(key).change(key, change, expected) {
                // Then it is the add that the command may wait for.
                absent @ Ok(Changed::Absent) if initial.is_some() => Some(absent),
                changed => self.park_if_waiting(changed),
            };
            let Some(changed) = changed else { return };
            let status = match (changed, initial) {
                (Ok(Changed::Done(number)), _) => {
                    hits.add(1);
                    break (number.value, number.token);
                }
                (Ok(Changed::Absent), Some(initial)) => match self.park_if_waiting(self.add_number(key, initial)) {
                    Some(Ok(Some(token))) => break (initial.value, token),
                    Some(Ok(None)) => continue,
                    Some(Err(_)) => Status::OutOfMemory,
                    None => return,
                },
                (Ok(Changed::Absent), None) => {
                    misses.add(1);
                    Status::NotFound
                }
                (Ok(Changed::Exists), _) => Status::Exists,
                (Err(Error::NotNumeric), _) => Status::NonNumeric,
                (Err(_), _) => Status::OutOfMemory,
            };
            return reply::error(output.bytes(), head, status);
        };
        if !head.quiet {
            reply::number(output.bytes(), head, value, self.pool(key).keep_cas(key, token));
        }
    }

    /// Makes an entry with a number: its token, or `None` if there is an entry already.
    fn add_number(&self, key: &[u8], initial: Initial) -> Result<Option<u64>, Error> {
        let mut text = Vec::with_capacity(20);
        ebbtide_protocol::reply::number(&mut text, initial.value);
        let entry = NewItem { key, flags: 0, ttl: self.ttl(initial.exptime), mode: Mode::Add };
        let written = entry.store(self.pool(entry.key), &text)?;
        Ok((written.stored == Stored::Stored).then_some(written.token))
    }
}
