//! One command line: tokens separated by runs of spaces, checked in the order in which memcached checks them, because
//! a line with two mistakes must be answered with the same one of them.
//!
//! `noreply` is recognized as the last token wherever a command takes it, even in the place of an argument: then the
//! command is malformed and its error is not answered either.

use crate::MAX_KEY;
use crate::meta;
use crate::number::{signed32, unsigned32, unsigned64};
use crate::request::{Get, Keys, Rejection, Request, Store, StoreMode};
use crate::upkeep;

/// What a complete line says.
pub enum Line<'a> {
    Request(Request<'a>),
    Reject {
        rejection: Rejection,
        noreply: bool,
    },
    /// As `Reject`, and the data block of this many bytes that follows is of no use.
    RejectBlock {
        rejection: Rejection,
        length: u32,
    },
    Close,
}

/// Enough for the longest command (cas with noreply) and one more, to see that there are too many.
const KEPT_TOKENS: usize = 8;
/// memcached looks at no more tokens than this in one go.
const SEEN_TOKENS: usize = 23;

pub struct Tokens<'a> {
    pub kept: [&'a [u8]; KEPT_TOKENS],
    /// Tokens in the line, counted up to `KEPT_TOKENS`.
    pub count: usize,
}

impl<'a> Tokens<'a> {
    fn of(line: &'a [u8]) -> Self {
        let mut kept: [&[u8]; KEPT_TOKENS] = [&[]; KEPT_TOKENS];
        let mut count = 0;
        for token in Keys::new(line).take(KEPT_TOKENS) {
            kept[count] = token;
            count += 1;
        }
        Self { kept, count }
    }

    pub fn noreply(&self) -> bool {
        self.kept[self.count - 1] == b"noreply"
    }
}

pub fn reject<'a>(rejection: Rejection, noreply: bool) -> Line<'a> {
    Line::Reject { rejection, noreply }
}

/// Reads one line, given without its line end.
pub fn parse(line: &[u8]) -> Line<'_> {
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
        _ => return other(line, command),
    };
    store(&Tokens::of(line), mode)
}

/// The part of `line` after `word`, which is a subslice of it.
fn after<'a>(line: &'a [u8], word: &[u8]) -> &'a [u8] {
    let end = word.as_ptr() as usize - line.as_ptr() as usize + word.len();
    &line[end..]
}

fn get(keys: &[u8], with_cas: bool) -> Line<'_> {
    if Keys::new(keys).is_empty() {
        return reject(Rejection::Error, false);
    }
    if has_long_key(keys) {
        return reject(Rejection::BadFormat, false);
    }
    Line::Request(Request::Get(Get { keys: Keys::new(keys), with_cas, touch: None, last: true }))
}

fn get_and_touch(line: &[u8], with_cas: bool) -> Line<'_> {
    let Some(exptime_token) = Keys::new(line).nth(1) else {
        return reject(Rejection::Error, false);
    };
    let Some(exptime) = signed32(exptime_token) else {
        return reject(Rejection::InvalidExptime, false);
    };
    let keys = after(line, exptime_token);
    if has_long_key(keys) {
        return reject(Rejection::BadFormat, false);
    }
    Line::Request(Request::Get(Get { keys: Keys::new(keys), with_cas, touch: Some(exptime), last: true }))
}

/// True if a run of bytes without a space is longer than a key may be. Skips from one space to the last one that
/// a legal key can reach, so it looks at few of the bytes.
pub fn has_long_key(mut keys: &[u8]) -> bool {
    while keys.len() > MAX_KEY {
        match memchr::memrchr(b' ', &keys[..=MAX_KEY]) {
            Some(space) => keys = &keys[space + 1..],
            None => return true,
        }
    }
    false
}

fn store<'a>(tokens: &Tokens<'a>, mode: StoreMode) -> Line<'a> {
    let arguments = if matches!(mode, StoreMode::Cas(_)) { 6 } else { 5 };
    if tokens.count != arguments && tokens.count != arguments + 1 {
        return reject(Rejection::Error, false);
    }
    let noreply = tokens.noreply();
    let [_, key, flags, exptime, length, token, ..] = tokens.kept;
    let request = || {
        let key = (key.len() <= MAX_KEY).then_some(key)?;
        let (flags, exptime) = (unsigned32(flags)?, signed32(exptime)?);
        let length = signed32(length)?;
        let mode = match mode {
            StoreMode::Cas(_) => StoreMode::Cas(unsigned64(token)?),
            other => other,
        };
        // memcached counts the data with its line end in an int.
        let length = (0..=i32::MAX - 2).contains(&length).then_some(length as u32)?;
        Some(Store { mode, key, flags, exptime, length, noreply, value: None })
    };
    match request() {
        Some(store) => Line::Request(Request::Store(store)),
        None => reject(Rejection::BadFormat, noreply),
    }
}

