//! A trace as a stream of requests: decompressed, its format detected by the content, its lines or records decoded.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::captured_server::CapturedServer;
use super::columns::ColumnMap;
use super::compression::{Input, decompressed, peek};
use super::format::first_line;
use super::kvcache::{Columns, KvcacheDecoder};
use super::labels::{LabelBy, Labels, PoolRules};
use super::lines::{Lines, MAX_LINE, TraceLine};
use super::oracle;
use super::records::{RecordFormat, Records};
use super::signature;
use super::text::{self, CsvHeader, Fault};
use super::{Format, Request};
use crate::Error;

const BUFFER: usize = 256 << 10;
/// The name of a trace that is standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// Text before N in the first comment of a captured trace that holds one key of N.
pub(crate) const SAMPLE_MARK: &str = "sample=";

/// A stream of requests out of a trace.
pub struct TraceReader {
    trace: String,
    /// Bytes of the file, and those read of it; none for standard input.
    length: u64,
    position: Arc<AtomicU64>,
    sample: u32,
    format: Format,
    decoder: Decoder,
    labels: Option<Labels>,
    /// Answer of the captured server to the request that was read last.
    found: Option<bool>,
    server: Option<CapturedServer>,
}

enum Decoder {
    Csv(Lines<BufReader<Input>>, CsvHeader),
    Twitter(Lines<BufReader<Input>>),
    Kvcache(Lines<BufReader<Input>>, KvcacheDecoder),
    Columns(Lines<BufReader<Input>>, ColumnMap),
    Records(Records<BufReader<Input>>),
}

