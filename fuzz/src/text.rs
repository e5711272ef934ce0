//! The text protocol's parser: it consumes no more than it is given, holds back no more than its bound, reads the same
//! commands however the input was cut into reads or a command was given again, and never reads a byte of a value as a
//! command.
//!
//! Two oracles hold the last promise. The one knows how many bytes belong to a command line, from a reader of its own,
//! and gives line and value to a parser that has nothing else to read. The other is a client that checks neither keys
//! nor values: whatever they are, what is read behind its command is the next command or nothing.

use ebbtide_protocol::{LINE_LIMIT, Parser, Rejection, Request, Step};

use crate::split::cuts;

/// Values up to here are waited for; small, so that inputs reach the other way as well.
const INLINE_VALUE_BYTES: usize = 48;

/// Content of a command, however it was cut.
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
    assert_values_are_no_commands(input, &whole);
    assert_nothing_is_smuggled(input);
}

/// The commands that a value follows, and the place of its length among their words.
const STORES: [(&[u8], usize); 7] =
    [(b"set", 4), (b"add", 4), (b"replace", 4), (b"append", 4), (b"prepend", 4), (b"cas", 4), (b"ms", 2)];

/// Extent of the command at the front of an input.
enum Extent {
    /// Bytes of the line and of the value that it announces.
    Known(usize),
    /// The line has these bytes, and the end of its value is unknown.
    Unknown(usize),
}

/// `None` if the line has no end.
fn extent(input: &[u8]) -> Option<Extent> {
    let line_bytes = input.iter().position(|&byte| byte == b'\n')? + 1;
    let line = &input[..line_bytes - 1];
    let words: Vec<&[u8]> = line.strip_suffix(b"\r").unwrap_or(line).split(|&byte| byte == b' ').collect();
    let words: Vec<&[u8]> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let store = STORES.iter().find(|(name, _)| words.first() == Some(name));
    let Some(length) = store.and_then(|(_, place)| words.get(*place)) else {
        return Some(Extent::Known(line_bytes));
    };
    let digits = length.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(length).expect("digits"));
    match digits.and_then(|digits| digits.parse::<u32>().ok()) {
        Some(length) if length <= i32::MAX as u32 - 2 => Some(Extent::Known(line_bytes + length as usize + 2)),
        _ => Some(Extent::Unknown(line_bytes)),
    }
}

/// Cuts the input into commands with their values, and asserts that each alone says one thing, and together `whole`.
fn assert_values_are_no_commands(input: &[u8], whole: &[Said]) {
    let mut at = 0;
    let mut alone = Vec::new();
    while let Some(extent) = extent(&input[at..]) {
        let (bytes, is_known) = match extent {
            Extent::Known(bytes) => (bytes, true),
            Extent::Unknown(bytes) => (bytes, false),
        };
        let Some(command) = input[at..].get(..bytes) else { break };
        let said = read(command, &[bytes]);
        let closed = said.last() == Some(&Said::Closed);
        assert!(is_known || closed, "the length of a value is unknown, and the connection goes on: {said:?}");
        assert!(said.len() - usize::from(closed) <= 1, "a value was read as commands: {said:?}");
        alone.extend(said);
        at += bytes;
        if closed {
            break;
        }
    }
    assert_eq!(alone, whole[..alone.len().min(whole.len())], "a command begins inside of a value");
}

/// The first byte chooses a command, the second one its tail; a key without a line end and a value follow.
fn assert_nothing_is_smuggled(input: &[u8]) {
    const TAILS: [&str; 4] = ["", " noreply", " T0 q", " x y noreply"];
    let [command, tail, rest @ ..] = input else { return };
    let (name, place) = STORES[usize::from(*command) % STORES.len()];
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
    let (key, value) = rest.split_at(end);
    let mut line = [name, b" ", key].concat();
    line.extend_from_slice(if place == 4 { b" 0 0 " } else { b" " });
    line.extend_from_slice(value.len().to_string().as_bytes());
    if name == b"cas" {
        line.extend_from_slice(b" 7");
    }
    line.extend_from_slice(TAILS[usize::from(*tail) % TAILS.len()].as_bytes());
    let stream = [&line, &b"\r\n"[..], value, b"\r\nversion\r\n"].concat();
    let said = read(&stream, &cuts(&stream));
    let is_end = |said: &Said| matches!(said, Said::Closed) || *said == Said::Other("Version".into());
    assert!(said.first().is_none_or(|said| !is_end(said) || *said == Said::Closed), "the command is lost");
    assert!(said.len() <= 2 && said[1.min(said.len())..].iter().all(is_end), "a value was read as commands: {said:?}");
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
            let (step, place) = parser.next(&input[at..end]);
            assert!(place.end <= end - at, "consumed {} of {} bytes", place.end, end - at);
            assert_waits_alone(&parser, &step, &input[at + place.start..end]);
            at += place.end;
            match step {
                Step::NeedMore => break,
                Step::Close => {
                    said.push(Said::Closed);
                    return said;
                }
                Step::Request(Request::Get(part)) => {
                    let started =
                        get.get_or_insert(Said::Keys { keys: Vec::new(), with_cas: part.with_cas, touch: part.touch });
                    let Said::Keys { keys, .. } = started else { unreachable!("only keys are kept") };
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

/// Asserts that a command which has to wait is read as itself when it is given again, from the start of its place.
fn assert_waits_alone(parser: &Parser, step: &Step<'_>, rest: &[u8]) {
    // A get is given again from one of its keys.
    if !matches!(step, Step::Request(request) if !matches!(request, Request::Get(_))) {
        return;
    }
    let mut parser = parser.clone();
    parser.resume_line();
    assert_eq!(parser.next(rest).0, *step, "another command is read when this one is given again");
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
