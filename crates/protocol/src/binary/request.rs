use crate::StoreMode;

/// Fields that the answer repeats. If `quiet`, the expected result is not answered: a miss of a get, else success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// The number of the command, as sent.
    pub opcode: u8,
    pub quiet: bool,
    pub opaque: [u8; 4],
}

/// The command of a packet; keys and data are borrowed from the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryCommand<'a> {
    Get {
        key: &'a [u8],
        /// The answer, also to a miss, names the key.
        with_key: bool,
    },
    Touch {
        key: &'a [u8],
        /// As given: 0 is never, up to 30 days is seconds from now, more is a Unix time.
        exptime: u32,
        answer: Touched,
    },
    Put(Put<'a>),
    Delete {
        key: &'a [u8],
        /// Only if the entry still has this token, unless it is 0.
        cas: u64,
    },
    Arithmetic {
        key: &'a [u8],
        delta: u64,
        increment: bool,
        /// Initial value and exptime of an absent entry; `None`: an absent entry is a miss.
        initial: Option<Initial>,
        /// As in `Delete`.
        cas: u64,
    },
    Flush {
        /// As in `Touch`, but 0 is now.
        exptime: u32,
    },
    Noop,
    Version,
    Stat {
        /// Empty for the general ones.
        topic: &'a [u8],
    },
    Quit,
    SaslMechanisms,
    /// The first message of an authentication, or with `step` a later one.
    Sasl {
        step: bool,
        mechanism: &'a [u8],
        data: &'a [u8],
    },
}

/// Content of the answer to a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    Flags,
    Value,
    KeyAndValue,
}

/// set, add, replace, append and prepend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put<'a> {
    /// Never `Cas`: a token is in `cas`.
    pub mode: StoreMode,
    pub key: &'a [u8],
    /// 0 for append and prepend, as is `exptime`.
    pub flags: u32,
    pub exptime: u32,
    /// Only if the entry still has this token, unless it is 0.
    pub cas: u64,
    /// Announced bytes of the value.
    pub length: u32,
    /// The value, if it was all in the buffer. Otherwise `length` bytes follow, which the caller of the parser takes
    /// off the stream.
    pub value: Option<&'a [u8]>,
}

/// The entry that an incr or decr makes where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial {
    pub value: u64,
    pub exptime: u32,
}