impl TraceReader {
    /// Opens a trace file, plain or compressed with zstd or gzip; `-` is standard input. Without a `format` it is
    /// detected by the content.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, Error> {
        if path == Path::new(STANDARD_INPUT) {
            return Self::from_read("standard input".into(), Box::new(io::stdin()), format);
        }
        let trace = path.display().to_string();
        match File::open(path) {
            Ok(file) => {
                let length = file.metadata().map_or(0, |metadata| metadata.len());
                let position = Arc::new(AtomicU64::new(0));
                let counted = Counted { file, position: Arc::clone(&position) };
                Ok(Self { length, position, ..Self::from_read(trace, Box::new(counted), format)? })
            }
            Err(source) => Err(Error::Read { trace, source }),
        }
    }

    /// Reads a trace out of any stream; `trace` names it in errors.
    ///
    /// # Errors
    /// [`Error::NotATrace`] for a file of another kind, [`Error::UnknownFormat`] if no format fits its beginning,
    /// [`Error::Configuration`] if the beginning cannot be of the `format` that is given.
    pub fn from_read(trace: String, input: Input, format: Option<Format>) -> Result<Self, Error> {
        let failed = |source| Error::Read { trace: trace.clone(), source };
        let (start, input) = decompressed(input).and_then(|input| peek(input, MAX_LINE)).map_err(failed)?;
        // Numbers of a record may begin like a file of another kind.
        let fault = match format {
            Some(Format::OracleGeneral) => oracle::check_plausible(&start).err(),
            _ => None,
        };
        let is_taken = format == Some(Format::OracleGeneral) && fault.is_none();
        if let Some(foreign) = signature::foreign(&start).filter(|_| !is_taken) {
            return Err(Error::NotATrace { trace, what: foreign.what, remedy: foreign.remedy });
        }
        if let Some(fault) = fault {
            let (option, value) = ("--format", Format::OracleGeneral.name().to_owned());
            return Err(Error::Configuration { option, value, reason: format!("{trace}: {fault}") });
        }
        let format = match format.map_or_else(|| Format::detect(&start), Ok) {
            Ok(format) => format,
            Err(reason) => return Err(Error::UnknownFormat { trace, reason }),
        };
        let layout = match format {
            Format::Lcs => Some(RecordFormat::lcs(&start)),
            Format::Vscsi => Some(RecordFormat::vscsi(&start)),
            Format::OracleGeneral => Some(Ok(RecordFormat::Oracle)),
            Format::Csv | Format::Twitter | Format::Kvcache => None,
        };
        let layout = layout.transpose().map_err(|reason| Error::UnknownFormat { trace: trace.clone(), reason })?;
        let input = BufReader::with_capacity(BUFFER, input);
        let decoder = match layout {
            Some(layout) => Decoder::of_records(layout, input),
            None => Decoder::of_lines(format, &start, input),
        };
        let decoder = decoder.map_err(failed)?;
        let (length, position) = (0, Arc::default());
        let (sample, server) = (sample_of(&start), CapturedServer::of_comment(first_comment(&start)));
        Ok(Self { trace, length, position, sample, format, decoder, labels: None, found: None, server })
    }

    /// Opens a text trace of other columns. A first line that is no request is taken for a header.
    ///
    /// # Errors
    /// [`Error::NotATrace`] for a file of another kind, and for one that is no text.
    pub(crate) fn open_columns(path: &Path, columns: &ColumnMap) -> Result<Self, Error> {
        let (trace, input): (String, Input) = if path == Path::new(STANDARD_INPUT) {
            ("standard input".into(), Box::new(io::stdin()))
        } else {
            let trace = path.display().to_string();
            let file = File::open(path).map_err(|source| Error::Read { trace: trace.clone(), source })?;
            (trace, Box::new(file))
        };
        let failed = |source| Error::Read { trace: trace.clone(), source };
        let (start, input) = decompressed(input).and_then(|input| peek(input, MAX_LINE)).map_err(failed)?;
        if let Some(foreign) = signature::foreign(&start).or_else(|| signature::binary(&start)) {
            return Err(Error::NotATrace { trace, what: foreign.what, remedy: foreign.remedy });
        }
        let has_header = columns.parse(&first_line(&start)).is_err();
        let lines = lines_after(BufReader::with_capacity(BUFFER, input), has_header).map_err(failed)?;
        let decoder = Decoder::Columns(lines, columns.clone());
        let (length, position) = (0, Arc::default());
        let (sample, format) = (sample_of(&start), Format::Csv);
        Ok(Self { sample, trace, length, position, format, decoder, labels: None, found: None, server: None })
    }

    /// Whether a csv trace has the column `pool`.
    pub(crate) fn has_pools(&self) -> bool {
        matches!(&self.decoder, Decoder::Csv(_, header) if header.has_pool)
    }

    /// The format that the trace is read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The name of that format in messages.
    pub(crate) fn format_name(&self) -> &'static str {
        if matches!(self.decoder, Decoder::Columns(..)) { "text with these --columns" } else { self.format.name() }
    }

    /// Bytes of the file; 0 if that is not known.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Number of bytes read from the file, ahead of the returned requests.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// The trace holds one key in this number, as the first comment of a captured trace says; 1 for any other trace.
    pub(crate) fn sample(&self) -> u32 {
        self.sample
    }

    /// The server of a captured trace, as the first comment describes it.
    pub(crate) fn server(&self) -> Option<CapturedServer> {
        self.server
    }

    /// Whether the captured server had the object of the request that was read last; `None` if the trace does not say.
    pub(crate) fn found(&self) -> Option<bool> {
        self.found
    }

    /// The name of the trace in errors.
    pub(crate) fn name(&self) -> &str {
        &self.trace
    }

    /// Labels the requests that follow.
    ///
    /// # Errors
    /// The reason, if the trace has no such label.
    pub fn label_by(&mut self, by: LabelBy) -> Result<(), String> {
        self.labels = Some(Labels::new(by, self.format, self.has_pools())?);
        Ok(())
    }

    /// Labels the requests that follow by pool: the one that their row names, or the one that claims the longest
    /// prefix of their key.
    ///
    /// # Errors
    /// The reason, if the trace has no pools.
    pub(crate) fn label_by_pools(&mut self, rules: PoolRules) -> Result<(), String> {
        self.labels = Some(Labels::of_pools(rules, self.format, self.has_pools())?);
        Ok(())
    }

    /// The label of the request that was read last, an index into [`Self::label_names`]; 0 without labels.
    pub fn label(&self) -> u32 {
        self.labels.as_ref().map_or(0, Labels::last)
    }

    /// The names of the labels so far.
    pub fn label_names(&self) -> &[String] {
        self.labels.as_ref().map_or(&[], Labels::names)
    }

    /// The next request, or `None` at the end. After [`Error::Malformed`] the next call reads the next line; every
    /// other error is final.
    pub fn next_request(&mut self) -> Result<Option<Request>, Error> {
        let (labels, found) = (&mut self.labels, &mut self.found);
        let (result, line) = match &mut self.decoder {
            Decoder::Csv(lines, header) => next_line(lines, labels, |line| {
                let (columns, answer) = text::without_found(line, *header)?;
                *found = answer;
                text::parse_csv(columns, *header)
            }),
            Decoder::Twitter(lines) => next_line(lines, labels, text::parse_twitter),
            Decoder::Kvcache(lines, rows) => match rows.repeat() {
                Some(request) => return Ok(Some(request)),
                None => next_line(lines, labels, |line| rows.parse(line)),
            },
            Decoder::Columns(lines, columns) => next_line(lines, labels, |line| columns.parse(line)),
            Decoder::Records(records) => (records.next(), records.number()),
        };
        match result {
            Ok(None) => Ok(None),
            Ok(Some(Ok(request))) => Ok(Some(request)),
            Ok(Some(Err(reason))) => Err(Error::Malformed { trace: self.trace.clone(), line, reason }),
            Err(source) => Err(Error::Read { trace: self.trace.clone(), source }),
        }
    }
}

