//! Errors of the store, one variant per reaction of the caller.

/// Why an operation of the store was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No segment is free for a writer: run `Store::evict`, then try again.
    #[error("no free segment")]
    NeedSegment,
    /// Not enough segments are free at once for a value that is written as a whole: run `Store::evict_for`, then try
    /// again.
    #[error("fewer than {count} free segments")]
    NeedSegments { count: u32 },
    /// The index has no slot for the key and as many buckets as it can have; nothing may be evicted. Only a removal
    /// helps.
    #[error("the index has no slot for the key, and no address space for more than {buckets} buckets")]
    IndexFull { buckets: u64 },
    /// The entry can never fit.
    #[error("the entry has {bytes} bytes, the limit is {limit}")]
    TooLarge { bytes: u64, limit: u64 },
    /// The key has no byte or too many.
    #[error("the key has {length} bytes; keys have 1 to 255")]
    KeyLength { length: usize },
    /// A key or a value of a compact table has another length than those of the table.
    #[error("the {part} has {bytes} bytes; those of this compact pool have {expected}")]
    CompactLength { part: &'static str, bytes: usize, expected: usize },
    /// A compact table keeps no TTLs.
    #[error("this compact pool keeps no TTLs: give none, or configure the pool with TTLs")]
    CompactTtl,
    /// The value of an increment or decrement is not a decimal number of at most 64 bits.
    #[error("the value is not a decimal number")]
    NotNumeric,
    /// The value of an append or prepend is structured.
    #[error("the value is structured: it is changed by edits of its structure only")]
    Structured,
    /// Handles hold as much memory as they are allowed.
    #[error("handles pin {pinned_bytes} bytes, the limit is {limit}: drop some")]
    PinnedLimit { pinned_bytes: u64, limit: u64 },
    /// Uploads hold as much memory as they are allowed.
    #[error("unfinished uploads hold {held_bytes} bytes, the limit is {limit}")]
    UploadLimit { held_bytes: u64, limit: u64 },
    /// As many scans are running as are allowed.
    #[error("{limit} scans are under way, as many as there can be")]
    ScanLimit { limit: usize },
    /// The options contradict each other or the machine.
    #[error("{option} = {value}: {reason}")]
    Options { option: &'static str, value: String, reason: String },
    /// The system gave no address space.
    #[error("cannot map {bytes} bytes: {reason}")]
    Mapping { bytes: usize, reason: String },
}
