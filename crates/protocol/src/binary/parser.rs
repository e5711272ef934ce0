//! The request parser. It keeps no state between packets: pass the bytes that it did not consume again, followed by
//! those that have arrived since.
//!
//! A packet's lengths are checked when its header has arrived, in memcached's order, because a packet with two mistakes
//! must be answered with the same one of them. An incomplete value of more than `inline_limit` bytes is left to the
//! caller, so that the bytes waiting for a packet to be complete stay below 24 + 20 + 250 + `inline_limit`.

use super::header::{HEADER_BYTES, PacketHeader, REQUEST_MAGIC};
use super::opcode::Opcode;
use super::reply::Status;
use super::request::{BinaryCommand, Initial, PacketHead, Put, Touched};
use crate::{MAX_KEY, StoreMode};

/// A packet that announces a longer body closes the connection: memcached counts bodies in an int.
pub const BODY_LIMIT: u32 = 1 << 30;
/// The longest name of a SASL mechanism.
pub const MECHANISM_LIMIT: usize = 32;
/// The expiration with which incr and decr do not create an absent entry.
const NO_INITIAL: u32 = u32::MAX;

/// Result of parsing the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStep<'a> {
    Request(PacketHead, BinaryCommand<'a>),
    /// Answer the status, even to a quiet command.
    Reject {
        head: PacketHead,
        status: Status,
        after: After,
    },
    /// The packet is not complete.
    NeedMore,
    /// The connection does not speak this protocol.
    Close,
}

/// How the stream continues after a rejected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The caller discards this number of bytes, which belong to the packet.
    Skip(u32),
    /// The start of the next packet is unknown.
    Close,
}

/// Parses the front of `input`. Returns the result and the number of bytes consumed.
pub fn next(input: &[u8], inline_limit: usize) -> (PacketStep<'_>, usize) {
    if input.first().is_some_and(|&magic| magic != REQUEST_MAGIC) {
        return (PacketStep::Close, input.len());
    }
    let Some(header) = PacketHeader::read(input) else {
        return (PacketStep::NeedMore, 0);
    };
    let known = Opcode::from_number(header.opcode);
    let quiet = known.is_some_and(|(_, quiet)| quiet);
    let head = PacketHead { opcode: header.opcode, quiet, opaque: header.opaque };
    let reject = |status, after| (PacketStep::Reject { head, status, after }, HEADER_BYTES);
    let Some(value_length) = header.value_length() else {
        return reject(Status::UnknownCommand, After::Close);
    };
    if usize::from(header.key_length) > MAX_KEY {
        return reject(Status::InvalidArguments, After::Close);
    }
    if header.body_length > BODY_LIMIT {
        return reject(Status::InvalidArguments, After::Close);
    }
    let Some((opcode, _)) = known else {
        return reject(Status::UnknownCommand, After::Skip(header.body_length));
    };
    if !lengths_are_valid(opcode, &header, value_length) {
        return reject(Status::InvalidArguments, After::Close);
    }
    let body = &input[HEADER_BYTES..];
    let (extras_length, key_length) = (usize::from(header.extras_length), usize::from(header.key_length));
    if body.len() < extras_length + key_length {
        return (PacketStep::NeedMore, 0);
    }
    let (extras, rest) = body.split_at(extras_length);
    let (key, rest) = rest.split_at(key_length);
    let value = rest.get(..value_length as usize);
    let is_long = value_length as usize > inline_limit;
    let before_value = HEADER_BYTES + extras_length + key_length;
    if matches!(opcode, Opcode::SaslAuth | Opcode::SaslStep) {
        if key.len() > MECHANISM_LIMIT {
            return (
                PacketStep::Reject { head, status: Status::InvalidArguments, after: After::Skip(value_length) },
                before_value,
            );
        }
        if is_long {
            // Credentials are short, and the client is not authenticated yet.
            return reject(Status::AuthError, After::Close);
        }
    }
    if value.is_none() && !is_long {
        return (PacketStep::NeedMore, 0);
    }
    let packet = Packet { opcode, cas: header.cas, extras, key, value_length, value };
    (PacketStep::Request(head, packet.command()), before_value + value.map_or(0, <[u8]>::len))
}

