//! Operations of a cache and their possible answers, in terms of the contract, without any crate's types.

/// How long an entry shall live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Never,
    Seconds(u32),
    /// Exactly until a second: this many after the one of the operation.
    Exactly(u32),
    /// Over already.
    Past,
}

/// When a write is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// Only if the value still has this token. `check` sets the token, the last one that was answered.
    Cas(u64),
}

/// A write.
#[derive(Clone, PartialEq, Eq)]
pub struct Write {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub flags: u32,
    pub life: Life,
    pub mode: Mode,
    /// The value arrives in pieces of this many bytes.
    pub pieces: Option<usize>,
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, value, flags, life, mode, pieces } = self;
        let start = value[..value.len().min(24)].escape_ascii();
        write!(f, "Write({} <- {} bytes {start}, flags {flags}, {life:?}, {mode:?}", Key(key), value.len())?;
        match pieces {
            Some(bytes) => write!(f, ", in pieces of {bytes})"),
            None => write!(f, ")"),
        }
    }
}

struct Key<'a>(&'a [u8]);

impl std::fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key {}({})", self.0[..self.0.len().min(8)].escape_ascii(), self.0.len())
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Get(Vec<u8>),
    GetBatch(Vec<Vec<u8>>),
    /// A get whose hit is kept as a handle, which `Release` reads again.
    Hold(Vec<u8>),
    /// Reads all handles again and releases them.
    Release,
    Write(Write),
    /// An upload that is abandoned after `written` of `length` bytes.
    Abandon {
        key: Vec<u8>,
        length: usize,
        written: usize,
    },
    Delete(Vec<u8>),
    Touch(Vec<u8>, Life),
    GetAndTouch(Vec<u8>, Life),
    Increment(Vec<u8>, u64),
    Decrement(Vec<u8>, u64),
    /// The value becomes stale, without a winner, and gets this token if one is given.
    MarkStale(Vec<u8>, Option<u64>),
    /// The first client that gets a stale value wins it.
    Win(Vec<u8>),
    Flush {
        delay_ms: u64,
    },
    /// All maintenance that is due.
    Maintain,
}

/// A hit, as the cache served it.
#[derive(Clone, PartialEq, Eq)]
pub struct Hit {
    pub value: Vec<u8>,
    pub flags: u32,
    pub token: u64,
    pub stale: bool,
    pub won: bool,
    /// The reported expiry, on the clock of the operations.
    pub expiry_ms: Option<u64>,
}

impl std::fmt::Debug for Hit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = self.value[..self.value.len().min(24)].escape_ascii();
        write!(f, "Hit({} bytes {start}, flags {}, until {:?} ms)", self.value.len(), self.flags, self.expiry_ms)
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Lookup(Option<Hit>),
    Lookups(Vec<Option<Hit>>),
    Stored,
    NotStored,
    Exists,
    NotFound,
    /// Of delete, touch and a mark: whether the key was there.
    Was(bool),
    /// Of incr and decr; `None` if the key is absent.
    Number(Option<u64>),
    NotNumeric,
    /// Of a win: whether it was one; `None` if the key is absent.
    Won(Option<bool>),
    TooLarge,
    /// No memory could be had.
    Full,
    Done,
}
