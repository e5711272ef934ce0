//! Packets in, steps out. The answers of memcached 1.6.45 to the same bytes are the reference for every status here.

use ebbtide_protocol::StoreMode;
use ebbtide_protocol::binary::reply::{self, Status};
use ebbtide_protocol::binary::{
    After, BODY_LIMIT, BinaryCommand, HEADER_BYTES, Initial, PacketHead, PacketStep, Put, Touched, next,
};

const INLINE: usize = 64;
const OPAQUE: [u8; 4] = [1, 2, 3, 4];
const CAS: u64 = 0x1122_3344_5566_7788;

/// The header of a request whose lengths may be lies.
fn header(opcode: u8, key: usize, extras: usize, body: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key as u16).to_be_bytes());
    bytes.extend([extras as u8, 9, 8, 7]);
    bytes.extend(body.to_be_bytes());
    bytes.extend(OPAQUE);
    bytes.extend(CAS.to_be_bytes());
    bytes
}

fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = extras.len() + key.len() + value.len();
    [&header(opcode, key.len(), extras.len(), body as u32), extras, key, value].concat()
}

fn head(opcode: u8, quiet: bool) -> PacketHead {
    PacketHead { opcode, quiet, opaque: OPAQUE }
}

/// The command of a whole packet; every shorter prefix of the packet needs more bytes.
#[track_caller]
fn command<'a>(bytes: &'a [u8], quiet: bool) -> BinaryCommand<'a> {
    for short in 0..bytes.len() {
        assert_eq!(next(&bytes[..short], INLINE), (PacketStep::NeedMore, 0), "{short} bytes");
    }
    match next(bytes, INLINE) {
        (PacketStep::Request(found, command), used) => {
            assert_eq!((found, used), (head(bytes[1], quiet), bytes.len()));
            command
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_rejected(bytes: &[u8], status: Status, after: After) {
    match next(bytes, INLINE) {
        (PacketStep::Reject { head, status: found, after: found_after }, _) => {
            assert_eq!((found, found_after, head.opaque), (status, after, OPAQUE));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn gets_and_touches() {
    for (opcode, with_key, quiet) in
        [(0x00, false, false), (0x09, false, true), (0x0C, true, false), (0x0D, true, true)]
    {
        assert_eq!(command(&packet(opcode, b"", b"key", b""), quiet), BinaryCommand::Get { key: b"key", with_key });
    }
    for (opcode, answer, quiet) in [
        (0x1C, Touched::Flags, false),
        (0x1D, Touched::Value, false),
        (0x1E, Touched::Value, true),
        (0x23, Touched::KeyAndValue, false),
        (0x24, Touched::KeyAndValue, true),
    ] {
        let bytes = packet(opcode, &[0, 0, 1, 2], b"key", b"");
        assert_eq!(command(&bytes, quiet), BinaryCommand::Touch { key: b"key", exptime: 258, answer });
    }
}

#[test]
fn stores() {
    let extras = [0, 0, 0, 5, 0, 0, 1, 0];
    for (opcode, mode) in [(1, StoreMode::Set), (2, StoreMode::Add), (3, StoreMode::Replace)] {
        let put = Put { mode, key: b"key", flags: 5, exptime: 256, cas: CAS, length: 5, value: Some(b"value") };
        assert_eq!(command(&packet(opcode, &extras, b"key", b"value"), false), BinaryCommand::Put(put));
        assert_eq!(command(&packet(opcode + 0x10, &extras, b"key", b"value"), true), BinaryCommand::Put(put));
    }
    for (opcode, quiet_opcode, mode) in [(0x0E, 0x19, StoreMode::Append), (0x0F, 0x1A, StoreMode::Prepend)] {
        let put = Put { mode, key: b"key", flags: 0, exptime: 0, cas: CAS, length: 0, value: Some(b"") };
        assert_eq!(command(&packet(opcode, b"", b"key", b""), false), BinaryCommand::Put(put));
        assert_eq!(command(&packet(quiet_opcode, b"", b"key", b""), true), BinaryCommand::Put(put));
    }
}

#[test]
fn counting_and_the_rest() {
    let extras = |exptime: u32| [&7u64.to_be_bytes()[..], &9u64.to_be_bytes(), &exptime.to_be_bytes()].concat();
    for (opcode, increment, quiet) in [(5, true, false), (0x15, true, true), (6, false, false), (0x16, false, true)] {
        for (exptime, initial) in [(60, Some(Initial { value: 9, exptime: 60 })), (u32::MAX, None)] {
            let expected = BinaryCommand::Arithmetic { key: b"key", delta: 7, increment, initial, cas: CAS };
            assert_eq!(command(&packet(opcode, &extras(exptime), b"key", b""), quiet), expected);
        }
    }
    assert_eq!(command(&packet(4, b"", b"key", b""), false), BinaryCommand::Delete { key: b"key", cas: CAS });
    assert_eq!(command(&packet(0x14, b"", b"key", b""), true), BinaryCommand::Delete { key: b"key", cas: CAS });
    assert_eq!(command(&packet(8, b"", b"", b""), false), BinaryCommand::Flush { exptime: 0 });
    assert_eq!(command(&packet(0x18, &[0, 0, 0, 3], b"", b""), true), BinaryCommand::Flush { exptime: 3 });
    for (opcode, expected, quiet) in [
        (0x07, BinaryCommand::Quit, false),
        (0x17, BinaryCommand::Quit, true),
        (0x0A, BinaryCommand::Noop, false),
        (0x0B, BinaryCommand::Version, false),
        (0x10, BinaryCommand::Stat { topic: b"" }, false),
        (0x20, BinaryCommand::SaslMechanisms, false),
    ] {
        assert_eq!(command(&packet(opcode, b"", b"", b""), quiet), expected);
    }
    assert_eq!(command(&packet(0x10, b"", b"items", b""), false), BinaryCommand::Stat { topic: b"items" });
    for (opcode, step) in [(0x21, false), (0x22, true)] {
        let expected = BinaryCommand::Sasl { step, mechanism: b"PLAIN", data: b"\0me\0pass" };
        assert_eq!(command(&packet(opcode, b"", b"PLAIN", b"\0me\0pass"), false), expected);
    }
}

#[test]
fn long_values_are_left_to_the_caller() {
    let extras = [0; 8];
    let whole = packet(1, &extras, b"key", &[b'v'; INLINE + 1]);
    let before_value = whole.len() - (INLINE + 1);
    for have in 0..=whole.len() {
        match next(&whole[..have], INLINE) {
            (PacketStep::NeedMore, 0) => assert!(have < before_value, "{have} bytes"),
            (PacketStep::Request(_, BinaryCommand::Put(put)), used) => {
                assert_eq!(put.length, INLINE as u32 + 1);
                assert_eq!(put.value.is_some(), have == whole.len());
                assert_eq!(used, if have == whole.len() { whole.len() } else { before_value });
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn wrong_lengths_are_refused_in_memcacheds_order() {
    // The key and the extras do not fit the body: whatever the command.
    for bytes in [header(0, 3, 0, 2), header(1, 3, 8, 10), header(0x77, 300, 0, 299), header(0x0A, 0, 1, 0)] {
        assert_rejected(&bytes, Status::UnknownCommand, After::Close);
    }
    for bytes in [header(0, 251, 0, 251), header(0x77, 251, 0, 251), header(1, 65_535, 8, 70_000)] {
        assert_rejected(&bytes, Status::InvalidArguments, After::Close);
    }
    for bytes in [header(1, 3, 8, BODY_LIMIT + 1), header(0x77, 0, 0, u32::MAX)] {
        assert_rejected(&bytes, Status::InvalidArguments, After::Close);
    }
    for (opcode, key, extras, value) in [
        (0x00, 0, 0, 0),
        (0x00, 3, 4, 0),
        (0x09, 3, 0, 1),
        (0x01, 3, 4, 1),
        (0x02, 0, 8, 1),
        (0x03, 3, 0, 1),
        (0x04, 0, 0, 0),
        (0x14, 3, 0, 1),
        (0x05, 3, 16, 0),
        (0x06, 0, 20, 0),
        (0x15, 3, 20, 1),
        (0x07, 1, 0, 0),
        (0x17, 0, 4, 0),
        (0x08, 0, 8, 0),
        (0x18, 1, 0, 0),
        (0x0A, 0, 0, 1),
        (0x0B, 1, 0, 0),
        (0x0E, 0, 0, 5),
        (0x19, 3, 4, 5),
        (0x10, 3, 4, 0),
        (0x10, 3, 0, 1),
        (0x1C, 3, 0, 0),
        (0x1D, 3, 8, 0),
        (0x1E, 0, 4, 0),
        (0x23, 3, 4, 1),
        (0x20, 0, 0, 1),
        (0x21, 0, 0, 5),
        (0x22, 5, 4, 5),
    ] {
        let bytes = header(opcode, key, extras, (key + extras + value) as u32);
        assert_rejected(&bytes, Status::InvalidArguments, After::Close);
    }
}

#[test]
fn what_is_unknown_is_skipped() {
    for opcode in [0x1B, 0x30, 0x3D, 0x55, 0xFF] {
        assert_rejected(&packet(opcode, b"ext", b"key", b"value"), Status::UnknownCommand, After::Skip(11));
    }
    assert_rejected(&packet(0x21, b"", &[b'M'; 33], b"data"), Status::InvalidArguments, After::Skip(4));
    assert_rejected(&packet(0x21, b"", b"PLAIN", &[b'p'; INLINE + 1]), Status::AuthError, After::Close);
}

#[test]
fn another_first_byte_ends_it() {
    assert_eq!(next(b"", INLINE), (PacketStep::NeedMore, 0));
    for first in [0x81, b'g', 0] {
        assert_eq!(next(&[first], INLINE).0, PacketStep::Close);
    }
    assert_eq!(next(&[0x80; HEADER_BYTES - 1], INLINE), (PacketStep::NeedMore, 0));
}

#[test]
fn answers_carry_the_opaque_and_the_token() {
    let mut out = Vec::new();
    reply::done(&mut out, head(0x11, true), 5);
    assert_eq!(out, [0x81, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5]);
    out.clear();
    reply::error(&mut out, head(0, false), Status::NotFound);
    assert_eq!(out[..16], [0x81, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4]);
    assert_eq!(out[24..], *b"Not found");
    out.clear();
    reply::hit(&mut out, head(0x0C, false), b"key", 7, 5, 6);
    assert_eq!(out[..16], [0x81, 0x0C, 0, 3, 4, 0, 0, 0, 0, 0, 0, 12, 1, 2, 3, 4]);
    assert_eq!(out[23..], *b"\x06\0\0\0\x07key");
    out.clear();
    reply::missing_key(&mut out, head(0x0C, false), b"key");
    assert_eq!(out[..12], [0x81, 0x0C, 0, 3, 0, 0, 0, 1, 0, 0, 0, 3]);
    out.clear();
    reply::number(&mut out, head(5, false), 258, 1);
    assert_eq!(out[24..], [0, 0, 0, 0, 0, 0, 1, 2]);
    out.clear();
    reply::stat(&mut out, head(0x10, false), b"pid", b"12");
    assert_eq!((&out[2..4], &out[8..12], &out[24..]), (&[0, 3][..], &[0, 0, 0, 5][..], &b"pid12"[..]));
}
