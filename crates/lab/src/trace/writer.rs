//! Traces as files of any format that is written.

use std::collections::HashMap;
use std::io::{self, Write};

use super::reader::SAMPLE_MARK;
use super::text::{CSV_HEADER, write_csv_line};
use super::{Op, Request};
use super::{encode, oracle};

/// Time of the next request if the key has none.
const NEVER: i64 = -1;

/// The formats that traces are converted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// Header `timestamp_s,key_id,key_size,value_size,op,ttl_s`, with `,pool` if the trace has pools.
    #[default]
    Csv,
    /// Twitter's cluster traces; a key is the number of its id.
    Twitter,
    /// CacheLib's kvcache traces; a key is the number of its id.
    Kvcache,
    /// libCacheSim's oracleGeneral: no operations, no TTLs, no deletes; the whole trace is held in memory.
    #[value(alias = "oracleGeneral", alias = "oracle")]
    OracleGeneral,
    /// libCacheSim's lcs, version 3: operations and TTLs; the whole trace is held in memory.
    Lcs,
    /// libCacheSim's vscsi, version 1: reads and writes, no TTLs, no deletes.
    Vscsi,
}

/// Writes requests one after the other.
pub(crate) struct TraceWriter<W> {
    out: W,
    format: OutputFormat,
    has_pool: bool,
    /// Requests of oracleGeneral and lcs, each with the position of the next request of its key.
    held: Vec<(Request, i64)>,
    last_of_key: HashMap<u64, usize>,
    written: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header. The trace holds one key in `sample`.
    pub(crate) fn new(mut out: W, format: OutputFormat, has_pool: bool, sample: u32) -> io::Result<Self> {
        match format {
            OutputFormat::Csv => {
                if sample > 1 {
                    writeln!(out, "# one key in {sample}: {SAMPLE_MARK}{sample}")?;
                }
                out.write_all(CSV_HEADER)?;
                out.write_all(if has_pool { b",pool\n" } else { b"\n" })?;
            }
            OutputFormat::Kvcache => writeln!(out, "op_time,key,key_size,op,op_count,size,cache_hits,ttl")?,
            OutputFormat::Twitter | OutputFormat::OracleGeneral | OutputFormat::Lcs | OutputFormat::Vscsi => {}
        }
        Ok(Self { out, format, has_pool, held: Vec::new(), last_of_key: HashMap::new(), written: 0 })
    }

    /// Adds a request; `pool` counts where the trace has pools.
    pub(crate) fn write(&mut self, request: &Request, pool: &str) -> io::Result<()> {
        let Request { time_seconds, key, key_size, value_size, op, ttl_seconds } = request;
        self.written += 1;
        match self.format {
            OutputFormat::Csv => write_csv_line(request, self.has_pool.then_some(pool), &mut self.out),
            OutputFormat::Twitter => {
                let op = op.name();
                writeln!(self.out, "{time_seconds},{key},{key_size},{value_size},0,{op},{ttl_seconds}")
            }
            OutputFormat::Kvcache => {
                let op = op.name().to_ascii_uppercase();
                writeln!(self.out, "{time_seconds},{key},{key_size},{op},1,{value_size},0,{ttl_seconds}")
            }
            OutputFormat::OracleGeneral | OutputFormat::Vscsi if *op == Op::Delete => {
                self.written -= 1;
                Ok(())
            }
            OutputFormat::Vscsi => self.out.write_all(&encode::vscsi_record(request, self.written - 1)),
            OutputFormat::OracleGeneral | OutputFormat::Lcs => {
                let position = self.held.len();
                if let Some(before) = self.last_of_key.insert(*key, position) {
                    self.held[before].1 = position as i64;
                }
                self.held.push((*request, NEVER));
                Ok(())
            }
        }
    }

    /// Writes the held requests. Returns the stream and the number of requests in it.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        if self.format == OutputFormat::Lcs {
            self.out.write_all(&encode::lcs_header(self.held.iter().map(|(request, _)| request)))?;
        }
        for (request, next) in &self.held {
            match self.format {
                OutputFormat::Lcs => self.out.write_all(&encode::lcs_record(request, *next))?,
                _ => self.out.write_all(&oracle::encode(request, *next))?,
            }
        }
        Ok((self.out, self.written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Format, TraceReader};

    /// The requests of a trace that was written in this format, and the format that it is read as.
    fn read_back(format: OutputFormat, trace: &[Request]) -> (Format, Vec<Request>) {
        let mut writer = TraceWriter::new(Vec::new(), format, false, 1).unwrap();
        trace.iter().for_each(|request| writer.write(request, "").unwrap());
        let (bytes, written) = writer.finish().unwrap();
        let mut reader = TraceReader::from_read("x".into(), Box::new(io::Cursor::new(bytes)), None).unwrap();
        let found: Vec<Request> = std::iter::from_fn(|| reader.next_request().unwrap()).collect();
        assert_eq!(written, found.len() as u64);
        (reader.format(), found)
    }

    #[test]
    fn binary_traces_are_read_as_they_were_written() {
        let ops = ["get", "gets", "set", "add", "cas", "replace", "append", "prepend", "delete", "incr", "decr"];
        let request = |(number, name): (u64, &&str)| Request {
            time_seconds: 100 + number,
            key: number % 4,
            // Length of the keys that a reader gives objects of a single size.
            key_size: crate::keys::FULL_WIDTH,
            value_size: 300 + number as u32,
            op: Op::from_name(name.as_bytes()).unwrap(),
            ttl_seconds: 60 * number as u32,
        };
        let trace: Vec<Request> = (0..).zip(&ops).map(request).collect();
        assert_eq!(read_back(OutputFormat::Lcs, &trace), (Format::Lcs, trace.clone()));
        // vscsi has only reads and writes.
        let op = |op| if matches!(op, Op::Get | Op::Gets) { Op::Get } else { Op::Set };
        let blocks = trace.iter().filter(|request| request.op != Op::Delete);
        let blocks = blocks.map(|request| Request { op: op(request.op), ttl_seconds: 0, ..*request }).collect();
        assert_eq!(read_back(OutputFormat::Vscsi, &trace), (Format::Vscsi, blocks));
    }
}
