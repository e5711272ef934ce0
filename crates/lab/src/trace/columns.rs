//! Text traces of any columns, as `--columns time=1,key=2,size=3` names them. Positions count from 1.

use std::str::FromStr;

use super::text::{self, Fault};
use super::{Op, Request};
use crate::keys::FULL_WIDTH;

/// More columns than any trace has.
const MAX_COLUMNS: usize = 64;

/// The position of each column, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMap {
    delimiter: u8,
    key: usize,
    time: Option<usize>,
    /// Of the whole object.
    size: Option<usize>,
    key_size: Option<usize>,
    value_size: Option<usize>,
    op: Option<usize>,
    ttl: Option<usize>,
}

impl FromStr for ColumnMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = "time, key, size, key_size, value_size, op, ttl, delimiter";
        let mut found: [Option<usize>; 7] = [None; 7];
        let mut delimiter = b',';
        for word in text.split(',') {
            let Some((name, value)) = word.split_once('=') else {
                return Err(format!("{word}: give NAME=POSITION with commas, of the names {names}"));
            };
            let known = ["time", "key", "size", "key_size", "value_size", "op", "ttl"];
            match (known.iter().position(|known| *known == name), value.parse::<usize>()) {
                (Some(at), Ok(position @ 1..=MAX_COLUMNS)) => found[at] = Some(position - 1),
                (Some(_), _) => return Err(format!("{word}: give a position from 1 to {MAX_COLUMNS}")),
                (None, _) if name == "delimiter" => delimiter = delimiter_of(value)?,
                (None, _) => return Err(format!("{name}: there is no such column; give {names}")),
            }
        }
        let [time, key, size, key_size, value_size, op, ttl] = found;
        let key = key.ok_or("a trace needs at least the column key")?;
        if size.is_some() && value_size.is_some() {
            return Err("size is that of the whole object: give size, or key_size and value_size".to_owned());
        }
        Ok(Self { delimiter, key, time, size, key_size, value_size, op, ttl })
    }
}

fn delimiter_of(text: &str) -> Result<u8, String> {
    match text {
        "tab" => Ok(b'\t'),
        "space" => Ok(b' '),
        "semicolon" => Ok(b';'),
        _ => Err(format!("delimiter {text}: give tab, space or semicolon; a comma is the default")),
    }
}

impl ColumnMap {
    /// The request of a line, and the text of its key. A key that is a number is its own id.
    pub(super) fn parse<'line>(&self, line: &'line [u8]) -> Result<(Request, &'line [u8]), Fault> {
        let mut cells = [None; MAX_COLUMNS];
        let row = line.split(|&byte| byte == self.delimiter);
        cells.iter_mut().zip(row).for_each(|(cell, text)| *cell = Some(text.trim_ascii()));
        let cell = |column: usize| cells[column].ok_or_else(|| format!("no column {}", column + 1));
        let size = |column: Option<usize>, name: &str| column.map(|at| text::size(cell(at)?, name)).transpose();
        let key = cell(self.key)?;
        let (key_size, value_size) = match (size(self.size, "size")?, size(self.key_size, "key_size")?) {
            (Some(size), key_size) => {
                let key_size = key_size.unwrap_or(FULL_WIDTH).min(size);
                (key_size, size - key_size)
            }
            (None, key_size) => {
                let key_size = key_size.unwrap_or(u32::try_from(key.len()).unwrap_or(u32::MAX));
                (key_size, size(self.value_size, "value_size")?.unwrap_or(0))
            }
        };
        let request = Request {
            // Fractions of a second are cut off.
            time_seconds: match self.time {
                Some(at) => text::number(cell(at)?.split(|&byte| byte == b'.').next().unwrap_or_default(), "time")?,
                None => 0,
            },
            key: text::number(key, "key").or_else(|_| text::hash_key(key))?,
            key_size,
            value_size,
            op: self.op.map_or(Ok(Op::Get), |at| operation(cell(at)?))?,
            ttl_seconds: self.ttl.map_or(Ok(0), |at| text::ttl_seconds(cell(at)?))?,
        };
        Ok((request, key))
    }
}

/// Also the operations of block traces.
fn operation(name: &[u8]) -> Result<Op, Fault> {
    match name.to_ascii_lowercase().as_slice() {
        b"read" | b"r" => Ok(Op::Get),
        b"write" | b"w" => Ok(Op::Set),
        _ => text::operation(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_where_they_are_said_to_be() {
        let map: ColumnMap = "key=2,time=1,value_size=4,key_size=3,op=5,ttl=6".parse().unwrap();
        let (request, key) = map.parse(b"12.75,user:1,6,300,SET,60").unwrap();
        assert_eq!((request.time_seconds, key), (12, &b"user:1"[..]));
        assert_eq!((request.key_size, request.value_size, request.op), (6, 300, Op::Set));
        assert_eq!(request.ttl_seconds, 60);
        let spaced: ColumnMap = "key=1,size=2,op=3,delimiter=space".parse().unwrap();
        let (request, _) = spaced.parse(b"77 4096 W").unwrap();
        assert_eq!((request.key, request.key_size + request.value_size, request.op), (77, 4096, Op::Set));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("time=1", "the column key"),
            ("key", "NAME=POSITION"),
            ("key=0", "from 1 to"),
            ("key=1,frob=2", "frob"),
            ("key=1,delimiter=x", "tab"),
            ("key=1,size=2,value_size=3", "whole object"),
        ] {
            let error = text.parse::<ColumnMap>().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let map: ColumnMap = "key=1,size=9".parse().unwrap();
        assert!(map.parse(b"1,2").unwrap_err().contains("no column 9"));
    }
}
