//! The kvcache traces that are published with CacheLib. Their columns changed from release to release, so they are
//! found by their names in the header:
//!
//! ```text
//! 202206, 202312   key,op,size,op_count,key_size
//! 202210           op_time,key,key_size,op,op_count,size,cache_hits,ttl
//! 202401           op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase
//! ```
//! `key`, `op` and `size` (bytes of the value) are required. A row stands for `op_count` equal requests in the same
//! second. Without `key_size` a key has the bytes that its text has. Without `op_time` the rows are taken to come at
//! 1000 requests per second. A trace without a header, forced by `--format`, has CacheBench's order
//! `key,op,size,op_count,key_size,ttl`. GET_LEASE and SET_LEASE count as get and set.

use super::text::{self, Fault};
use super::{Op, Request};

/// Requests per second where the trace has no time.
const ASSUMED_RATE: u64 = 1000;

/// Equal requests of one row, at most: more in one second is a damaged number, which would replay for hours.
const MAX_OP_COUNT: u64 = 1 << 24;

/// More columns than any release has.
const MAX_COLUMNS: usize = 32;

/// Where each column is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    op_time: Option<usize>,
    key: usize,
    key_size: Option<usize>,
    op: usize,
    op_count: Option<usize>,
    size: usize,
    ttl: Option<usize>,
}

impl Columns {
    /// `None` if the line is not a header with the required columns.
    pub(super) fn from_header(line: &[u8]) -> Option<Self> {
        let position = |name: &[u8]| {
            line.split(|&byte| byte == b',').take(MAX_COLUMNS).position(|column| column.trim_ascii() == name)
        };
        Some(Self {
            op_time: position(b"op_time"),
            key: position(b"key")?,
            key_size: position(b"key_size"),
            op: position(b"op")?,
            op_count: position(b"op_count"),
            size: position(b"size")?,
            ttl: position(b"ttl"),
        })
    }

    fn without_header() -> Self {
        Self { op_time: None, key: 0, key_size: Some(4), op: 1, op_count: Some(3), size: 2, ttl: Some(5) }
    }
}

/// Reads rows; keeps how many requests are still to come of the last one.
#[derive(Debug)]
pub(super) struct KvcacheDecoder {
    columns: Columns,
    repeated: Option<(Request, u64)>,
    requests: u64,
}

impl KvcacheDecoder {
    /// With the header's columns, or with CacheBench's order where there is no header.
    pub(super) fn new(header: Option<Columns>) -> Self {
        Self { columns: header.unwrap_or_else(Columns::without_header), repeated: None, requests: 0 }
    }

    /// The next of the equal requests of one row.
    pub(super) fn repeat(&mut self) -> Option<Request> {
        let (request, left) = self.repeated.take()?;
        if left > 1 {
            self.repeated = Some((request, left - 1));
        }
        Some(self.at_its_time(request))
    }

    /// The first of the requests of a row, and the text of its key.
    pub(super) fn parse<'line>(&mut self, line: &'line [u8]) -> Result<(Request, &'line [u8]), Fault> {
        let mut cells = [&line[..0]; MAX_COLUMNS];
        let row = line.split(|&byte| byte == b',');
        cells.iter_mut().zip(row).for_each(|(cell, text)| *cell = text);
        let columns = &self.columns;
        let optional = |column: Option<usize>| column.map(|index| cells[index]).filter(|cell| !cell.is_empty());
        let key = cells[columns.key].trim_ascii();
        let count = match optional(columns.op_count) {
            Some(cell) => text::number(cell, "op_count")?,
            None => 1,
        };
        if count == 0 {
            return Err("op_count is 0".into());
        }
        if count > MAX_OP_COUNT {
            return Err(format!("op_count `{count}` is more than {MAX_OP_COUNT}"));
        }
        let request = Request {
            time_seconds: match columns.op_time {
                Some(index) => text::number(cells[index], "op_time")?,
                None => 0,
            },
            key: text::hash_key(key)?,
            key_size: match optional(columns.key_size) {
                Some(cell) => text::size(cell, "key_size")?,
                None => key.len() as u32,
            },
            value_size: text::size(cells[columns.size], "size")?,
            op: operation(cells[columns.op].trim_ascii())?,
            ttl_seconds: match optional(columns.ttl) {
                Some(cell) => text::ttl_seconds(cell)?,
                None => 0,
            },
        };
        if count > 1 {
            self.repeated = Some((request, count - 1));
        }
        Ok((self.at_its_time(request), key))
    }

    fn at_its_time(&mut self, mut request: Request) -> Request {
        if self.columns.op_time.is_none() {
            request.time_seconds = self.requests / ASSUMED_RATE;
        }
        self.requests += 1;
        request
    }
}

