//! Known files that are no traces, recognized by their first bytes (the magic numbers of file(1)).

use super::compression::Compression;

/// Type of a file that is no trace, and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) what: &'static str,
    pub(super) remedy: &'static str,
}

const UNPACK: &str = "unpack it, or compress the trace with zstd or gzip";
const TO_UTF8: &str = "convert it to UTF-8, for example with iconv";
const NO_TRACE: &str = "name a trace file";

/// Offset of the bytes, the bytes, the type of the file, and the remedy.
const SIGNATURES: [(usize, &[u8], &str, &str); 18] = [
    (0, b"\xFD7zXZ\0", "an xz archive", UNPACK),
    (0, b"BZh", "a bzip2 archive", UNPACK),
    (0, b"PK\x03\x04", "a zip archive", UNPACK),
    (0, b"7z\xBC\xAF\x27\x1C", "a 7z archive", UNPACK),
    (0, b"\x04\x22\x4D\x18", "an lz4 archive", UNPACK),
    (257, b"ustar", "a tar archive", UNPACK),
    (0, b"\xFF\xFE\0\0", "text in UTF-32", TO_UTF8),
    (0, b"\0\0\xFE\xFF", "text in UTF-32", TO_UTF8),
    (0, b"\xFF\xFE", "text in UTF-16", TO_UTF8),
    (0, b"\xFE\xFF", "text in UTF-16", TO_UTF8),
    (0, b"\x7FELF", "a program (ELF)", NO_TRACE),
    (0, b"MZ", "a program (PE)", NO_TRACE),
    (0, b"PAR1", "a Parquet file", "convert it to csv"),
    (0, b"ARROW1", "an Arrow file", "convert it to csv"),
    (0, b"SQLite format 3\0", "an SQLite database", "export the table as csv"),
    (0, b"\x89PNG", "a picture (PNG)", NO_TRACE),
    (0, b"%PDF-", "a PDF document", NO_TRACE),
    (0, b"\xD4\xC3\xB2\xA1", "a capture of packets (pcap)", NO_TRACE),
];

/// The kind of a decompressed file, if it is a known one that no reader takes.
pub(super) fn foreign(start: &[u8]) -> Option<Foreign> {
    if Compression::detect(start).is_some() {
        return Some(Foreign { what: "an archive within an archive", remedy: "decompress it once" });
    }
    let begins = |&&(offset, bytes, ..): &&(usize, &[u8], _, _)| {
        start.get(offset..).is_some_and(|rest: &[u8]| rest.starts_with(bytes))
    };
    SIGNATURES.iter().find(begins).map(|&(_, _, what, remedy)| Foreign { what, remedy })
}

/// A file that no lines of text are in, as a byte of zero at its beginning shows.
pub(super) fn binary(start: &[u8]) -> Option<Foreign> {
    let remedy = "columns are those of lines of text; see --format for binary traces";
    start.contains(&0).then_some(Foreign { what: "a binary file", remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_files_are_named() {
        let what = |start: &[u8]| foreign(start).map(|foreign| foreign.what);
        assert_eq!(what(b"\x7FELF\x02\x01"), Some("a program (ELF)"));
        assert_eq!(what(b"\xFF\xFEt\0i\0"), Some("text in UTF-16"));
        assert_eq!(what(b"\x1F\x8B\x08\0"), Some("an archive within an archive"));
        let tar = [&[b'x'; 257][..], b"ustar\x0000"].concat();
        assert_eq!(what(&tar), Some("a tar archive"));
        assert_eq!(what(b"timestamp_s,key_id,key_size,value_size,op,ttl_s\n"), None);
        assert_eq!(what(b""), None);
    }
}
