//! Why a cache refuses an operation.

/// Event that a write would have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Another thread is emptying segments.
    Eviction,
    /// A reader holds up memory that was evicted or deleted.
    Reader,
    /// Handles or uploads hold the memory.
    Held,
    /// Flash has not yet written earlier evictions.
    Demotion,
}

impl WaitReason {
    pub(crate) fn explain(self) -> &'static str {
        match self {
            Self::Eviction => "another thread is evicting, and has not ended",
            Self::Reader => "borrowed items hold up what was evicted",
            Self::Held => "borrowed items, handles or uploads hold the memory",
            Self::Demotion => "flash has no space for what would be evicted",
        }
    }
}

impl std::fmt::Display for WaitReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.explain())
    }
}

/// Why an operation of a cache was not done. Later versions may have more variants.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, Error};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// match cache.insert("k", vec![0; 2 << 20]) {
///     Err(Error::ValueTooLarge { length, limit }) => println!("{length} bytes; the limit is {limit}"),
///     Err(Error::OutOfMemory { .. }) => println!("go on without the cache"),
///     other => other?,
/// }
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key has no byte or too many.
    #[error("the key has {length} bytes; keys have 1 to {limit}")]
    KeyLength { length: usize, limit: usize },
    /// The value is longer than any may be.
    #[error("the value has {length} bytes, more than the limit of {limit}: use a larger max_value")]
    ValueTooLarge { length: u64, limit: u64 },
    /// No memory could be freed for it now.
    #[error("no memory is free and nothing can be evicted now: {reason}")]
    OutOfMemory { reason: &'static str },
    /// Of a handle that does not wait (`Cache::without_waiting`): nothing was done. Try again soon.
    #[error("the operation would have to wait: {reason}")]
    WouldWait { reason: WaitReason },
    /// The value of an increment or decrement is not a decimal number.
    #[error("the value is not a decimal number")]
    NotNumeric,
    /// The value is another structure, of other types or of another version, or none.
    #[error("the value is {found}, not {expected}: use another key, or remove the value")]
    WrongStructure { expected: String, found: String },
    /// The value is structured: an append or prepend of bytes would damage it.
    #[error("the value is structured: it is changed by edits of its structure only")]
    Structured,
    /// An edit would make a structured value longer than a segment or `max_value`.
    #[error("the structured value would have {length} bytes, more than the limit of {limit}: divide it among keys")]
    StructureTooLarge { length: u64, limit: u64 },
    /// A structured value was accessed beyond its end.
    #[error("index {index} is outside a structured value of {length} elements")]
    OutOfBounds { index: usize, length: usize },
    /// Words were given that are none, or more than a value has.
    #[error("{count} words: a value has 1 to {limit}")]
    WordCount { count: usize, limit: usize },
    /// Handles hold as much memory as they may.
    #[error("handles pin {pinned_bytes} bytes, the limit is {limit}: drop some")]
    PinnedLimit { pinned_bytes: u64, limit: u64 },
    /// The codec of a typed cache refuses a key or a value.
    #[error("the codec refuses the {part}: {reason}")]
    Codec { part: &'static str, reason: String },
    /// The loader of a key asks for the same key.
    #[error("the loader of key {key} loads the same key: it would wait for itself")]
    RecursiveLoad { key: String },
    /// A closure that edits a structured value edits the same value.
    #[error("the edit of key {key} edits the same key: it would never end")]
    RecursiveEdit { key: String },
    /// The loader of another caller has not ended in time.
    #[error("the loader of another caller has not ended within {milliseconds} ms: use a larger load_timeout")]
    LoadTimeout { milliseconds: u64 },
    /// It is remembered that a loader of the key has found no value.
    #[error("a loader of the key {key} has found no value: it is asked again after its negative_ttl")]
    KnownAbsent { key: String },
    /// It is remembered that a loader of the key has failed.
    #[error("a loader of the key {key} has failed: it is asked again after its negative_ttl")]
    KnownFailure { key: String },
    /// As many listen as can.
    #[error("the cache has {limit} listeners, as many as it can")]
    ListenerLimit { limit: usize },
    /// As many scans are under way as can be.
    #[error("{limit} scans are under way, as many as there can be: finish or drop one")]
    ScanLimit { limit: usize },
    /// The cache was closed: nothing was changed.
    #[error("the cache is closed")]
    Closed,
    /// No pool has this name.
    #[error("there is no pool `{name}`")]
    UnknownPool { name: String },
    /// A pool with this name exists.
    #[error("a pool `{name}` exists already")]
    PoolExists { name: String },
    /// A compact pool is used as another one, or the other way round.
    #[error("the pool `{name}` is {kind}: use {method}")]
    PoolKind { name: String, kind: &'static str, method: &'static str },
    /// A key or a value of a compact pool has another length than all others.
    #[error("the {part} has {length} bytes; those of this compact pool have {expected}")]
    CompactLength { part: &'static str, length: usize, expected: usize },
    /// A compact pool keeps no TTLs.
    #[error("this compact pool keeps no TTLs: give none, or configure the pool with TTLs")]
    CompactTtl,
    /// The pool of this handle was removed.
    #[error("the pool `{name}` was removed")]
    PoolRemoved { name: String },
    /// The options contradict each other or the machine.
    #[error("{option} = {value}: {reason}")]
    Configuration { option: &'static str, value: String, reason: String },
}

impl Error {
    /// Whether the operation is over: it is not one that is to be tried again.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::WouldWait { .. })
    }

    /// Translates the store's errors other than `NeedSegment`.
    pub(crate) fn from_store(error: ebbtide_store::Error) -> Self {
        use ebbtide_store::Error as Store;
        match error {
            Store::NeedSegment | Store::NeedSegments { .. } => Self::OutOfMemory { reason: "every segment is in use" },
            Store::IndexFull { .. } => Self::OutOfMemory { reason: "the index is as large as it can be" },
            Store::TooLarge { bytes, limit } => Self::ValueTooLarge { length: bytes, limit },
            Store::KeyLength { length } => Self::KeyLength { length, limit: ebbtide_store::KEY_LIMIT },
            Store::NotNumeric => Self::NotNumeric,
            Store::Structured => Self::Structured,
            Store::CompactLength { part, bytes, expected } => Self::CompactLength { part, length: bytes, expected },
            Store::CompactTtl => Self::CompactTtl,
            Store::PinnedLimit { pinned_bytes, limit } => Self::PinnedLimit { pinned_bytes, limit },
            Store::UploadLimit { .. } => Self::OutOfMemory { reason: "unfinished uploads hold half of the memory" },
            Store::ScanLimit { limit } => Self::ScanLimit { limit },
            Store::Options { option, value, reason } => Self::Configuration { option, value, reason },
            Store::Mapping { bytes, reason } => Self::Configuration {
                option: "memory",
                value: bytes.to_string(),
                reason: format!("cannot map it: {reason}"),
            },
        }
    }
}
