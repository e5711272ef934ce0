//! Readers of cache traces, streaming and in constant memory.
//!
//! | format | one record |
//! |---|---|
//! | `csv` | header `timestamp_s,key_id,key_size,value_size,op,ttl_s`, then such lines; `pool` and `found` may follow |
//! | `twitter` | `timestamp,anonymized key,key size,value size,client id,operation,TTL`, no header |
//! | `kvcache` | CacheLib's traces: a header that names the columns, in one of several orders |
//! | `oracle-general` | libCacheSim's oracleGeneral: 24 bytes, no header |
//! | `lcs` | libCacheSim's lcs, versions 1 to 8: a header of 8,192 bytes, then 24 to 100 bytes |
//! | `vscsi` | libCacheSim's vscsi, both versions: 32 or 40 bytes, no header |
//!
//! A text of other columns is read by a [`ColumnMap`]. All formats are written, too: lcs in version 3, vscsi in 1.
//!
//! Files may be compressed with zstd or gzip. Compression and format are detected by the content; a file that is no
//! trace is refused. Text may begin with a byte order mark and hold blank lines and comments (`#`). A malformed line is
//! an error that does not end the stream: the next call reads the next line, so the caller decides whether to stop.

mod captured_server;
mod columns;
mod compression;
mod encode;
mod format;
mod kvcache;
mod labels;
mod lines;
pub(crate) mod loaded;
mod new_file;
mod oracle;
mod output;
mod reader;
mod records;
mod signature;
mod text;
mod writer;

pub use columns::ColumnMap;
pub use format::Format;
pub use labels::{LabelBy, NO_LABEL, PoolsBy};
pub(crate) use labels::{Labels, PoolRules};
pub use reader::TraceReader;

pub(crate) use captured_server::CapturedServer;
pub(crate) use new_file::{NewFile, check_is_no_input};
pub(crate) use oracle::encode as oracle_record;
pub(crate) use output::{Output, ReportFile, say_if_replaced};
pub(crate) use reader::{SAMPLE_MARK, STANDARD_INPUT};
pub(crate) use writer::{OutputFormat, TraceWriter};

pub(crate) use text::{CSV_HEADER, FOUND_COLUMN, write_captured_line, write_csv_line};

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Get,
    Gets,
    Set,
    Add,
    Replace,
    Cas,
    Append,
    Prepend,
    Delete,
    Incr,
    Decr,
}

impl Op {
    const NAMES: [(&'static str, Op); 11] = [
        ("get", Op::Get),
        ("gets", Op::Gets),
        ("set", Op::Set),
        ("add", Op::Add),
        ("replace", Op::Replace),
        ("cas", Op::Cas),
        ("append", Op::Append),
        ("prepend", Op::Prepend),
        ("delete", Op::Delete),
        ("incr", Op::Incr),
        ("decr", Op::Decr),
    ];

    /// The operation by its memcached name, in any case; `None` if there is none of that name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let known = Self::NAMES.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        known.map(|&(_, op)| op)
    }

    /// Its memcached name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// As the trace has it; the origin differs from format to format.
    pub time_seconds: u64,
    /// Names the key; string keys are hashed to 64 bits.
    pub key: u64,
    /// Bytes of the key.
    pub key_size: u32,
    /// Bytes of the value; the trace carries no data.
    pub value_size: u32,
    pub op: Op,
    /// 0 is no expiry.
    pub ttl_seconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_operations_belong_together() {
        for (name, op) in Op::NAMES {
            assert_eq!((op.name(), Op::from_name(name.to_uppercase().as_bytes())), (name, Some(op)));
        }
    }
}