fn other<'a>(line: &'a [u8], command: &[u8]) -> Line<'a> {
    let tokens = Tokens::of(line);
    match (command, tokens.count) {
        (b"delete", 2..=4) => delete(&tokens),
        (b"incr", 3..=4) => arithmetic(&tokens, true),
        (b"decr", 3..=4) => arithmetic(&tokens, false),
        (b"touch", 3..=4) => touch(&tokens),
        (b"flush_all", 1..=3) => flush_all(&tokens),
        (b"verbosity", 2..=3) => {
            let noreply = tokens.noreply();
            match unsigned32(tokens.kept[1]) {
                Some(level) => Line::Request(Request::Verbosity { level, noreply }),
                None => reject(Rejection::BadFormat, noreply),
            }
        }
        (b"cache_memlimit", 2..=3) => {
            let noreply = tokens.noreply();
            match unsigned32(tokens.kept[1]) {
                Some(megabytes) => Line::Request(Request::MemoryLimit { megabytes, noreply }),
                None => reject(Rejection::Error, noreply),
            }
        }
        (b"version", _) => Line::Request(Request::Version),
        (b"debugtime", 2) => match unsigned64(tokens.kept[1]).and_then(|seconds| u32::try_from(seconds).ok()) {
            Some(seconds) => Line::Request(Request::SkipTime { seconds }),
            None => reject(Rejection::Error, false),
        },
        (b"refresh_certs", _) => Line::Request(Request::RefreshCerts),
        (b"lru_crawler", _) => upkeep::lru_crawler(&tokens),
        (b"lru", _) => upkeep::lru(&tokens),
        (b"extstore", _) => upkeep::extstore(&tokens),
        (b"slabs", _) => upkeep::slabs(&tokens),
        (b"watch", _) => upkeep::watch(line, &tokens),
        (b"quit", _) => Line::Request(Request::Quit),
        (b"stats", count) => Line::Request(Request::Stats {
            topic: (count > 1).then_some(tokens.kept[1]),
            argument: (count > 2).then_some(tokens.kept[2]),
        }),
        (b"shutdown", count) => {
            Line::Request(Request::Shutdown { mode_known: count == 1 || (count == 2 && tokens.kept[1] == b"graceful") })
        }
        _ if is_http(line, command) => Line::Close,
        _ => reject(Rejection::Error, false),
    }
}

fn delete<'a>(tokens: &Tokens<'a>) -> Line<'a> {
    let key = tokens.kept[1];
    let mut noreply = false;
    if tokens.count > 2 {
        let hold_is_zero = tokens.kept[2] == b"0";
        noreply = tokens.noreply();
        let valid = match tokens.count {
            3 => hold_is_zero || noreply,
            _ => hold_is_zero && noreply,
        };
        if !valid {
            return reject(Rejection::DeleteUsage, noreply);
        }
    }
    if key.len() > MAX_KEY {
        return reject(Rejection::BadFormat, noreply);
    }
    Line::Request(Request::Delete { key, noreply })
}

fn arithmetic<'a>(tokens: &Tokens<'a>, increment: bool) -> Line<'a> {
    let noreply = tokens.noreply();
    let key = tokens.kept[1];
    if key.len() > MAX_KEY {
        return reject(Rejection::BadFormat, noreply);
    }
    match unsigned64(tokens.kept[2]) {
        Some(delta) => Line::Request(Request::Arithmetic { key, delta, increment, noreply }),
        None => reject(Rejection::InvalidDelta, noreply),
    }
}

fn touch<'a>(tokens: &Tokens<'a>) -> Line<'a> {
    let noreply = tokens.noreply();
    let key = tokens.kept[1];
    if key.len() > MAX_KEY {
        return reject(Rejection::BadFormat, noreply);
    }
    match signed32(tokens.kept[2]) {
        Some(exptime) => Line::Request(Request::Touch { key, exptime, noreply }),
        None => reject(Rejection::InvalidExptime, noreply),
    }
}

fn flush_all<'a>(tokens: &Tokens<'a>) -> Line<'a> {
    let noreply = tokens.noreply();
    let mut exptime = 0;
    if tokens.count != 1 + usize::from(noreply) {
        match signed32(tokens.kept[1]) {
            Some(delay) => exptime = delay,
            None => return reject(Rejection::InvalidExptime, noreply),
        }
    }
    Line::Request(Request::FlushAll { exptime, noreply })
}

/// A browser, or a page that makes one post to us: such a connection is closed before its body is taken for commands.
/// Only for first letters that no command of memcached's own has.
fn is_http(line: &[u8], command: &[u8]) -> bool {
    !matches!(command[0], b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't')
        && command.len() >= 2
        && !(command[0] == b'm' && command.len() == 2)
        && Keys::new(line).take(SEEN_TOKENS).last().is_some_and(|token| token.starts_with(b"HTTP/"))
}
