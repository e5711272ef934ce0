use std::num::NonZeroU32;

use crate::meta::{Meta, MetaCommand, MetaSet};
use crate::reply;

/// One parsed command; keys and data are borrowed from the read buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Get(Get<'a>),
    /// mg, md, ma and me.
    Meta {
        command: MetaCommand,
        meta: Meta<'a>,
    },
    /// ms.
    MetaSet(MetaSet<'a>),
    /// mn.
    MetaNoOp,
    Store(StoreRequest<'a>),
    Delete {
        key: &'a [u8],
        noreply: bool,
    },
    /// incr and decr.
    Arithmetic {
        key: &'a [u8],
        delta: u64,
        increment: bool,
        noreply: bool,
    },
    Touch {
        key: &'a [u8],
        exptime: i32,
        noreply: bool,
    },
    FlushAll {
        /// As given: 0 or less is now, up to 30 days is seconds from now, more is a Unix time. `None` if it is no
        /// number, which is answered only where the command is allowed.
        exptime: Option<i32>,
        noreply: bool,
    },
    Version,
    Verbosity {
        level: u32,
        noreply: bool,
    },
    Stats {
        topic: Option<&'a [u8]>,
        argument: Option<&'a [u8]>,
    },
    /// stats cachedump, or the error of its arguments: whether it is allowed is answered first.
    CacheDump(Result<CacheDump, Rejection>),
    /// cache_memlimit.
    MemoryLimit {
        megabytes: u32,
        noreply: bool,
    },
    Shutdown {
        /// False if the argument is something else than `graceful`.
        mode_known: bool,
        noreply: bool,
    },
    /// lru_crawler metadump and mgdump.
    Dump(Dump),
    Watch {
        /// `None` if a word is no kind of event, which is answered only where the command is allowed.
        watched: Option<Watched>,
        noreply: bool,
    },
    /// extstore: a limit for writes to flash.
    ExternalStorage {
        setting: ExternalStorage,
        noreply: bool,
    },
    /// A well-formed command without a counterpart here: about lists, slabs and their crawler.
    Unchanged {
        noreply: bool,
    },
    /// refresh_certs.
    RefreshCerts,
    /// debugtime: moves time on.
    SkipTime {
        seconds: u32,
    },
    Quit,
}

/// A change by `extstore`, with its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalStorage {
    /// Minimum bytes of a value that is written to flash.
    ItemSize(u32),
    /// Seconds without a read after which a value is written to flash; `u32::MAX`: never.
    ItemAge(u32),
    /// Minimum remaining TTL of a value that is written to flash, in seconds.
    LowTtl(u32),
    /// One in this many hits on flash is promoted; 0 promotes none.
    RecacheRate(u32),
}

/// get, gets, gat and gats, or a part of one: a multiget longer than the read buffer is split into several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    pub keys: Keys<'a>,
    /// gets and gats: each value is answered with its CAS token.
    pub with_cas: bool,
    /// gat and gats: the exptime each key gets.
    pub touch: Option<i32>,
    /// The command ends here: `END` follows its values.
    pub last: bool,
}

/// Words between spaces: the keys of a get, none longer than [`MAX_KEY`](crate::MAX_KEY), or the flags of a meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    rest: &'a [u8],
}

impl<'a> Keys<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Whether no word is left.
    pub fn is_empty(&self) -> bool {
        self.rest.iter().all(|&byte| byte == b' ')
    }

    /// The rest of the line, not yet split into words.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Keys<'a> {
    /// The next word, searched for its end in another way.
    #[inline(always)]
    fn next_by(&mut self, end_of: impl FnOnce(&[u8]) -> Option<usize>) -> Option<&'a [u8]> {
        let mut start = 0;
        while *self.rest.get(start)? == b' ' {
            start += 1;
        }
        let rest = &self.rest[start..];
        let (word, rest) = rest.split_at(end_of(rest).unwrap_or(rest.len()));
        self.rest = rest;
        Some(word)
    }

    /// As `next`, cheaper for a word of a few bytes.
    #[inline]
    pub(crate) fn next_short(&mut self) -> Option<&'a [u8]> {
        self.next_by(|rest| rest.iter().position(|&byte| byte == b' '))
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.next_by(|rest| memchr::memchr(b' ', rest))
    }
}

