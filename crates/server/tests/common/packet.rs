//! Packets of the binary protocol, built and taken apart.

use std::io::Write;
use std::net::TcpStream;

use super::read_exactly;

pub const GET: u8 = 0x00;
pub const SET: u8 = 0x01;
pub const ADD: u8 = 0x02;
pub const DELETE: u8 = 0x04;
pub const INCREMENT: u8 = 0x05;
pub const DECREMENT: u8 = 0x06;
pub const GETQ: u8 = 0x09;
pub const NOOP: u8 = 0x0A;
pub const VERSION: u8 = 0x0B;
pub const GETKQ: u8 = 0x0D;
pub const APPEND: u8 = 0x0E;
pub const STAT: u8 = 0x10;
pub const TOUCH: u8 = 0x1C;
pub const GAT: u8 = 0x1D;
pub const SETQ: u8 = 0x11;
pub const SASL_MECHANISMS: u8 = 0x20;
pub const SASL_AUTH: u8 = 0x21;
pub const SASL_STEP: u8 = 0x22;

pub const OK: u16 = 0;

/// A request.
#[derive(Clone, Default)]
pub struct Packet<'a> {
    pub opcode: u8,
    pub extras: &'a [u8],
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub opaque: u32,
    pub cas: u64,
}

impl Packet<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0, 0, 0]);
        bytes.extend((body as u32).to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas.to_be_bytes());
        bytes.extend([self.extras, self.key, self.value].concat());
        bytes
    }
}

pub fn request(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    Packet { opcode, extras, key, value, ..Packet::default() }.bytes()
}

pub fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    request(SET, &[0; 8], key, value)
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub opcode: u8,
    pub status: u16,
    pub opaque: u32,
    pub cas: u64,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

pub fn read(stream: &mut TcpStream) -> Answer {
    let header = read_exactly(stream, 24);
    assert_eq!(header[0], 0x81, "{header:?}");
    let (key, extras) = (usize::from(header[2]) << 8 | usize::from(header[3]), usize::from(header[4]));
    let body = u32::from_be_bytes(header[8..12].try_into().expect("4 bytes")) as usize;
    let mut body = read_exactly(stream, body);
    let value = body.split_off(extras + key);
    let key = body.split_off(extras);
    Answer {
        opcode: header[1],
        status: u16::from_be_bytes([header[6], header[7]]),
        opaque: u32::from_be_bytes(header[12..16].try_into().expect("4 bytes")),
        cas: u64::from_be_bytes(header[16..].try_into().expect("8 bytes")),
        extras: body,
        key,
        value,
    }
}

/// Sends a request and reads one answer.
pub fn ask(stream: &mut TcpStream, request: &[u8]) -> Answer {
    stream.write_all(request).expect("a write");
    read(stream)
}

/// The status and the value of an answer.
pub fn status_of(stream: &mut TcpStream, request: &[u8]) -> (u16, Vec<u8>) {
    let answer = ask(stream, request);
    (answer.status, answer.value)
}
