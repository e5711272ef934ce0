//! The meta commands' lines: `<cm> <key> [<length>] <flag>*`, a flag being a letter with an argument behind it.
//!
//! A line is checked as a whole, with memcached's error: an unknown or repeated flag ends the check at once, the last
//! of several bad arguments decides, and the mode and the length of the opaque token are checked last. A flag without a
//! meaning for its command is accepted. The result borrows the line: flags are answered in the order of the request,
//! so an answer reads them once more.

use crate::MAX_KEY;
use crate::base64;
use crate::command::{CommandLine, block_length};
use crate::number::{signed32, unsigned32, unsigned64};
use crate::request::{Keys, Rejection, Request};

/// The longest opaque token, with its letter.
const OPAQUE_LIMIT: usize = 32;
/// Maximum number of words in a line.
const WORDS_MAX: usize = 20;

/// A meta command with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    key: &'a [u8],
    /// Everything behind the key, or the length.
    flags: &'a [u8],
    seen: SeenFlags,
}

/// Meta commands with a key and no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCommand {
    Get,
    Delete,
    Arithmetic,
    /// `me`: its line has no flags but b.
    Debug,
}

/// `ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSet<'a> {
    pub meta: Meta<'a>,
    /// Announced bytes of the value.
    pub length: u32,
    /// As in [`Store`](crate::Store).
    pub value: Option<&'a [u8]>,
}

/// The flag letters of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SeenFlags(u64);

const fn bit(letter: u8) -> u64 {
    1 << (letter.wrapping_sub(b'A') & 63)
}

impl SeenFlags {
    #[inline]
    fn has(self, letter: u8) -> bool {
        self.0 & bit(letter) != 0
    }
}

impl<'a> Meta<'a> {
    /// Whether the line has this flag.
    #[inline]
    pub fn has(&self, letter: u8) -> bool {
        self.seen.has(letter)
    }

    /// The flags in their order.
    #[inline]
    pub fn flags(&self) -> Keys<'a> {
        Keys::new(self.flags)
    }

    /// The flags in what `flag_bytes` gave.
    pub fn flags_in(bytes: &[u8]) -> Keys<'_> {
        Keys::new(bytes)
    }

    /// Whether it can be answered in a run with others: a get that neither changes nor hides, with its key in the line.
    #[inline]
    pub fn is_plain_get(&self) -> bool {
        const SPECIAL: u64 = bit(b'b') | bit(b'u') | bit(b'C') | bit(b'N') | bit(b'R') | bit(b'T');
        self.seen.0 & SPECIAL == 0
    }

    /// The flags as in the line.
    pub fn flag_bytes(&self) -> &'a [u8] {
        self.flags
    }

    /// The key as in the line: in base64 with the flag b.
    pub fn key_word(&self) -> &'a [u8] {
        self.key
    }

    /// The key, decoded if need be.
    pub fn key<'k>(&self, buffer: &'k mut [u8; MAX_KEY]) -> &'k [u8]
    where
        'a: 'k,
    {
        match self.has(b'b') {
            true => base64::decode(self.key, buffer).expect("the line was checked"),
            false => self.key,
        }
    }

    /// Argument of the flag with this letter.
    fn argument(&self, letter: u8) -> Option<&'a [u8]> {
        let mut flags = self.flags().filter(|_| self.has(letter));
        flags.find(|flag| flag[0] == letter).map(|flag| &flag[1..])
    }

    /// An exptime: of T, N or R.
    pub fn exptime(&self, letter: u8) -> Option<i32> {
        self.argument(letter).and_then(signed32)
    }

    /// A number: of C, E, D or J.
    pub fn number(&self, letter: u8) -> Option<u64> {
        self.argument(letter).and_then(unsigned64)
    }

    /// Client flags.
    pub fn client_flags(&self) -> u32 {
        self.argument(b'F').and_then(unsigned32).unwrap_or(0)
    }

    /// The first letter behind M, or M itself if there is none.
    pub fn mode(&self) -> Option<u8> {
        self.argument(b'M').map(|mode| mode.first().copied().unwrap_or(b'M'))
    }
}

/// Parses a line whose first word is `m` and `kind`; `rest`: the bytes behind this word.
pub fn parse(kind: u8, rest: &[u8]) -> CommandLine<'_> {
    let parsed = match kind {
        b'g' => get(rest),
        b's' => return set(rest),
        b'n' => Ok(Request::MetaNoOp),
        b'd' => delete(rest),
        b'a' => arithmetic(rest),
        b'e' => debug(rest),
        _ => Err(Rejection::Error),
    };
    match parsed {
        Ok(request) => CommandLine::Request(request),
        Err(rejection) => CommandLine::Reject { rejection, noreply: false },
    }
}

/// The first word of `rest`, and the bytes behind it.
fn split(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut words = Keys::new(rest);
    let word = words.next()?;
    Some((word, words.rest()))
}

fn get(rest: &[u8]) -> Result<Request<'_>, Rejection> {
    let meta = checked(rest)?;
    opaque_fits(&meta)?;
    Ok(Request::Meta { command: MetaCommand::Get, meta })
}