/// set, add, replace, append, prepend and cas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRequest<'a> {
    pub mode: StoreMode,
    pub key: &'a [u8],
    pub flags: u32,
    /// As given: 0 is never, negative is past, up to 30 days is seconds from now, more is a Unix time.
    pub exptime: i32,
    /// Announced bytes of the value.
    pub length: u32,
    pub noreply: bool,
    /// The value, if it was all in the buffer. Otherwise `length` + 2 bytes follow, which are not the parser's to read:
    /// the caller takes them off the stream, and checks that they end in [`reply::LINE_END`].
    pub value: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas(u64),
}

/// A short listing of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheDump {
    /// May exceed memcached's largest class: the caller checks it.
    pub class: u32,
    /// Maximum number of items that are listed; 0 for no limit.
    pub limit: u32,
}

/// The slab classes that a dump lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpClasses {
    All,
    /// A bit for each class from 1 to 63.
    Some(u64),
}

impl DumpClasses {
    pub fn contain(self, class: u32) -> bool {
        match self {
            Self::All => true,
            Self::Some(classes) => class < u64::BITS && classes & 1 << class != 0,
        }
    }
}

/// A listing of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dump {
    pub format: DumpFormat,
    pub classes: DumpClasses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpFormat {
    /// A line with the metadata of each entry.
    Metadump,
    /// A meta get for each key.
    Mgdump,
}

/// The kinds of events of a watcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    pub fetchers: bool,
    pub mutations: bool,
    pub evictions: bool,
    pub connections: bool,
    pub deletions: bool,
    /// From `sample=N`: events of one key of N only, with more fields in the lines of fetches.
    pub sample: Option<NonZeroU32>,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Unknown command or wrong number of arguments.
    Error,
    BadFormat,
    BadDataChunk,
    InvalidExptime,
    InvalidDelta,
    /// A slab class that cannot be.
    BadClass,
    /// stats cachedump without its two numbers; with a class that cannot be.
    BadLine,
    IllegalClass,
    /// lru_crawler crawl of the hash table.
    UnknownCrawlerError,
    /// lru_crawler sleep.
    SleepTooLong,
    /// slabs automove window.
    WindowBounds,
    /// lru tune.
    SharesTooLarge,
    FactorsTooSmall,
    /// slabs reassign.
    SameClass,
    BadClasses,
    NoSparePages,
    /// From here on of meta commands: a letter that is no flag.
    InvalidFlag,
    DuplicateFlag,
    /// The only error of md and ma for a flag.
    InvalidOrDuplicateFlag,
    /// A flag's number is none.
    BadToken,
    BadKeyEncoding,
    OpaqueTooLong,
    TooManyFlags,
    SetMode,
    ArithmeticMode,
    InvalidInitial,
    InvalidMetaDelta,
}

impl Rejection {
    /// The line that memcached answers.
    pub fn line(self) -> &'static [u8] {
        match self {
            Self::Error => reply::ERROR,
            Self::BadFormat => reply::BAD_FORMAT,
            Self::BadDataChunk => reply::BAD_DATA_CHUNK,
            Self::InvalidExptime => reply::INVALID_EXPTIME,
            Self::InvalidDelta => reply::INVALID_DELTA,
            Self::BadClass => reply::BAD_CLASS,
            Self::BadLine => reply::BAD_LINE,
            Self::IllegalClass => reply::ILLEGAL_CLASS,
            Self::UnknownCrawlerError => reply::UNKNOWN_CRAWLER_ERROR,
            Self::WindowBounds => reply::WINDOW_BOUNDS,
            Self::SleepTooLong => reply::SLEEP_TOO_LONG,
            Self::SharesTooLarge => reply::SHARES_TOO_LARGE,
            Self::FactorsTooSmall => reply::FACTORS_TOO_SMALL,
            Self::SameClass => reply::SAME_CLASS,
            Self::BadClasses => reply::BAD_CLASSES,
            Self::NoSparePages => reply::NO_SPARE_PAGES,
            Self::InvalidFlag => reply::INVALID_FLAG,
            Self::DuplicateFlag => reply::DUPLICATE_FLAG,
            Self::InvalidOrDuplicateFlag => reply::INVALID_OR_DUPLICATE_FLAG,
            Self::BadToken => reply::BAD_FLAG_NUMBER,
            Self::BadKeyEncoding => reply::BAD_KEY_ENCODING,
            Self::OpaqueTooLong => reply::OPAQUE_TOO_LONG,
            Self::TooManyFlags => reply::TOO_MANY_FLAGS,
            Self::SetMode => reply::SET_MODE,
            Self::ArithmeticMode => reply::ARITHMETIC_MODE,
            Self::InvalidInitial => reply::INVALID_INITIAL,
            Self::InvalidMetaDelta => reply::INVALID_META_DELTA,
        }
    }
}
