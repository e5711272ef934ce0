//! The binary protocol's parser: it consumes no more than it is given, holds back no more than its bound, and reads the
//! same packets however the input was cut into reads.

use ebbtide_protocol::MAX_KEY;
use ebbtide_protocol::binary::{After, BinaryCommand, HEADER_BYTES, PacketStep, next};

use crate::split::cuts;

/// Values up to here are waited for; small, so that inputs reach the other way as well.
const INLINE_VALUE_BYTES: usize = 48;
/// The most extras that a command has.
const EXTRAS: usize = 20;

/// Content of a packet, however it was cut.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Command(String),
    /// A command with a value, whole.
    Put {
        command: String,
        value: Vec<u8>,
    },
    Rejected(String),
    Closed,
}

pub fn check(input: &[u8]) {
    assert_eq!(read(input, &[input.len()]), read(input, &cuts(input)), "the cuts make a difference");
}

/// Reads `input` in reads that end at `ends`.
fn read(input: &[u8], ends: &[usize]) -> Vec<Said> {
    let mut said = Vec::new();
    let mut at = 0;
    for &end in ends {
        // Values that the caller must read are read at once, past the end of a read if necessary: then some reads are
        // over.
        while at <= end {
            let (step, used) = next(&input[at..end], INLINE_VALUE_BYTES);
            assert!(used <= end - at, "consumed {used} of {} bytes", end - at);
            at += used;
            match step {
                PacketStep::NeedMore => {
                    assert_eq!(used, 0, "what waits for more has to be given again");
                    break;
                }
                PacketStep::Close => {
                    said.push(Said::Closed);
                    return said;
                }
                PacketStep::Request(head, BinaryCommand::Put(mut put)) => {
                    let value = match put.value.take() {
                        Some(value) => value,
                        None => {
                            let Some(value) = input[at..].get(..put.length as usize) else { return said };
                            at += value.len();
                            value
                        }
                    };
                    assert_eq!(value.len(), put.length as usize);
                    said.push(Said::Put { command: format!("{head:?} {put:?}"), value: value.to_vec() });
                }
                PacketStep::Request(head, command) => said.push(Said::Command(format!("{head:?} {command:?}"))),
                PacketStep::Reject { head, status, after } => {
                    said.push(Said::Rejected(format!("{head:?} {status:?} {after:?}")));
                    match after {
                        After::Close => return said,
                        After::Skip(length) => at += length as usize,
                    }
                }
            }
        }
        let held = end.saturating_sub(at);
        let bound = HEADER_BYTES + EXTRAS + MAX_KEY + INLINE_VALUE_BYTES;
        assert!(held <= bound, "{held} bytes are held back; the bound is {bound}");
    }
    said
}
