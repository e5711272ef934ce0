//! One command line: tokens separated by runs of spaces, checked in the order in which memcached checks them, because
//! a line with two mistakes must be answered with the same one of them.
//!
//! `noreply` is recognized as the last word wherever a command takes it, even in the place of an argument: then the
//! command is malformed and its error is not answered either. Other words behind the arguments are ignored.
//!
//! A storage command that is refused still has a value behind its line, which must not be read as commands:
//!
//! ```text
//! the length is readable              -> RejectBlock: the value is dropped
//! another word may be the length      -> RejectClose: where the value ends is a guess
//! the length is unreadable or missing -> RejectClose
//! no word can be a length             -> Reject: no value follows
//! ```
//! A blank in a key moves the length by a word, so that a number among words to spare may be the length. An empty key
//! moves it the other way, and leaves two blanks in a row.

use crate::MAX_KEY;
use crate::admin_commands;
use crate::meta;
use crate::number::{exptime32, signed32, unsigned32, unsigned64};
use crate::request::{Get, Keys, Rejection, Request, StoreMode, StoreRequest};

/// Result of parsing a complete line.
pub enum CommandLine<'a> {
    Request(Request<'a>),
    Reject {
        rejection: Rejection,
        noreply: bool,
    },
    /// As `Reject`, and the data block of this many bytes that follows is dropped.
    RejectBlock {
        rejection: Rejection,
        noreply: bool,
        length: u32,
    },
    /// As `Reject`, and the connection is closed: a data block of unknown length follows.
    RejectClose {
        rejection: Rejection,
        noreply: bool,
    },
    Close,
}

/// Enough for the longest command (cas with noreply) and one more, to see that there are too many.
const KEPT_TOKENS: usize = 8;
/// Maximum number of tokens that memcached parses at once.
const SEEN_TOKENS: usize = 23;

pub struct LineTokens<'a> {
    pub kept: [&'a [u8]; KEPT_TOKENS],
    /// Tokens in the line, counted up to `KEPT_TOKENS`.
    pub count: usize,
    line: &'a [u8],
}

impl<'a> LineTokens<'a> {
    /// The tokens of a line, of which `words` has the ones behind the command.
    fn of(line: &'a [u8], command: &'a [u8], mut words: Keys<'a>) -> Self {
        let mut kept: [&[u8]; KEPT_TOKENS] = [&[]; KEPT_TOKENS];
        kept[0] = command;
        let mut count = 1;
        // The second word may be a key, the others are short.
        let mut next = words.next();
        while let Some(word) = next {
            kept[count] = word;
            count += 1;
            next = if count < KEPT_TOKENS { words.next_short() } else { None };
        }
        Self { kept, count, line }
    }

    /// Whether the last word of the line is `noreply`.
    pub fn noreply(&self) -> bool {
        match self.count {
            ..KEPT_TOKENS => self.kept[self.count - 1] == b"noreply",
            _ => self.line.rsplit(|&byte| byte == b' ').find(|word| !word.is_empty()) == Some(b"noreply"),
        }
    }

    /// Whether a number is among the words from this one on.
    fn has_number_from(&self, word: usize) -> bool {
        Keys::new(self.line).skip(word).any(|word| unsigned64(word).is_some())
    }
}

pub fn reject<'a>(rejection: Rejection, noreply: bool) -> CommandLine<'a> {
    CommandLine::Reject { rejection, noreply }
}

/// The announced length of a data block.
pub fn block_length(token: &[u8]) -> Option<u32> {
    // memcached counts the data with its line end in an int.
    unsigned32(token).filter(|length| *length <= i32::MAX as u32 - 2)
}

/// Reads one line, given without its line end.
pub fn parse(line: &[u8]) -> CommandLine<'_> {
    // Most lines are of this kind.
    if let Some(keys) = line.strip_prefix(b"get ") {
        return get(keys, false);
    }
    let mut words = Keys::new(line);
    let Some(command) = words.next() else {
        return reject(Rejection::Error, false);
    };
    let mode = match command {
        b"get" | b"bget" => return get(words.rest(), false),
        &[b'm', kind] => return meta::parse(kind, words.rest()),
        b"gets" => return get(words.rest(), true),
        b"set" => StoreMode::Set,
        b"gat" => return get_and_touch(line, false),
        b"gats" => return get_and_touch(line, true),
        b"add" => StoreMode::Add,
        b"replace" => StoreMode::Replace,
        b"append" => StoreMode::Append,
        b"prepend" => StoreMode::Prepend,
        b"cas" => StoreMode::Cas(0),
        _ => return other(line, command, words),
    };
    store(&LineTokens::of(line, command, words), mode)
}