fn delete(rest: &[u8]) -> Result<Request<'_>, Rejection> {
    let meta = checked(rest)?;
    opaque_fits(&meta)?;
    Ok(Request::Meta { command: MetaCommand::Delete, meta })
}

/// ma has one error for whatever is wrong with its key or a flag.
fn arithmetic(rest: &[u8]) -> Result<Request<'_>, Rejection> {
    if Keys::new(rest).is_empty() {
        return Err(Rejection::BadFormat);
    }
    let meta = checked(rest).map_err(|_| Rejection::InvalidOrDuplicateFlag)?;
    if !matches!(meta.mode(), None | Some(b'I' | b'+' | b'D' | b'-')) {
        return Err(Rejection::ArithmeticMode);
    }
    opaque_fits(&meta)?;
    Ok(Request::Meta { command: MetaCommand::Arithmetic, meta })
}

fn debug(rest: &[u8]) -> Result<Request<'_>, Rejection> {
    let (key, flags) = split(rest).filter(|(key, _)| key.len() <= MAX_KEY).ok_or(Rejection::BadFormat)?;
    let mut seen = SeenFlags::default();
    if Keys::new(flags).next() == Some(b"b") {
        base64::decode(key, &mut [0; MAX_KEY]).ok_or(Rejection::BadFormat)?;
        seen.0 |= bit(b'b');
    }
    Ok(Request::Meta { command: MetaCommand::Debug, meta: Meta { key, flags: b"", seen } })
}

/// As a classic storage command: a refused line drops its value, or closes where its length is in doubt (`command`).
fn set(rest: &[u8]) -> CommandLine<'_> {
    let close = CommandLine::RejectClose { rejection: Rejection::BadFormat, noreply: false };
    let Some((key, behind_key)) = split(rest) else {
        return CommandLine::Reject { rejection: Rejection::BadFormat, noreply: false };
    };
    let Some((length, flags)) = split(behind_key) else {
        // An empty key would put the length in its place.
        return match unsigned64(key) {
            Some(_) => close,
            None => CommandLine::Reject { rejection: Rejection::BadFormat, noreply: false },
        };
    };
    let Some(length) = block_length(length) else {
        return close;
    };
    let set = checked_flags(key, flags, 3).and_then(|meta| {
        if !matches!(meta.mode(), None | Some(b'E' | b'A' | b'P' | b'R' | b'S')) {
            return Err(Rejection::SetMode);
        }
        opaque_fits(&meta)?;
        Ok(meta)
    });
    match set {
        Ok(meta) => CommandLine::Request(Request::MetaSet(MetaSet { meta, length, value: None })),
        // A blank in the key would put the length, a number, among the flags.
        Err(rejection) if Keys::new(flags).any(|flag| flag.iter().all(u8::is_ascii_digit)) => {
            CommandLine::RejectClose { rejection, noreply: false }
        }
        Err(rejection) => CommandLine::RejectBlock { rejection, noreply: false, length },
    }
}

fn opaque_fits(meta: &Meta<'_>) -> Result<(), Rejection> {
    match meta.argument(b'O') {
        Some(opaque) if opaque.len() >= OPAQUE_LIMIT => Err(Rejection::OpaqueTooLong),
        _ => Ok(()),
    }
}

/// Checks the part behind the first word of a line without a length.
fn checked(rest: &[u8]) -> Result<Meta<'_>, Rejection> {
    let (key, flags) = split(rest).ok_or(Rejection::BadFormat)?;
    checked_flags(key, flags, 2)
}

