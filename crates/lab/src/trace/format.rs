//! Tells the format of a trace from how it begins.
//!
//! A binary trace shows itself by bytes that no text has: of 24 bytes of an oracleGeneral record some are 0 or 255, for
//! times, sizes and the distance to the next access rarely need all the bits that they have. Other binary files have
//! such bytes, too: so known files are named first, and the records at the beginning must be plausible. Among the
//! texts, two have a header, and the Twitter traces have a number first and an operation in the last but one column.

use std::str::FromStr;

use super::kvcache::Columns;
use super::lines::{Lines, TraceLine};
use super::oracle::{self, RECORD_SIZE};
use super::records::RecordFormat;
use super::text;

/// The known trace formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Header `timestamp_s,key_id,key_size,value_size,op,ttl_s`, with `,pool` or without.
    Csv,
    /// Twitter's cluster traces.
    Twitter,
    /// CacheLib's kvcache traces.
    Kvcache,
    /// libCacheSim's oracleGeneral.
    #[value(alias = "oracleGeneral", alias = "oracle")]
    OracleGeneral,
    /// libCacheSim's lcs, versions 1 to 8.
    Lcs,
    /// libCacheSim's vscsi, versions 1 and 2.
    Vscsi,
}

impl Format {
    /// The name as `--format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Twitter => "twitter",
            Format::Kvcache => "kvcache",
            Format::OracleGeneral => "oracle-general",
            Format::Lcs => "lcs",
            Format::Vscsi => "vscsi",
        }
    }

    /// Format by the first bytes of a trace (decompressed). The error describes the bytes found instead.
    pub(super) fn detect(start: &[u8]) -> Result<Self, String> {
        if start.is_empty() {
            return Err("it is empty".into());
        }
        if RecordFormat::lcs(start).is_ok() {
            return Ok(Format::Lcs);
        }
        let record = &start[..start.len().min(RECORD_SIZE)];
        if record.iter().any(|&byte| byte == 0 || byte == 0xFF) {
            let plausible = oracle::check_plausible(start).map(|()| Format::OracleGeneral);
            return plausible.or_else(|fault| RecordFormat::vscsi(start).map(|_| Format::Vscsi).map_err(|_| fault));
        }
        let line = first_line(start);
        if text::csv_header(&line).is_some() {
            Ok(Format::Csv)
        } else if Columns::from_header(&line).is_some() {
            Ok(Format::Kvcache)
        } else if text::is_twitter_header(&line) || text::parse_twitter(&line).is_ok() {
            Ok(Format::Twitter)
        } else {
            let shown = &line[..line.len().min(60)];
            Err(format!("it begins with `{}`", shown.escape_ascii()))
        }
    }
}

/// The first line with content; empty if there is none.
pub(super) fn first_line(start: &[u8]) -> Vec<u8> {
    match Lines::new(start).next() {
        Ok(TraceLine::Text(line)) => line.to_vec(),
        _ => Vec::new(),
    }
}

impl FromStr for Format {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        <Self as clap::ValueEnum>::from_str(name, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_told_from_its_beginning() {
        let csv = b"timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,0,16,4096,get,0\n";
        assert_eq!(Format::detect(csv), Ok(Format::Csv));
        assert_eq!(Format::detect(b"0,ab,cd,12,300,7,get,0\r\n"), Ok(Format::Twitter));
        assert_eq!(Format::detect(b"key,op,size,op_count,key_size\n1,GET,0,1,40\n"), Ok(Format::Kvcache));
        let header = b"\xEF\xBB\xBF# exported\n\ntimestamp,key,key size,value size,client,operation,TTL\n";
        assert_eq!(Format::detect(header), Ok(Format::Twitter));
        let mut record = [0x1A; 24];
        record[16..].fill(0xFF);
        assert_eq!(Format::detect(&record), Ok(Format::OracleGeneral));
        record[16] = 0;
        assert!(Format::detect(&record).is_err(), "its next access cannot be");
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert!(Format::detect(b"").is_err());
        assert!(Format::detect(b"hello world\n").is_err());
        let error = Format::detect(b"1,2,3\n").unwrap_err();
        assert!(error.contains("1,2,3"), "{error}");
    }
}
