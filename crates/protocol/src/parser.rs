//! The incremental request parser.
//!
//! The caller passes all bytes that have arrived and are not consumed, and gets the command at their front and its
//! place, so that it can give one that has to wait again. The parser keeps no bytes, so one read buffer serves any
//! number of connections.
//!
//! ```text
//!            line ends here                 "get " + 2 KiB without an end
//!   Line ----------------------> Line ---------------------------------------> Keys ---> Line at the end of the line
//!     \--- 2 KiB without an end, and not a get: Close                           \--- key too long: SkipLine ---> Line
//!     \--- refused, with a data block: SkipBlock ---> Line
//!     \--- refused, with a data block of unknown length: Closing
//! ```
//!
//! Lines end in `\n`, with or without a `\r` before it. No byte of a data block is ever read as a command (see
//! `command` for the block of a refused command). A complete data block is returned with its storage command. An
//! incomplete block of more than `inline_limit` bytes is left to the caller, so that the bytes waiting for a command to
//! be complete stay below [`LINE_LIMIT`] + `inline_limit` + 2. A long get is returned in parts, because memcached does
//! not limit its length.

use std::ops::Range;

use crate::command::{self, CommandLine, has_long_key};
use crate::request::{Get, Keys, Rejection, Request};

/// A line that is not a get and has no end after this many bytes closes the connection.
pub const LINE_LIMIT: usize = 2048;
/// The limit of a line that has an end and arrived in one read: the size of memcached's read buffer.
const WHOLE_LINE_LIMIT: usize = 16 << 10;
/// A line of fewer bytes, with its end, holds no command but mn.
const COMMAND_MIN: usize = 4;
/// Spaces that memcached tolerates before a long get.
const LEADING_SPACES: usize = 100;

/// Result of parsing the front of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Request(Request<'a>),
    /// Answer [`Rejection::line`] unless `noreply`, and go on.
    Reject {
        rejection: Rejection,
        noreply: bool,
    },
    /// The command is not complete; bytes already consumed carry no meaning.
    NeedMore,
    /// The connection does not speak this protocol.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    Line,
    /// Inside a get whose first keys have been returned.
    Keys {
        with_cas: bool,
        touch: Option<i32>,
    },
    SkipLine,
    /// Inside the data block of a refused command.
    SkipBlock {
        left: u64,
    },
    /// Behind a refused command with a data block of unknown length: nothing more is read.
    Closing,
}

/// The state of one connection's input.
#[derive(Clone, Debug)]
pub struct Parser {
    state: ParserState,
    inline_limit: usize,
}

impl Parser {
    /// `inline_limit`: the longest value that is waited for; a longer one is returned without its data as soon as its
    /// command line is complete.
    pub fn new(inline_limit: usize) -> Self {
        Self { state: ParserState::Line, inline_limit }
    }