/// Whether a packet has the parts that its command has.
fn lengths_are_valid(opcode: Opcode, header: &PacketHeader, value_length: u32) -> bool {
    let (extras, has_key, has_value) = (header.extras_length, header.key_length > 0, value_length > 0);
    match opcode {
        Opcode::Get | Opcode::GetKey | Opcode::Delete => extras == 0 && has_key && !has_value,
        Opcode::Set | Opcode::Add | Opcode::Replace => extras == 8 && has_key,
        Opcode::Append | Opcode::Prepend => extras == 0 && has_key,
        Opcode::Increment | Opcode::Decrement => extras == 20 && has_key && !has_value,
        Opcode::Touch | Opcode::GetAndTouch | Opcode::GetKeyAndTouch => extras == 4 && has_key && !has_value,
        Opcode::Flush => (extras == 0 || extras == 4) && !has_key && !has_value,
        Opcode::Stat => extras == 0 && !has_value,
        Opcode::SaslAuth | Opcode::SaslStep => extras == 0 && has_key,
        Opcode::Noop | Opcode::Version | Opcode::Quit | Opcode::SaslMechanisms => extras == 0 && !has_key && !has_value,
    }
}

/// A packet whose lengths are those of its command.
struct Packet<'a> {
    opcode: Opcode,
    cas: u64,
    extras: &'a [u8],
    key: &'a [u8],
    value_length: u32,
    value: Option<&'a [u8]>,
}

impl<'a> Packet<'a> {
    fn command(&self) -> BinaryCommand<'a> {
        let key = self.key;
        match self.opcode {
            Opcode::Get => BinaryCommand::Get { key, with_key: false },
            Opcode::GetKey => BinaryCommand::Get { key, with_key: true },
            Opcode::Touch => self.touch(Touched::Flags),
            Opcode::GetAndTouch => self.touch(Touched::Value),
            Opcode::GetKeyAndTouch => self.touch(Touched::KeyAndValue),
            Opcode::Set => self.put(StoreMode::Set, self.u32_at(0), self.u32_at(4)),
            Opcode::Add => self.put(StoreMode::Add, self.u32_at(0), self.u32_at(4)),
            Opcode::Replace => self.put(StoreMode::Replace, self.u32_at(0), self.u32_at(4)),
            Opcode::Append => self.put(StoreMode::Append, 0, 0),
            Opcode::Prepend => self.put(StoreMode::Prepend, 0, 0),
            Opcode::Delete => BinaryCommand::Delete { key, cas: self.cas },
            Opcode::Increment => self.arithmetic(true),
            Opcode::Decrement => self.arithmetic(false),
            Opcode::Flush if self.extras.is_empty() => BinaryCommand::Flush { exptime: 0 },
            Opcode::Flush => BinaryCommand::Flush { exptime: self.u32_at(0) },
            Opcode::Noop => BinaryCommand::Noop,
            Opcode::Version => BinaryCommand::Version,
            Opcode::Stat => BinaryCommand::Stat { topic: key },
            Opcode::Quit => BinaryCommand::Quit,
            Opcode::SaslMechanisms => BinaryCommand::SaslMechanisms,
            Opcode::SaslAuth => self.sasl(false),
            Opcode::SaslStep => self.sasl(true),
        }
    }

    fn touch(&self, answer: Touched) -> BinaryCommand<'a> {
        BinaryCommand::Touch { key: self.key, exptime: self.u32_at(0), answer }
    }

    fn put(&self, mode: StoreMode, flags: u32, exptime: u32) -> BinaryCommand<'a> {
        let (key, length, value) = (self.key, self.value_length, self.value);
        BinaryCommand::Put(Put { mode, key, flags, exptime, cas: self.cas, length, value })
    }

    fn arithmetic(&self, increment: bool) -> BinaryCommand<'a> {
        let exptime = self.u32_at(16);
        let initial = (exptime != NO_INITIAL).then(|| Initial { value: self.u64_at(8), exptime });
        BinaryCommand::Arithmetic { key: self.key, delta: self.u64_at(0), increment, initial, cas: self.cas }
    }

    fn sasl(&self, step: bool) -> BinaryCommand<'a> {
        let data = self.value.unwrap_or_default();
        BinaryCommand::Sasl { step, mechanism: self.key, data }
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.extras[at..].first_chunk().expect("the extras have their length"))
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_be_bytes(*self.extras[at..].first_chunk().expect("the extras have their length"))
    }
}
