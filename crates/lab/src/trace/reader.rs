use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use super::kvcache::{Columns, KvcacheDecoder};
use super::lines::{Line, Lines, MAX_LINE};
use super::oracle::{self, Record};
use super::text::{self, Fault};
use super::{Format, Request};
use crate::Error;

const BUFFER: usize = 256 << 10;
/// zstd frames, and the skippable frames that some compressors put first.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const SKIPPABLE_MAGIC: [u8; 3] = [0x2A, 0x4D, 0x18];

type Input = BufReader<Box<dyn Read + Send>>;

/// A stream of requests out of a trace.
pub struct TraceReader {
    trace: String,
    format: Format,
    decoder: Decoder,
}

enum Decoder {
    Csv(Lines<Input>),
    Twitter(Lines<Input>),
    Kvcache(Lines<Input>, KvcacheDecoder),
    OracleGeneral { input: Input, records: u64 },
}

impl TraceReader {
    /// Opens a trace file, plain or compressed with zstd. Without a `format` it is told from the content.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, Error> {
        let trace = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::from_read(trace, Box::new(file), format),
            Err(source) => Err(Error::Read { trace, source }),
        }
    }

    /// Reads a trace out of any stream; `trace` names it in errors.
    pub fn from_read(trace: String, input: Box<dyn Read + Send>, format: Option<Format>) -> Result<Self, Error> {
        Self::decide(&trace, input, format)
            .map_err(|source| Error::Read { trace: trace.clone(), source })?
            .map_err(|reason| Error::UnknownFormat { trace, reason })
    }

    fn decide(trace: &str, input: Box<dyn Read + Send>, format: Option<Format>) -> io::Result<Result<Self, String>> {
        let (start, input) = peek(decompressed(input)?, MAX_LINE)?;
        let format = match format.map_or_else(|| Format::detect(&start), Ok) {
            Ok(format) => format,
            Err(reason) => return Ok(Err(reason)),
        };
        let input: Input = BufReader::with_capacity(BUFFER, input);
        let first = start.split(|&byte| byte == b'\n').next();
        let first = first.unwrap_or_default().trim_ascii_end();
        let decoder = match format {
            Format::Csv => Decoder::Csv(lines_after(input, first == text::CSV_HEADER)?),
            Format::Twitter => Decoder::Twitter(Lines::new(input)),
            Format::Kvcache => {
                let columns = Columns::from_header(first);
                let lines = lines_after(input, columns.is_some())?;
                Decoder::Kvcache(lines, KvcacheDecoder::new(columns))
            }
            Format::OracleGeneral => Decoder::OracleGeneral { input, records: 0 },
        };
        Ok(Ok(Self { trace: trace.to_string(), format, decoder }))
    }

    /// The format that the trace is read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The next request, or `None` at the end. After [`Error::Malformed`] the next call reads the next line; every
    /// other error is final.
    pub fn next_request(&mut self) -> Result<Option<Request>, Error> {
        let (result, line) = match &mut self.decoder {
            Decoder::Csv(lines) => next_line(lines, text::parse_csv),
            Decoder::Twitter(lines) => next_line(lines, text::parse_twitter),
            Decoder::Kvcache(lines, rows) => match rows.repeat() {
                Some(request) => return Ok(Some(request)),
                None => next_line(lines, |line| rows.parse(line)),
            },
            Decoder::OracleGeneral { input, records } => next_record(input, records),
        };
        match result {
            Ok(None) => Ok(None),
            Ok(Some(Ok(request))) => Ok(Some(request)),
            Ok(Some(Err(reason))) => Err(Error::Malformed { trace: self.trace.clone(), line, reason }),
            Err(source) => Err(Error::Read { trace: self.trace.clone(), source }),
        }
    }
}

type Parsed = (io::Result<Option<Result<Request, Fault>>>, u64);

fn next_line(lines: &mut Lines<Input>, parse: impl FnOnce(&[u8]) -> Result<Request, Fault>) -> Parsed {
    let parsed = lines.next().map(|line| match line {
        Line::Text(text) => Some(parse(text)),
        Line::TooLong => Some(Err(format!("longer than {MAX_LINE} bytes"))),
        Line::End => None,
    });
    (parsed, lines.number())
}

fn next_record(input: &mut Input, records: &mut u64) -> Parsed {
    let parsed = oracle::read_record(input).map(|record| {
        *records += 1;
        match record {
            Record::Request(request) => Some(Ok(request)),
            Record::Truncated(bytes) => {
                Some(Err(format!("the file ends after {bytes} of {} bytes", oracle::RECORD_SIZE)))
            }
            Record::End => None,
        }
    });
    (parsed, *records)
}

fn lines_after(input: Input, header: bool) -> io::Result<Lines<Input>> {
    let mut lines = Lines::new(input);
    if header {
        lines.next()?;
    }
    Ok(lines)
}

fn decompressed(input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let (magic, input) = peek(input, ZSTD_MAGIC.len())?;
    let skippable = magic.len() == 4 && magic[0] & 0xF0 == 0x50 && magic[1..] == SKIPPABLE_MAGIC;
    if magic != ZSTD_MAGIC && !skippable {
        return Ok(input);
    }
    let mut decoder = zstd::stream::read::Decoder::new(input)?;
    // Archives are often made with `--long`; the window is only as large as the file asks for.
    decoder.window_log_max(31)?;
    Ok(Box::new(decoder))
}

/// The first `length` bytes (fewer if the stream is shorter), and the stream as if they had not been read.
fn peek(mut input: Box<dyn Read + Send>, length: usize) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut start = Vec::new();
    input.by_ref().take(length as u64).read_to_end(&mut start)?;
    let whole = Box::new(Cursor::new(start.clone()).chain(input));
    Ok((start, whole))
}
