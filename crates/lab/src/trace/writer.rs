//! Traces as files of any format that is written.

use std::collections::HashMap;
use std::io::{self, Write};

use super::oracle;
use super::reader::SAMPLE_MARK;
use super::text::{CSV_HEADER, write_csv_line};
use super::{Op, Request};

/// What stands for no further request of the key.
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
}

/// Writes requests one after the other.
pub(crate) struct TraceWriter<W> {
    out: W,
    format: OutputFormat,
    has_pool: bool,
    /// Those of oracleGeneral, each with the position of the next one of its key.
    held: Vec<(Request, i64)>,
    last_of_key: HashMap<u64, usize>,
    written: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header. `sample`: the trace holds one key of so many.
    pub(crate) fn new(mut out: W, format: OutputFormat, has_pool: bool, sample: u32) -> io::Result<Self> {
        match format {
            OutputFormat::Csv => {
                if sample > 1 {
                    writeln!(out, "# one key of so many: {SAMPLE_MARK}{sample}")?;
                }
                out.write_all(CSV_HEADER)?;
                out.write_all(if has_pool { b",pool\n" } else { b"\n" })?;
            }
            OutputFormat::Kvcache => writeln!(out, "op_time,key,key_size,op,op_count,size,cache_hits,ttl")?,
            OutputFormat::Twitter | OutputFormat::OracleGeneral => {}
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
            OutputFormat::OracleGeneral if *op == Op::Delete => {
                self.written -= 1;
                Ok(())
            }
            OutputFormat::OracleGeneral => {
                let position = self.held.len();
                if let Some(before) = self.last_of_key.insert(*key, position) {
                    self.held[before].1 = position as i64;
                }
                self.held.push((*request, NEVER));
                Ok(())
            }
        }
    }

    /// Writes what was held. Answers the stream and the requests in it.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        for (request, next) in &self.held {
            self.out.write_all(&oracle::encode(request, *next))?;
        }
        Ok((self.out, self.written))
    }
}
