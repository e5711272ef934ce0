//! Files that commands write, compressed by their name; `-` is standard output. None is seen before it is complete.
//!
//! A trace that is captured or made of others is replaced only on request. A report can be made again from its trace,
//! and a generated trace from its seed: they are replaced, with a line on standard error. An empty file is replaced
//! silently.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ebbtide::message;
use flate2::write::GzEncoder;

use super::STANDARD_INPUT;
use super::new_file::{NewFile, check_is_no_input};
use crate::Error;

const BUFFER: usize = 1 << 20;
const ZSTD_LEVEL: i32 = 3;

/// A stream to a file or to standard output. Without [`Output::finish`] there is no file.
pub(crate) enum Output {
    Plain(BufWriter<Sink>),
    Gzip(BufWriter<GzEncoder<Sink>>),
    Zstd(BufWriter<zstd::stream::write::Encoder<'static, Sink>>),
}

/// Where bytes go.
pub(crate) enum Sink {
    Standard(io::Stdout),
    File(NewFile),
}

impl Sink {
    fn create(path: &Path, overwrite: bool) -> Result<Self, Error> {
        match path == Path::new(STANDARD_INPUT) {
            true => Ok(Self::Standard(io::stdout())),
            false => NewFile::create(path, overwrite).map(Self::File),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Standard(mut out) => out.flush(),
            Self::File(file) => file.finish(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}

impl Output {
    /// Opens the file, compressed if it is named `.zst` or `.gz`; `-` is standard output, not compressed.
    ///
    /// # Errors
    /// [`Error::Exists`] for a file that is there, unless `overwrite`. Devices and pipes are written to.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<Self, Error> {
        let sink = Sink::create(path, overwrite)?;
        let failed = |source| Error::Write { trace: path.display().to_string(), source };
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

    /// Writes the remaining bytes and the end of a compressed stream, and moves the file to its place.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.into_inner().map_err(io::IntoInnerError::into_error)?.finish(),
            Self::Gzip(gzip) => {
                let encoder = gzip.into_inner().map_err(io::IntoInnerError::into_error)?;
                encoder.finish().and_then(Sink::finish)
            }
            Self::Zstd(zstd) => {
                let encoder = zstd.into_inner().map_err(io::IntoInnerError::into_error)?;
                encoder.finish().and_then(Sink::finish)
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

/// The line on standard error for a file that holds data and is replaced.
pub(crate) fn say_if_replaced(path: &Path) {
    if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
        message!("ebbtide: {} is replaced", path.display());
    }
}

/// The file of a report, opened before the work whose result it holds; `-` is standard output.
pub(crate) struct ReportFile {
    path: PathBuf,
    overwrite: bool,
    sink: Sink,
}

impl ReportFile {
    /// Opens the file that `option` names, if it names one. A file that holds data is replaced, with a line on standard
    /// error unless `overwrite` asks for that.
    ///
    /// # Errors
    /// A file that cannot be written, or that is one of the `inputs`.
    pub(crate) fn open(
        option: &'static str,
        path: Option<&Path>,
        overwrite: bool,
        inputs: &[&Path],
    ) -> Result<Option<Self>, Error> {
        let Some(path) = path else { return Ok(None) };
        check_is_no_input(option, path, inputs)?;
        Ok(Some(Self { path: path.to_owned(), overwrite, sink: Sink::create(path, true)? }))
    }

    /// Writes the report.
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<(), Error> {
        let is_standard = matches!(self.sink, Sink::Standard(_));
        if !self.overwrite && !is_standard {
            say_if_replaced(&self.path);
        }
        let written = self.sink.write_all(bytes).and_then(|()| self.sink.finish());
        written.map_err(|source| match is_standard {
            true => Error::Output(source),
            false => Error::Write { trace: self.path.display().to_string(), source },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
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
        drop(Output::create(&path, true).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious", "what is not finished replaces nothing");
        Output::create(&path, true).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        // The file that mktemp made holds nothing that could be lost.
        Output::create(&path, false).unwrap().finish().unwrap();
        for text in ["first", "new"] {
            ReportFile::open("--csv", Some(&path), false, &[]).unwrap().unwrap().write(text.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        Output::create(Path::new("/dev/null"), false).unwrap().finish().unwrap();
    }
}