impl Decoder {
    /// Of binary records, after their header.
    fn of_records(layout: RecordFormat, mut input: BufReader<Input>) -> io::Result<Self> {
        io::copy(&mut input.by_ref().take(layout.header_size() as u64), &mut io::sink())?;
        Ok(Self::Records(Records::new(input, layout)))
    }

    /// Of lines, after their header.
    fn of_lines(format: Format, start: &[u8], input: BufReader<Input>) -> io::Result<Self> {
        let first = first_line(start);
        Ok(match format {
            Format::Csv => {
                let header = text::csv_header(&first);
                Self::Csv(lines_after(input, header.is_some())?, header.unwrap_or_default())
            }
            Format::Twitter => Self::Twitter(lines_after(input, text::is_twitter_header(&first))?),
            Format::Kvcache => {
                let columns = Columns::from_header(&first);
                Self::Kvcache(lines_after(input, columns.is_some())?, KvcacheDecoder::new(columns))
            }
            Format::OracleGeneral | Format::Lcs | Format::Vscsi => unreachable!("records are no lines"),
        })
    }
}

/// A file that counts the bytes read from it.
struct Counted {
    file: File,
    position: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.position.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// The text of a first line that is a comment.
fn first_comment(start: &[u8]) -> &str {
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.strip_prefix(b"#").and_then(|comment| std::str::from_utf8(comment).ok()).unwrap_or_default()
}

/// N of a first line `# ... sample=N ...`.
fn sample_of(start: &[u8]) -> u32 {
    let words = first_comment(start).split_whitespace();
    let number = words.filter_map(|word| word.strip_prefix(SAMPLE_MARK)?.parse().ok()).next();
    number.filter(|&number| number > 0).unwrap_or(1)
}

type Parsed = (io::Result<Option<Result<Request, Fault>>>, u64);

/// `parse` gives a request and the text of its label.
fn next_line(
    lines: &mut Lines<BufReader<Input>>,
    labels: &mut Option<Labels>,
    parse: impl FnOnce(&[u8]) -> Result<(Request, &[u8]), Fault>,
) -> Parsed {
    let parsed = lines.next().map(|line| match line {
        TraceLine::Text(text) => Some(parse(text).map(|(request, label)| {
            if let Some(labels) = labels {
                labels.note(label);
            }
            request
        })),
        TraceLine::TooLong => Some(Err(format!("longer than {MAX_LINE} bytes"))),
        TraceLine::End => None,
    });
    (parsed, lines.number())
}

/// The lines behind the first one if that is a header, else all.
fn lines_after(input: BufReader<Input>, header: bool) -> io::Result<Lines<BufReader<Input>>> {
    let mut lines = Lines::new(input);
    if header {
        lines.next()?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind of file that `--columns` names in its refusal; `None` if it accepts the file.
    fn refusal(content: &[u8]) -> Option<&'static str> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let columns: ColumnMap = "key=1".parse().unwrap();
        match TraceReader::open_columns(file.path(), &columns) {
            Ok(_) => None,
            Err(Error::NotATrace { what, .. }) => Some(what),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn files_that_are_no_traces_are_refused() {
        let gzip = |plain: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::Write::write_all(&mut encoder, plain).unwrap();
            encoder.finish().unwrap()
        };
        let program = std::fs::read("/bin/true").unwrap();
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        for (content, what) in [
            (gzip(&program), Some("a program (ELF)")),
            (program, Some("a program (ELF)")),
            (b"PK\x03\x04\x14".to_vec(), Some("a zip archive")),
            (gzip(&gzip(b"key\n1\n")), Some("an archive within an archive")),
            (utf16("\u{FEFF}key\n1\n"), Some("text in UTF-16")),
            (utf16("key\n1\n"), Some("a binary file")),
            (gzip(b"key\n1\n"), None),
            (b"key\n1\n".to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(refusal(&content), what, "{:?}", &content[..content.len().min(20)]);
        }
    }

    #[test]
    fn a_comment_before_the_header_says_the_sample() {
        for (first, sample) in [
            ("# one key in 4: sample=4", 4),
            ("# one key of so many: sample=4", 4),
            ("# ebbtide capture: sample=10 seconds=60", 10),
            ("# one key in 4", 1),
            ("# sample=0", 1),
            ("sample=4", 1),
        ] {
            assert_eq!(sample_of(format!("{first}\ntime,key\n").as_bytes()), sample, "{first}");
        }
    }
}
