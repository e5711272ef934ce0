//! Compressed traces: zstd and gzip, recognized by the first bytes.

use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Bytes 1 to 3 of a skippable zstd frame, which some compressors write first; byte 0 is 0x50 to 0x5F.
const SKIPPABLE_MAGIC: [u8; 3] = [0x2A, 0x4D, 0x18];
/// gzip with deflate, the only method there is.
const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 8];

/// A stream of bytes that may be read on another thread.
pub(super) type Input = Box<dyn Read + Send>;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Zstd,
    Gzip,
}

impl Compression {
    /// Compression by the first bytes; `None` if they match neither format.
    pub(super) fn detect(start: &[u8]) -> Option<Self> {
        let is_skippable = start.len() >= 4 && start[0] & 0xF0 == 0x50 && start[1..4] == SKIPPABLE_MAGIC;
        if start.starts_with(&ZSTD_MAGIC) || is_skippable {
            Some(Self::Zstd)
        } else if start.starts_with(&GZIP_MAGIC) {
            Some(Self::Gzip)
        } else {
            None
        }
    }
}

/// The stream without one layer of compression, or as it is if it is not compressed.
pub(super) fn decompressed(input: Input) -> io::Result<Input> {
    let (start, input) = peek(input, ZSTD_MAGIC.len())?;
    Ok(match Compression::detect(&start) {
        None => input,
        Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(input)),
        Some(Compression::Zstd) => {
            let mut decoder = zstd::stream::read::Decoder::new(input)?;
            // Archives are often made with `--long`; the window is only as large as the file asks for.
            decoder.window_log_max(31)?;
            Box::new(decoder)
        }
    })
}

/// The first `length` bytes (fewer if the stream is shorter), and the stream as if they had not been read.
pub(super) fn peek(mut input: Input, length: usize) -> io::Result<(Vec<u8>, Input)> {
    let mut start = Vec::new();
    input.by_ref().take(length as u64).read_to_end(&mut start)?;
    let whole = Box::new(Cursor::new(start.clone()).chain(input));
    Ok((start, whole))
}