fn operation(name: &[u8]) -> Result<Op, Fault> {
    match name {
        b"GET_LEASE" => Ok(Op::Get),
        b"SET_LEASE" => Ok(Op::Set),
        _ => text::operation(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(header: &str) -> KvcacheDecoder {
        KvcacheDecoder::new(Columns::from_header(header.as_bytes()))
    }

    #[test]
    fn columns_are_found_by_name() {
        let mut newer = decoder("op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase");
        let (request, key) = newer.parse(b"604038473,828769c1e1ce3a29,67,SET,1,65,0,7200,2777918327,655456").unwrap();
        assert_eq!((request.time_seconds, key), (604_038_473, &b"828769c1e1ce3a29"[..]));
        assert_eq!((request.key_size, request.value_size), (67, 65));
        assert_eq!((request.op, request.ttl_seconds), (Op::Set, 7200));

        let mut older = decoder("key,op,size,op_count,key_size");
        let (request, _) = older.parse(b"1668757755,GET_LEASE,82,1,40").unwrap();
        assert_eq!((request.key_size, request.value_size), (40, 82));
        assert_eq!((request.op, request.ttl_seconds), (Op::Get, 0));

        let mut bare = KvcacheDecoder::new(None);
        let (request, _) = bare.parse(b"1668757755,DELETE,82,1,40,9").unwrap();
        assert_eq!((request.op, request.ttl_seconds), (Op::Delete, 9));
    }

    #[test]
    fn a_row_stands_for_op_count_requests() {
        let mut rows = decoder("key,op,size,op_count,key_size");
        let (first, _) = rows.parse(b"7,GET,82,3,40").unwrap();
        assert_eq!(rows.repeat(), Some(first));
        assert_eq!(rows.repeat(), Some(first));
        assert_eq!(rows.repeat(), None);
    }

    #[test]
    fn without_time_a_thousand_requests_take_a_second() {
        let mut rows = decoder("key,op,size,op_count,key_size");
        let mut seconds = vec![rows.parse(b"7,GET,82,2500,40").unwrap().0.time_seconds];
        seconds.extend(std::iter::from_fn(|| rows.repeat()).map(|r| r.time_seconds));
        assert_eq!(seconds.len(), 2500);
        assert_eq!((seconds[999], seconds[1000], seconds[2499]), (0, 1, 2));
    }

    #[test]
    fn malformed_rows_are_refused() {
        let mut rows = decoder("op_time,key,key_size,op,op_count,size,cache_hits,ttl");
        for row in [
            &b"x,k,1,GET,1,1,0,0"[..],
            b"1,,1,GET,1,1,0,0",
            b"1,k,1,FETCH,1,1,0,0",
            b"1,k,1,GET,0,1,0,0",
            b"1,k,1,GET,16777217,1,0,0",
            b"1,k,1,GET,18446744073709551615,1,0,0",
            b"1,k,1,GET,1",
        ] {
            assert!(rows.parse(row).is_err(), "{}", row.escape_ascii());
        }
        assert_eq!(rows.repeat(), None);
    }
}
