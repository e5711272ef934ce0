//! Binary commands on keys of compact pools. Commands that such a pool does not support fail with invalid arguments.

use ebbtide::memcached::{CompactPool, Lookup, Stored};
use ebbtide_protocol::StoreMode;
use ebbtide_protocol::binary::reply::{self, Status};
use ebbtide_protocol::binary::{BinaryCommand, PacketHead, Put, Touched};

use super::get;
use super::next::PacketNext;
use super::put_body::PutBody;
use crate::execute::Executor;
use crate::execute::compact::CompactPut;
use crate::execute::modes::put_mode;
use crate::execute::value_reader::ValueReader;
use crate::output::Output;
use crate::watch::DeleteCommand;

impl Executor {
    /// Executes a command on a key of a compact pool. `None`: it is another command.
    pub(super) fn compact_command(
        &self,
        head: PacketHead,
        command: &BinaryCommand<'_>,
        output: &mut Output,
    ) -> Option<PacketNext> {
        match command {
            BinaryCommand::Put(put) => return Some(self.begin_put_compact(self.compact(put.key)?, head, put, output)),
            BinaryCommand::Delete { key, cas } => {
                let pool = self.compact(key)?;
                // A token is none of this pool's.
                let removed = (*cas == 0).then(|| self.remove_compact(pool, key, DeleteCommand::Delete));
                match removed {
                    Some(Ok(true)) => self.done(head, 0, output),
                    Some(Ok(false)) => reply::error(output.bytes(), head, Status::NotFound),
                    Some(Err(_)) | None => reply::error(output.bytes(), head, Status::InvalidArguments),
                }
            }
            BinaryCommand::Touch { key, exptime, answer } => {
                let name: &[u8] = if *answer == Touched::KeyAndValue { key } else { &[] };
                match self.touch_and_look_up(self.compact(key)?, key, self.ttl(*exptime)) {
                    Ok(Lookup::Hit(_)) if *answer == Touched::Flags => reply::hit(output.bytes(), head, &[], 0, 0, 0),
                    Ok(Lookup::Hit(item)) => get::write_hit(head, name, &item, output),
                    Ok(Lookup::Miss) => get::write_miss(head, name, output),
                    Err(_) => reply::error(output.bytes(), head, Status::InvalidArguments),
                }
            }
            BinaryCommand::Arithmetic { key, .. } => {
                self.compact(key)?;
                reply::error(output.bytes(), head, Status::InvalidArguments);
            }
            _ => return None,
        }
        Some(PacketNext::Continue)
    }

    fn begin_put_compact(
        &self,
        pool: &CompactPool,
        head: PacketHead,
        put: &Put<'_>,
        output: &mut Output,
    ) -> PacketNext {
        let Some(value) = put.value else {
            let Put { mode, flags, exptime, cas, length, .. } = *put;
            if length != 0 && length as usize != pool.sizes().value_bytes {
                reply::error(output.bytes(), head, Status::InvalidArguments);
                return PacketNext::Skip(length);
            }
            let value_reader = ValueReader::begin_whole(length.into());
            let put_head = Put { key: &[], value: None, mode, flags, exptime, cas, length };
            return PacketNext::Receive(PutBody { value_reader, key: put.key.into(), put: put_head, head });
        };
        self.put_compact(pool, head, put, value, output);
        PacketNext::Continue
    }

    /// Stores a value and answers.
    pub(super) fn put_compact(
        &self,
        pool: &CompactPool,
        head: PacketHead,
        put: &Put<'_>,
        value: &[u8],
        output: &mut Output,
    ) {
        let (key, flags, ttl) = (put.key, put.flags, self.ttl(put.exptime));
        let written = self.write_compact(pool, &CompactPut { key, value, flags, ttl, mode: put_mode(put) });
        let status = match written {
            Ok(Stored::Stored) => return self.done(head, 0, output),
            Ok(_) if put.mode == StoreMode::Replace => Status::NotFound,
            Ok(_) => Status::Exists,
            Err(_) => Status::InvalidArguments,
        };
        reply::error(output.bytes(), head, status);
    }
}
