//! Files that commands write, compressed by their name; `-` is standard output.
//!
//! A trace that is captured or made of others is never replaced unless that is asked for. A report can be made again
//! from its trace, and a generated trace from its seed: they are replaced, and a line on standard error says so. An
//! empty file is not worth a word.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;

use super::STANDARD_INPUT;
use crate::Error;

const BUFFER: usize = 1 << 20;
const ZSTD_LEVEL: i32 = 3;

/// A stream to a file or to standard output. Call [`Output::finish`]: compressed files have an end.
pub(crate) enum Output {
    Plain(BufWriter<Sink>),
    Gzip(BufWriter<GzEncoder<Sink>>),
    Zstd(BufWriter<zstd::stream::write::Encoder<'static, Sink>>),
}

type Sink = Box<dyn Write>;

impl Output {
    /// Opens the file, compressed if it is named `.zst` or `.gz`; `-` is standard output, not compressed.
    ///
    /// # Errors
    /// [`Error::Exists`] for a file that is there, unless `overwrite`. Devices and pipes are written to.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<Self, Error> {
        if path == Path::new(STANDARD_INPUT) {
            let sink: Sink = Box::new(io::stdout());
            return Ok(Self::Plain(BufWriter::new(sink)));
        }
        let name = path.display().to_string();
        let failed = |source| Error::Write { trace: name.clone(), source };
        let sink: Sink = Box::new(new_file(path, overwrite)?);
        Ok(match path.extension().and_then(|extension| extension.to_str()) {
            Some("zst") => {
                let encoder = zstd::stream::write::Encoder::new(sink, ZSTD_LEVEL).map_err(failed)?;
                Self::Zstd(BufWriter::with_capacity(BUFFER, encoder))
            }
            Some("gz") => {
                Self::Gzip(BufWriter::with_capacity(BUFFER, GzEncoder::new(sink, flate2::Compression::default())))
            }
            _ => Self::Plain(BufWriter::with_capacity(BUFFER, sink)),
        })
    }

    /// Writes what is left, and the end of a compressed stream.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut plain) => plain.flush(),
            Self::Gzip(gzip) => {
                let encoder = gzip.into_inner().map_err(io::IntoInnerError::into_error)?;
                encoder.finish().and_then(|mut sink| sink.flush())
            }
            Self::Zstd(zstd) => {
                let encoder = zstd.into_inner().map_err(io::IntoInnerError::into_error)?;
                encoder.finish().and_then(|mut sink| sink.flush())
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Gzip(stream) => stream.write(bytes),
            Self::Zstd(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Gzip(stream) => stream.flush(),
            Self::Zstd(stream) => stream.flush(),
        }
    }
}

/// Creates a file. One that holds data is replaced only if `overwrite`; what is no regular file is opened as it is.
pub(crate) fn new_file(path: &Path, overwrite: bool) -> Result<File, Error> {
    let name = || path.display().to_string();
    let is_special = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    let mut options = OpenOptions::new();
    options.write(true);
    match (is_special, overwrite || is_empty(path)) {
        (true, _) => &mut options,
        (false, true) => options.create(true).truncate(true),
        (false, false) => options.create_new(true),
    };
    options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: name() },
        _ => Error::Write { trace: name(), source },
    })
}

fn is_empty(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
}

/// The line on standard error for a file that holds data and is replaced.
pub(crate) fn say_if_replaced(path: &Path) {
    if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
        eprintln!("ebbtide: {} is replaced", path.display());
    }
}

/// Writes a report; `-` is standard output. A file that holds data is replaced, with a line on standard error unless
/// `overwrite` asks for that.
pub(crate) fn write_report(path: &Path, overwrite: bool, bytes: &[u8]) -> Result<(), Error> {
    if path == Path::new(STANDARD_INPUT) {
        return io::stdout().write_all(bytes).map_err(Error::Output);
    }
    if !overwrite {
        say_if_replaced(path);
    }
    let written = new_file(path, true)?.write_all(bytes);
    written.map_err(|source| Error::Write { trace: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::trace::compression::decompressed;

    #[test]
    fn names_say_how_a_file_is_compressed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, magic) in [("a.csv", &b"line"[..]), ("a.csv.gz", &[0x1F, 0x8B]), ("a.csv.zst", &[0x28, 0xB5])] {
            let path = folder.path().join(name);
            let mut output = Output::create(&path, false).unwrap();
            output.write_all(b"line\n").unwrap();
            output.finish().unwrap();
            assert!(std::fs::read(&path).unwrap().starts_with(magic), "{name}");
            let mut text = String::new();
            decompressed(Box::new(File::open(&path).unwrap())).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "line\n", "{name}");
        }
    }

    #[test]
    fn a_file_that_is_there_stays_unless_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("there");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(Output::create(&path, false), Err(Error::Exists { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        Output::create(&path, true).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        // The file that mktemp made holds nothing that could be lost.
        Output::create(&path, false).unwrap().finish().unwrap();
        write_report(&path, false, b"first").unwrap();
        write_report(&path, false, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        Output::create(Path::new("/dev/null"), false).unwrap().finish().unwrap();
    }
}
