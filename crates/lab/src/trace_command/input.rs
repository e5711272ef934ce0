use std::path::Path;

use ebbtide::message;

use crate::Error;
use crate::trace::{ColumnMap, Format, LabelBy, Request, TraceReader};

/// Malformed lines that are reported one by one; the rest is only counted.
const REPORTED_LINES: u64 = 10;

/// How a trace is read.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct InputArgs {
    /// Format of the trace [default: told from the content]
    #[arg(long)]
    format: Option<Format>,
    /// Columns of a text trace in no known format, from 1: time, key, size (of the whole object) or key_size and
    /// value_size, op, ttl; delimiter=tab, space or semicolon where it is no comma
    #[arg(long, value_name = "NAME=N,...", conflicts_with = "format")]
    columns: Option<ColumnMap>,
    /// Refuse a trace with a malformed line instead of skipping the line
    #[arg(long)]
    strict: bool,
}

/// A trace that is read.
pub(super) struct Source {
    reader: TraceReader,
    strict: bool,
    has_labels: bool,
    read: u64,
    malformed: u64,
    has_ended: bool,
}

impl Source {
    pub(super) fn open(path: &Path, args: &InputArgs) -> Result<Self, Error> {
        let mut reader = match &args.columns {
            Some(columns) => TraceReader::open_columns(path, columns)?,
            None => TraceReader::open(path, args.format)?,
        };
        let has_labels = reader.has_pools() && reader.label_by(LabelBy::Pool).is_ok();
        Ok(Self { reader, strict: args.strict, has_labels, read: 0, malformed: 0, has_ended: false })
    }

    /// Labels requests by something else than their pool.
    pub(super) fn label_by(&mut self, by: LabelBy, option: &'static str, value: &str) -> Result<(), Error> {
        let refused = |reason| Error::Configuration { option, value: value.to_owned(), reason };
        self.reader.label_by(by).map_err(refused)
    }

    /// The next request; a malformed line is skipped and reported, or an error under `--strict`. Ends: every turn reads
    /// a line.
    pub(super) fn next(&mut self) -> Result<Option<Request>, Error> {
        loop {
            match self.reader.next_request() {
                Ok(request) => {
                    self.read += u64::from(request.is_some());
                    self.has_ended = request.is_none();
                    return Ok(request);
                }
                Err(error @ Error::Malformed { .. }) if !self.strict => {
                    self.malformed += 1;
                    if self.malformed <= REPORTED_LINES {
                        message!("{error}; skipped");
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn has_pools(&self) -> bool {
        self.has_labels
    }

    /// The trace holds one key in this number.
    pub(super) fn sample(&self) -> u32 {
        self.reader.sample()
    }

    /// The pool of the request that was read last; empty if the trace has none.
    pub(super) fn pool(&self) -> &str {
        if self.has_labels { self.label() } else { "" }
    }

    /// The label of the request that was read last.
    pub(super) fn label(&self) -> &str {
        self.reader.label_names().get(self.reader.label() as usize).map_or("", String::as_str)
    }

    /// Refuses a trace that was read to its end without a request.
    pub(super) fn check_has_requests(&self) -> Result<(), Error> {
        if !self.has_ended || self.read > 0 {
            return Ok(());
        }
        let (trace, format) = (self.name().to_owned(), self.reader.format_name());
        Err(Error::NoRequests { trace, format, malformed: self.malformed })
    }

    pub(super) fn requests_read(&self) -> u64 {
        self.read
    }

    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }

    pub(super) fn name(&self) -> &str {
        self.reader.name()
    }
}