/// The part of `line` after `word`, which is a subslice of it.
fn after<'a>(line: &'a [u8], word: &[u8]) -> &'a [u8] {
    let end = word.as_ptr() as usize - line.as_ptr() as usize + word.len();
    &line[end..]
}

fn get(keys: &[u8], with_cas: bool) -> CommandLine<'_> {
    if Keys::new(keys).is_empty() {
        return reject(Rejection::BadFormat, false);
    }
    if has_long_key(keys) {
        return reject(Rejection::BadFormat, false);
    }
    CommandLine::Request(Request::Get(Get { keys: Keys::new(keys), with_cas, touch: None, last: true }))
}

fn get_and_touch(line: &[u8], with_cas: bool) -> CommandLine<'_> {
    let Some(exptime_token) = Keys::new(line).nth(1) else {
        return reject(Rejection::BadFormat, false);
    };
    let keys = after(line, exptime_token);
    if Keys::new(keys).is_empty() {
        return reject(Rejection::BadFormat, false);
    }
    let Some(exptime) = signed32(exptime_token) else {
        return reject(Rejection::InvalidExptime, false);
    };
    if has_long_key(keys) {
        return reject(Rejection::BadFormat, false);
    }
    CommandLine::Request(Request::Get(Get { keys: Keys::new(keys), with_cas, touch: Some(exptime), last: true }))
}

/// True if a run of bytes without a space is longer than a key may be. Skips from one space to the last one that
/// a legal key can reach, so it reads few of the bytes.
pub fn has_long_key(mut keys: &[u8]) -> bool {
    while keys.len() > MAX_KEY {
        match memchr::memrchr(b' ', &keys[..=MAX_KEY]) {
            Some(space) => keys = &keys[space + 1..],
            None => return true,
        }
    }
    false
}

fn store<'a>(tokens: &LineTokens<'a>, mode: StoreMode) -> CommandLine<'a> {
    const LENGTH: usize = 4;
    let rejection = Rejection::BadFormat;
    let noreply = tokens.noreply();
    if tokens.count <= LENGTH {
        return match tokens.has_number_from(1) {
            true => CommandLine::RejectClose { rejection, noreply: false },
            false => reject(rejection, false),
        };
    }
    let Some(length) = block_length(tokens.kept[LENGTH]) else {
        return CommandLine::RejectClose { rejection, noreply: false };
    };
    let arguments = LENGTH + 1 + usize::from(matches!(mode, StoreMode::Cas(_)));
    if tokens.count > arguments && tokens.has_number_from(arguments) {
        return CommandLine::RejectClose { rejection, noreply };
    }
    let [_, key, flags, exptime, _, token, ..] = tokens.kept;
    let request = || {
        let key = (key.len() <= MAX_KEY).then_some(key)?;
        let (flags, exptime) = (unsigned32(flags)?, exptime32(exptime)?);
        let mode = match mode {
            StoreMode::Cas(_) => StoreMode::Cas(unsigned64(token)?),
            other => other,
        };
        Some(StoreRequest { mode, key, flags, exptime, length, noreply, value: None })
    };
    match request() {
        Some(store) => CommandLine::Request(Request::Store(store)),
        None if memchr::memmem::find(tokens.line, b"  ").is_some() => CommandLine::RejectClose { rejection, noreply },
        None => CommandLine::RejectBlock { rejection, noreply, length },
    }
}

