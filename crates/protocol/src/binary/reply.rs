//! Answers: status codes and writers.

use super::header::{self, Lengths};
use super::request::PacketHead;

/// Result of a command, with memcached's numbers and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    NotFound = 0x01,
    Exists = 0x02,
    TooLarge = 0x03,
    InvalidArguments = 0x04,
    NotStored = 0x05,
    NonNumeric = 0x06,
    AuthError = 0x20,
    UnknownCommand = 0x81,
    OutOfMemory = 0x82,
}

/// The authentication takes another step.
const AUTH_CONTINUE: u16 = 0x21;

impl Status {
    fn text(self) -> &'static [u8] {
        match self {
            Self::NotFound => b"Not found",
            Self::Exists => b"Data exists for key.",
            Self::TooLarge => b"Too large.",
            Self::InvalidArguments => b"Invalid arguments",
            Self::NotStored => b"Not stored.",
            Self::NonNumeric => b"Non-numeric server-side value for incr or decr",
            Self::AuthError => b"Auth failure.",
            Self::UnknownCommand => b"Unknown command",
            Self::OutOfMemory => b"Out of memory",
        }
    }
}

/// An error answer; quiet commands get it, too.
pub fn error(out: &mut Vec<u8>, head: PacketHead, status: Status) {
    write(out, head, status as u16, &[], status.text(), 0);
}

/// A miss that names its key.
pub fn missing_key(out: &mut Vec<u8>, head: PacketHead, key: &[u8]) {
    write(out, head, Status::NotFound as u16, key, &[], 0);
}

/// An answer without a body. `cas`: the token of the stored item, or 0.
pub fn done(out: &mut Vec<u8>, head: PacketHead, cas: u64) {
    write(out, head, 0, &[], &[], cas);
}

/// An answer whose body is a text.
pub fn text(out: &mut Vec<u8>, head: PacketHead, text: &[u8]) {
    write(out, head, 0, &[], text, 0);
}

/// The request for another step of an authentication.
pub fn auth_continue(out: &mut Vec<u8>, head: PacketHead) {
    write(out, head, AUTH_CONTINUE, &[], &[], 0);
}

/// The new value after incr or decr.
pub fn number(out: &mut Vec<u8>, head: PacketHead, value: u64, cas: u64) {
    write(out, head, 0, &[], &value.to_be_bytes(), cas);
}

/// One of the statistics. The last packet of an answer to stat is [`done`].
pub fn stat(out: &mut Vec<u8>, head: PacketHead, name: &[u8], value: &[u8]) {
    write(out, head, 0, name, value, 0);
}

/// All of a hit but its value, of which `length` bytes follow. `key` is empty if the answer does not name it.
#[inline]
pub fn hit(out: &mut Vec<u8>, head: PacketHead, key: &[u8], flags: u32, length: u32, cas: u64) {
    let lengths = Lengths { extras: 4, key: key.len() as u16, value: length };
    out.extend_from_slice(&header::answer(head.opcode, head.opaque, 0, lengths, cas));
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(key);
}

/// No answer but a hit has extras.
fn write(out: &mut Vec<u8>, head: PacketHead, status: u16, key: &[u8], value: &[u8], cas: u64) {
    let lengths = Lengths { extras: 0, key: key.len() as u16, value: value.len() as u32 };
    out.extend_from_slice(&header::answer(head.opcode, head.opaque, status, lengths, cas));
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}
