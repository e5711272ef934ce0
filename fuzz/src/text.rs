//! The text protocol's parser: it consumes no more than it is given, holds back no more than its bound, and reads the
//! same commands however the input was cut into reads.

use ebbtide_protocol::{LINE_LIMIT, Parser, Rejection, Request, Step};

use crate::split::cuts;

/// Values up to here are waited for; small, so that inputs reach the other way as well.
const INLINE_VALUE_BYTES: usize = 48;

/// What a client said, without how it came.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Keys {
        keys: Vec<Vec<u8>>,
        with_cas: bool,
        touch: Option<i32>,
    },
    /// A storage command and its value, or what was wrong with it.
    Stored {
        command: String,
        value: Vec<u8>,
    },
    Other(String),
    Closed,
}

/// A value, or that it has no line end behind it.
type Value<'a> = Result<&'a [u8], Rejection>;

pub fn check(input: &[u8]) {
    let whole = read(input, &[input.len()]);
    let pieces = read(input, &cuts(input));
    // A line of more than the limit is closed upon when its end has not come yet: that does hang on the cuts.
    if input.len() <= LINE_LIMIT {
        assert_eq!(whole, pieces, "the cuts make a difference");
    }
}

/// Reads `input` in reads that end at `ends`.
fn read(input: &[u8], ends: &[usize]) -> Vec<Said> {
    let mut parser = Parser::new(INLINE_VALUE_BYTES);
    let mut said = Vec::new();
    let mut get: Option<Said> = None;
    let mut at = 0;
    for &end in ends {
        // A value that is the caller's to take is taken at once, whatever the reads: then some of them are over.
        while at <= end {
            let (step, used) = parser.next(&input[at..end]);
            assert!(used <= end - at, "consumed {used} of {} bytes", end - at);
            at += used;
            match step {
                Step::NeedMore => break,
                Step::Close => {
                    said.push(Said::Closed);
                    return said;
                }
                Step::Request(Request::Get(part)) => {
                    let begun =
                        get.get_or_insert(Said::Keys { keys: Vec::new(), with_cas: part.with_cas, touch: part.touch });
                    let Said::Keys { keys, .. } = begun else { unreachable!("only keys are kept") };
                    keys.extend(part.keys.map(<[u8]>::to_vec));
                    if part.last {
                        said.extend(get.take());
                    }
                }
                Step::Request(Request::Store(mut store)) => {
                    let value = store.value.take();
                    let Some(value) = block(input, &mut at, store.length, value) else { return said };
                    said.push(stored(format!("{store:?}"), value, store.noreply));
                }
                Step::Request(Request::MetaSet(mut set)) => {
                    let value = set.value.take();
                    let Some(value) = block(input, &mut at, set.length, value) else { return said };
                    said.push(stored(format!("{set:?}"), value, false));
                }
                Step::Request(request) => said.push(Said::Other(format!("{request:?}"))),
                Step::Reject { rejection, noreply } => {
                    get = None;
                    said.push(rejected(rejection, noreply));
                }
            }
        }
        let held = end.saturating_sub(at);
        let bound = LINE_LIMIT + INLINE_VALUE_BYTES + 2;
        assert!(held <= bound, "{held} bytes are held back; the bound is {bound}");
    }
    said
}

/// A value with its line end, taken off the input if it did not come with its line; `None` if it has not all come.
fn block<'a>(input: &'a [u8], at: &mut usize, length: u32, value: Option<&'a [u8]>) -> Option<Value<'a>> {
    if let Some(value) = value {
        return Some(Ok(value));
    }
    let length = length as usize;
    let block = input[*at..].get(..length + 2)?;
    *at += block.len();
    Some(block.strip_suffix(b"\r\n").ok_or(Rejection::BadDataChunk))
}

fn stored(command: String, value: Value<'_>, noreply: bool) -> Said {
    match value {
        Ok(value) => Said::Stored { command, value: value.to_vec() },
        Err(rejection) => rejected(rejection, noreply),
    }
}

fn rejected(rejection: Rejection, noreply: bool) -> Said {
    Said::Other(format!("{rejection:?}, noreply {noreply}"))
}
