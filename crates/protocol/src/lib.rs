//! The memcached protocols, sans-IO: bytes in, requests or answers out, without an allocation per command.
//!
//! | module | holds |
//! |---|---|
//! | `parser` | the incremental request parser: where lines and data blocks begin and end, long multigets |
//! | `meta`, `base64` | the lines of meta commands: flags, keys in base64 |
//! | `command` | one command line: its tokens, its arguments, the error line memcached gives for a bad one |
//! | `request` | one parsed command, borrowed from the read buffer |
//! | `number` | decimal arguments |
//! | `admin_commands` | the commands around memcached's lists, slabs and crawler; dumps and watching |
//! | `encoding` | keys in lines that cannot carry all bytes: URI encoding, base64 |
//! | `reply` | every line a server answers, and the writers that format them |
//! | `binary` | the binary protocol, with modules of its own |
//! | `login` | authentication in the text protocol |
//! | `client` | the other side: request writers and a response parser for load generators and tests |
#![forbid(unsafe_code)]

mod admin_commands;
mod base64;
pub mod binary;
pub mod client;
mod command;
pub mod encoding;
pub mod login;
mod meta;
mod number;
mod parser;
pub mod reply;
mod request;

pub use meta::{Meta, MetaCommand, MetaSet};
pub use parser::{LINE_LIMIT, Parser, Step};
pub use request::{
    CacheDump, Dump, DumpClasses, DumpFormat, ExternalStorage, Get, Keys, Rejection, Request, StoreMode, StoreRequest,
    Watched,
};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;