    /// Parses the front of `input`. Returns the result and its place in `input`: all before the end of the place is
    /// consumed, and what lies before its start is the rest of a refused command, which must not be given again. After
    /// [`Step::NeedMore`], call again with the bytes that were not consumed and more behind them.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> (Step<'a>, Range<usize>) {
        let start = self.skip(input);
        let rest = &input[start..];
        let (step, used) = match self.state {
            ParserState::Line => self.line(rest),
            ParserState::Keys { with_cas, touch } => self.keys(rest, with_cas, touch),
            ParserState::SkipLine | ParserState::SkipBlock { .. } => (Step::NeedMore, 0),
            ParserState::Closing => (Step::Close, rest.len()),
        };
        (step, start..start + used)
    }

    /// Drops what `input` has of the rest of a refused command. Returns the number of bytes.
    fn skip(&mut self, input: &[u8]) -> usize {
        match self.state {
            ParserState::SkipLine => match memchr::memchr(b'\n', input) {
                Some(end) => {
                    self.state = ParserState::Line;
                    end + 1
                }
                None => input.len(),
            },
            ParserState::SkipBlock { left } => {
                let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - skipped as u64;
                self.state = if left == 0 { ParserState::Line } else { ParserState::SkipBlock { left } };
                skipped
            }
            ParserState::Line | ParserState::Keys { .. } | ParserState::Closing => 0,
        }
    }

    /// Makes the next input be read as further keys of `get`, for a caller that answers only some of its keys now and
    /// gives the rest again, from the first byte of the first key not answered.
    pub fn resume_keys(&mut self, with_cas: bool, touch: Option<i32>) {
        self.state = ParserState::Keys { with_cas, touch };
    }

    /// Makes the next input be read as the beginning of a line, for a caller that gives a command once more.
    pub fn resume_line(&mut self) {
        self.state = ParserState::Line;
    }

    fn line<'a>(&mut self, input: &'a [u8]) -> (Step<'a>, usize) {
        let Some(end) = memchr::memchr(b'\n', input) else {
            return self.unended_line(input);
        };
        let consumed = end + 1;
        if consumed > WHOLE_LINE_LIMIT && long_get(input).is_none() {
            return (Step::Close, consumed);
        }
        let line = content(&input[..end]);
        if consumed < COMMAND_MIN && line != b"mn" {
            return (bad_format(), consumed);
        }
        match command::parse(line) {
            CommandLine::Request(Request::Store(mut store)) => {
                let length = store.length as usize;
                match self.block(&input[consumed..], length, consumed) {
                    DataBlock::Whole(value) => {
                        store.value = Some(value);
                        (Step::Request(Request::Store(store)), consumed + length + 2)
                    }
                    DataBlock::Bad => (bad_chunk(store.noreply), consumed + length + 2),
                    DataBlock::Soon => (Step::NeedMore, 0),
                    DataBlock::Later => (Step::Request(Request::Store(store)), consumed),
                }
            }
            CommandLine::Request(Request::MetaSet(mut set)) => {
                let length = set.length as usize;
                match self.block(&input[consumed..], length, consumed) {
                    DataBlock::Whole(value) => {
                        set.value = Some(value);
                        (Step::Request(Request::MetaSet(set)), consumed + length + 2)
                    }
                    DataBlock::Bad => (bad_chunk(false), consumed + length + 2),
                    DataBlock::Soon => (Step::NeedMore, 0),
                    DataBlock::Later => (Step::Request(Request::MetaSet(set)), consumed),
                }
            }
            CommandLine::RejectBlock { rejection, noreply, length } => {
                self.state = ParserState::SkipBlock { left: u64::from(length) + 2 };
                (Step::Reject { rejection, noreply }, consumed)
            }
            CommandLine::RejectClose { rejection, noreply } => {
                self.state = ParserState::Closing;
                (Step::Reject { rejection, noreply }, consumed)
            }
            CommandLine::Request(request) => (Step::Request(request), consumed),
            CommandLine::Reject { rejection, noreply } => (Step::Reject { rejection, noreply }, consumed),
            CommandLine::Close => (Step::Close, consumed),
        }
    }

    /// The part of the data block in `input`, after a command line of `line_bytes`.
    fn block<'a>(&self, input: &'a [u8], length: usize, line_bytes: usize) -> DataBlock<'a> {
        if input.len() >= length + 2 {
            let (value, rest) = input.split_at(length);
            return if rest.starts_with(b"\r\n") { DataBlock::Whole(value) } else { DataBlock::Bad };
        }
        match length <= self.inline_limit && line_bytes <= LINE_LIMIT {
            true => DataBlock::Soon,
            false => DataBlock::Later,
        }
    }

    fn unended_line<'a>(&mut self, input: &'a [u8]) -> (Step<'a>, usize) {
        if input.len() <= LINE_LIMIT {
            return (Step::NeedMore, 0);
        }
        let Some((start, with_cas)) = long_get(input) else {
            return (Step::Close, input.len());
        };
        let (step, used) = self.keys(&input[start..], with_cas, None);
        match step {
            // Only spaces so far, or one key that is not complete.
            Step::NeedMore => (Step::NeedMore, 0),
            step => (step, start + used),
        }
    }

    fn keys<'a>(&mut self, input: &'a [u8], with_cas: bool, touch: Option<i32>) -> (Step<'a>, usize) {
        let (keys, consumed, last) = match memchr::memchr(b'\n', input) {
            Some(end) => (&input[..end], end + 1, true),
            None => match memchr::memrchr(b' ', input) {
                Some(space) => (&input[..space], space + 1, false),
                None if has_long_key(input) => {
                    self.state = ParserState::SkipLine;
                    return (bad_format(), input.len());
                }
                None => return (Step::NeedMore, 0),
            },
        };
        self.state = match last {
            true => ParserState::Line,
            false => ParserState::Keys { with_cas, touch },
        };
        let keys = match keys.split_last() {
            Some((b'\r', rest)) if last => rest,
            _ => keys,
        };
        if has_long_key(keys) {
            if !last {
                self.state = ParserState::SkipLine;
            }
            return (bad_format(), consumed);
        }
        let get = Get { keys: Keys::new(keys), with_cas, touch, last };
        (Step::Request(Request::Get(get)), consumed)
    }
}

/// Where the keys of a get or gets begin, and whether it is a gets, if `input` is one of the two that may be long.
fn long_get(input: &[u8]) -> Option<(usize, bool)> {
    let spaces = input.iter().take_while(|&&b| b == b' ').count();
    let (word, with_cas) = match &input[spaces..] {
        [b'g', b'e', b't', b' ', ..] => (4, false),
        [b'g', b'e', b't', b's', b' ', ..] => (5, true),
        _ => return None,
    };
    (spaces <= LEADING_SPACES).then_some((spaces + word, with_cas))
}

/// The state of a data block.
enum DataBlock<'a> {
    Whole(&'a [u8]),
    /// The block has no line end behind it.
    Bad,
    /// Waited for.
    Soon,
    /// Left to the caller.
    Later,
}

fn bad_chunk<'a>(noreply: bool) -> Step<'a> {
    Step::Reject { rejection: Rejection::BadDataChunk, noreply }
}

fn bad_format<'a>() -> Step<'a> {
    Step::Reject { rejection: Rejection::BadFormat, noreply: false }
}

/// A line without its `\r`.
fn content(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
