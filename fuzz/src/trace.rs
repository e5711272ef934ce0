//! The trace readers: whatever the file holds and however the system cuts it into reads, they come to its end or go on
//! as it says, read the same requests, and number the lines they refuse in order.

use std::io::{self, Read};

use ebbtide_lab::Error;
use ebbtide_lab::trace::{Format, Request, TraceReader};

use crate::split::cuts;

/// One row of a trace may stand for any number of requests.
const ENOUGH: usize = 4096;

/// Results of reading a trace, in order.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Request(Request),
    Refused { line: u64, reason: String },
    Failed(String),
}

pub fn check(input: &[u8]) {
    let forced = [Format::Csv, Format::Twitter, Format::Kvcache, Format::OracleGeneral];
    for format in std::iter::once(None).chain(forced.map(Some)) {
        let whole = read(input, format, vec![input.len()]);
        let pieces = read(input, format, cuts(input));
        assert_eq!(whole, pieces, "the cuts make a difference");
        assert_in_order(&whole);
    }
}

fn assert_in_order(out: &[Out]) {
    let mut before = 0;
    for out in out {
        if let Out::Refused { line, .. } = out {
            assert!(*line > before, "line {line} is refused behind line {before}");
            before = *line;
        }
    }
}

fn read(input: &[u8], format: Option<Format>, ends: Vec<usize>) -> Vec<Out> {
    let stream = Pieces { input: input.to_vec(), at: 0, ends };
    let mut reader = match TraceReader::from_read("fuzz".into(), Box::new(stream), format) {
        Ok(reader) => reader,
        Err(error) => return vec![Out::Failed(error.to_string())],
    };
    let mut out = Vec::new();
    while out.len() < ENOUGH {
        match reader.next_request() {
            Ok(Some(request)) => out.push(Out::Request(request)),
            Ok(None) => break,
            Err(Error::Malformed { line, reason, .. }) => out.push(Out::Refused { line, reason }),
            Err(error) => {
                out.push(Out::Failed(error.to_string()));
                break;
            }
        }
    }
    out
}

/// A file that is read in pieces.
struct Pieces {
    input: Vec<u8>,
    at: usize,
    ends: Vec<usize>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.ends.iter().copied().find(|&end| end > self.at).unwrap_or(self.at);
        let length = (end - self.at).min(buffer.len());
        buffer[..length].copy_from_slice(&self.input[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}