/// Checks a key and its flags, which are behind this number of words, in memcached's order.
fn checked_flags<'a>(key: &'a [u8], flags: &'a [u8], words: usize) -> Result<Meta<'a>, Rejection> {
    if key.len() > MAX_KEY {
        return Err(Rejection::BadFormat);
    }
    if Keys::new(flags).nth(WORDS_MAX - words).is_some() {
        return Err(Rejection::TooManyFlags);
    }
    let mut seen = SeenFlags::default();
    let mut wrong = None;
    for flag in Keys::new(flags) {
        let (letter, argument) = (flag[0], &flag[1..]);
        if letter >= 127 || letter.is_ascii_alphabetic() && seen.has(letter) {
            return Err(Rejection::DuplicateFlag);
        }
        let bad = match letter {
            b'b' => base64::decode(key, &mut [0; MAX_KEY]).is_none().then_some(Rejection::BadKeyEncoding),
            b'N' | b'T' | b'R' => signed32(argument).is_none().then_some(Rejection::BadToken),
            b'C' | b'E' => unsigned64(argument).is_none().then_some(Rejection::BadToken),
            // A bad F has no error of its own: the error of an earlier flag stays.
            b'F' => unsigned32(argument).is_none().then(|| wrong.unwrap_or(Rejection::BadFormat)),
            b'J' => unsigned64(argument).is_none().then_some(Rejection::InvalidInitial),
            b'D' => unsigned64(argument).is_none().then_some(Rejection::InvalidMetaDelta),
            b'O' | b'P' | b'L' | b'M' => None,
            b'k' | b's' | b't' | b'c' | b'f' | b'v' | b'h' | b'l' | b'u' | b'q' | b'I' | b'x' => None,
            _ => return Err(Rejection::InvalidFlag),
        };
        wrong = bad.or(wrong);
        seen.0 |= bit(letter);
    }
    wrong.map_or(Ok(Meta { key, flags, seen }), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(line: &str) -> Option<(Rejection, bool)> {
        match parse(line.as_bytes()[0], &line.as_bytes()[1..]) {
            CommandLine::Request(_) => None,
            CommandLine::Reject { rejection, .. } => Some((rejection, false)),
            CommandLine::RejectBlock { rejection, .. } | CommandLine::RejectClose { rejection, .. } => {
                Some((rejection, true))
            }
            CommandLine::Close => unreachable!("not for this protocol"),
        }
    }

    #[test]
    fn the_error_is_memcacheds() {
        use Rejection::*;
        for (line, expected) in [
            ("g", BadFormat),
            ("d", BadFormat),
            ("a", BadFormat),
            ("s", BadFormat),
            ("s a", BadFormat),
            ("e", BadFormat),
            ("x a", Error),
            ("g a v v", DuplicateFlag),
            ("g a \x7f", DuplicateFlag),
            ("g a y", InvalidFlag),
            ("g a 1 1", InvalidFlag),
            ("g a Nabc y", InvalidFlag),
            ("g a N", BadToken),
            ("g a Fx", BadFormat),
            ("g a Fx Tx", BadToken),
            ("g a Tx Fx", BadToken),
            ("g a Tx b", BadKeyEncoding),
            ("g a b Tx", BadToken),
            ("g a Jx", InvalidInitial),
            ("g a D-1", InvalidMetaDelta),
            ("g a F4294967296", BadFormat),
            ("g a T4294967296", BadToken),
            ("g a T+5", BadToken),
            ("g a C-0", BadToken),
            ("d a C", BadToken),
            ("d a z", InvalidFlag),
            ("d a q q", DuplicateFlag),
            ("d a b", BadKeyEncoding),
            ("a a MX", ArithmeticMode),
            ("a a M", ArithmeticMode),
            ("a a C", InvalidOrDuplicateFlag),
            ("a a k k", InvalidOrDuplicateFlag),
            ("e a b", BadFormat),
        ] {
            assert_eq!(rejection(line), Some((expected, false)), "{line}");
        }
        for (line, expected) in [
            ("s a x", BadFormat),
            ("s a +2", BadFormat),
            ("s a 2147483646", BadFormat),
            ("s a 4294967298", BadFormat),
            ("s 2", BadFormat),
            ("s a 2 y", InvalidFlag),
            ("s a 2 5", InvalidFlag),
            ("s a 2 MX", SetMode),
            ("s a 2 M", SetMode),
            ("s a 2 C Ex M", BadToken),
        ] {
            assert_eq!(rejection(line), Some((expected, true)), "{line}");
        }
        for line in ["g a x M", "d a MXX", "s a 2 x MAfoo", "a a MIx x"] {
            assert_eq!(rejection(line), None, "{line}");
        }
        let opaque = |length| format!("g a O{}", "x".repeat(length));
        assert_eq!((rejection(&opaque(31)), rejection(&opaque(32))), (None, Some((OpaqueTooLong, false))));
        let flags = "a v f c t h l s k u O1 P1 L1 J1 D1 MS T1 R1";
        for (line, too_many) in [
            (format!("g {flags} C1"), format!("g {flags} C1 q")),
            (format!("d {flags} C1"), format!("d {flags} C1 q")),
            (flags.replacen("a", "s a 2", 1), flags.replacen("a", "s a 2 C1", 1)),
        ] {
            assert_eq!(rejection(&line), None, "{line}");
            let expected = (TooManyFlags, too_many.starts_with('s'));
            assert_eq!(rejection(&too_many), Some(expected), "{too_many}");
        }
        assert_eq!(rejection("g a E5"), None);
        for line in ["mn", "n a b", "g a", "g YQ== b"] {
            assert_eq!(rejection(line.trim_start_matches('m')), None, "{line}");
        }
    }

    #[test]
    fn arguments_are_found_behind_their_letters() {
        let CommandLine::Request(Request::MetaSet(set)) = parse(b's', b" YQ== 5 T-1 b F7 C9 E10 MA I k q O!") else {
            panic!("it is a set");
        };
        let meta = set.meta;
        assert_eq!((set.length, meta.key(&mut [0; MAX_KEY])), (5, &b"a"[..]));
        assert_eq!((meta.exptime(b'T'), meta.exptime(b'N'), meta.client_flags()), (Some(-1), None, 7));
        assert_eq!((meta.number(b'C'), meta.number(b'E'), meta.number(b'D')), (Some(9), Some(10), None));
        assert_eq!(meta.mode(), Some(b'A'));
        assert!(meta.has(b'I') && meta.has(b'q') && !meta.has(b'i') && !meta.has(b'v'));
        assert_eq!(meta.flags().last(), Some(&b"O!"[..]));
    }
}