fn other<'a>(line: &'a [u8], command: &'a [u8], words: Keys<'a>) -> CommandLine<'a> {
    let tokens = LineTokens::of(line, command, words);
    let noreply = tokens.noreply();
    match (command, tokens.count) {
        (b"delete", 2..) => delete(&tokens),
        (b"incr", 3..) => arithmetic(&tokens, true),
        (b"decr", 3..) => arithmetic(&tokens, false),
        (b"touch", 3..) => touch(&tokens),
        (b"delete" | b"incr" | b"decr" | b"touch", _) => reject(Rejection::BadFormat, false),
        (b"flush_all", _) => flush_all(&tokens),
        (b"verbosity", _) => match unsigned32(tokens.kept[1]) {
            Some(level) => CommandLine::Request(Request::Verbosity { level, noreply }),
            None => reject(Rejection::BadFormat, noreply),
        },
        (b"cache_memlimit", _) => match unsigned32(tokens.kept[1]) {
            Some(megabytes) => CommandLine::Request(Request::MemoryLimit { megabytes, noreply }),
            None => reject(Rejection::Error, noreply),
        },
        (b"version", _) => CommandLine::Request(Request::Version),
        (b"debugtime", 2) => match unsigned32(tokens.kept[1]) {
            Some(seconds) => CommandLine::Request(Request::SkipTime { seconds }),
            None => reject(Rejection::Error, false),
        },
        (b"refresh_certs", _) => CommandLine::Request(Request::RefreshCerts),
        (b"lru_crawler", _) => admin_commands::lru_crawler(&tokens),
        (b"lru", _) => admin_commands::lru(&tokens),
        (b"extstore", _) => admin_commands::extstore(&tokens),
        (b"slabs", _) => admin_commands::slabs(&tokens),
        (b"watch", _) => admin_commands::watch(line, &tokens),
        (b"quit", _) => CommandLine::Request(Request::Quit),
        (b"stats", 2..) if tokens.kept[1] == b"cachedump" => {
            CommandLine::Request(Request::CacheDump(admin_commands::cache_dump(&tokens)))
        }
        (b"stats", count) => CommandLine::Request(Request::Stats {
            topic: (count > 1).then_some(tokens.kept[1]),
            argument: (count > 2).then_some(tokens.kept[2]),
        }),
        (b"shutdown", count) => {
            let mode_known = count == 1 || (count == 2 && tokens.kept[1] == b"graceful");
            CommandLine::Request(Request::Shutdown { mode_known, noreply })
        }
        _ if is_http(line, command) => CommandLine::Close,
        _ => reject(Rejection::Error, noreply),
    }
}

fn delete<'a>(tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let key = tokens.kept[1];
    // A key may be called so.
    let noreply = tokens.count > 2 && tokens.noreply();
    if key.len() > MAX_KEY {
        return reject(Rejection::BadFormat, noreply);
    }
    CommandLine::Request(Request::Delete { key, noreply })
}

fn arithmetic<'a>(tokens: &LineTokens<'a>, increment: bool) -> CommandLine<'a> {
    let noreply = tokens.noreply();
    let key = tokens.kept[1];
    if key.len() > MAX_KEY {
        return reject(Rejection::BadFormat, noreply);
    }
    match unsigned64(tokens.kept[2]) {
        Some(delta) => CommandLine::Request(Request::Arithmetic { key, delta, increment, noreply }),
        None => reject(Rejection::InvalidDelta, noreply),
    }
}

fn touch<'a>(tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let noreply = tokens.noreply();
    let key = tokens.kept[1];
    if key.len() > MAX_KEY {
        return reject(Rejection::BadFormat, noreply);
    }
    match signed32(tokens.kept[2]) {
        Some(exptime) => CommandLine::Request(Request::Touch { key, exptime, noreply }),
        None => reject(Rejection::InvalidExptime, noreply),
    }
}

fn flush_all<'a>(tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let noreply = tokens.noreply();
    let is_now = tokens.count == 1 + usize::from(noreply);
    let exptime = if is_now { Some(0) } else { signed32(tokens.kept[1]) };
    CommandLine::Request(Request::FlushAll { exptime, noreply })
}

/// A browser, or a page that makes one post to us: such a connection is closed before its body is taken for commands.
/// Only for first letters that no command of memcached's own has.
fn is_http(line: &[u8], command: &[u8]) -> bool {
    !matches!(command[0], b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't')
        && command.len() >= 2
        && !(command[0] == b'm' && command.len() == 2)
        && Keys::new(line).take(SEEN_TOKENS).last().is_some_and(|token| token.starts_with(b"HTTP/"))
}
