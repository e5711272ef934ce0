//! The trace readers, bytes in and requests out: each format, detected by its content, plain and compressed.

use std::io::{Cursor, Write};

use ebbtide_lab::Error;
use ebbtide_lab::trace::{Format, Op, Request, TraceReader};

const CSV: &str = "timestamp_s,key_id,key_size,value_size,op,ttl_s
0,0,16,4096,get,0
0,1,16,100,set,60
7,0,16,4096,delete,0
";

const TWITTER: &str = "0,a:b,12,300,7,get,0
3,x,y,20,50,8,add,86400
";

const KVCACHE: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl
564726470,798057486,83,GET,2,62,1,0
564726471,798057487,40,SET,1,10,0,300
";

fn open(bytes: impl Into<Vec<u8>>, format: Option<Format>) -> Result<TraceReader, Error> {
    TraceReader::from_read("test".into(), Box::new(Cursor::new(bytes.into())), format)
}

fn read(bytes: impl Into<Vec<u8>>) -> (Format, Vec<Request>) {
    let mut reader = open(bytes, None).unwrap();
    let format = reader.format();
    let requests = std::iter::from_fn(|| reader.next_request().unwrap()).collect();
    (format, requests)
}

fn oracle_record(time: u32, id: u64, size: u32, next: i64) -> Vec<u8> {
    let mut record = time.to_le_bytes().to_vec();
    record.extend_from_slice(&id.to_le_bytes());
    record.extend_from_slice(&size.to_le_bytes());
    record.extend_from_slice(&next.to_le_bytes());
    record
}

#[test]
fn csv() {
    let (format, requests) = read(CSV);
    assert_eq!(format, Format::Csv);
    let request = |time_seconds, key, value_size, op, ttl_seconds| Request {
        time_seconds,
        key,
        key_size: 16,
        value_size,
        op,
        ttl_seconds,
    };
    assert_eq!(
        requests,
        [request(0, 0, 4096, Op::Get, 0), request(0, 1, 100, Op::Set, 60), request(7, 0, 4096, Op::Delete, 0),]
    );
}

#[test]
fn twitter() {
    let (format, requests) = read(TWITTER);
    assert_eq!(format, Format::Twitter);
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[0].time_seconds, requests[0].op, requests[0].ttl_seconds), (0, Op::Get, 0));
    assert_eq!((requests[0].key_size, requests[0].value_size), (12, 300));
    assert_eq!((requests[1].time_seconds, requests[1].op, requests[1].ttl_seconds), (3, Op::Add, 86_400));
    assert_eq!((requests[1].key_size, requests[1].value_size), (20, 50));
    assert_ne!(requests[0].key, requests[1].key);
}

#[test]
fn kvcache() {
    let (format, requests) = read(KVCACHE);
    assert_eq!(format, Format::Kvcache);
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0], requests[1]);
    assert_eq!((requests[0].key_size, requests[0].value_size), (83, 62));
    assert_eq!((requests[2].op, requests[2].ttl_seconds), (Op::Set, 300));
}

#[test]
fn oracle_general() {
    let mut bytes = oracle_record(5, 42, 1000, 1);
    bytes.extend(oracle_record(6, 42, 1000, -1));
    let (format, requests) = read(bytes);
    assert_eq!(format, Format::OracleGeneral);
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[1].time_seconds, requests[1].key), (6, 42));
    assert_eq!(requests[1].key_size + requests[1].value_size, 1000);
}

#[test]
fn compressed_traces_read_as_plain_ones() {
    for plain in [CSV.as_bytes(), TWITTER.as_bytes(), &oracle_record(5, 42, 1000, -1)] {
        let whole = zstd::encode_all(plain, 3).unwrap();
        assert_eq!(read(whole), read(plain));
        let (front, back) = plain.split_at(plain.len() / 2);
        let mut two_frames = zstd::encode_all(front, 3).unwrap();
        two_frames.extend(zstd::encode_all(back, 3).unwrap());
        assert_eq!(read(two_frames), read(plain));
    }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn gzip_is_read_as_plain() {
    for plain in [CSV.as_bytes(), TWITTER.as_bytes(), &oracle_record(5, 42, 1000, -1)] {
        assert_eq!(read(gzip(plain)), read(plain));
        let (front, back) = plain.split_at(plain.len() / 2);
        assert_eq!(read([gzip(front), gzip(back)].concat()), read(plain), "several members are one file");
    }
    let mut cut = gzip(CSV.repeat(1000).as_bytes());
    cut.truncate(cut.len() / 2);
    let outcome = open(cut, None).and_then(|mut reader| {
        while reader.next_request()?.is_some() {}
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Read { .. } | Error::Malformed { .. })), "{outcome:?}");
}

#[test]
fn files_of_other_kinds_are_refused_by_name() {
    let utf16: Vec<u8> = "\u{FEFF}timestamp_s,key_id".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut tar = vec![0; 512];
    tar[..5].copy_from_slice(b"t.csv");
    tar[257..262].copy_from_slice(b"ustar");
    let twice = zstd::encode_all(&*zstd::encode_all(CSV.as_bytes(), 3).unwrap(), 3).unwrap();
    let zip = b"PK\x03\x04\x14\0\0\0".to_vec();
    let program = std::fs::read("/bin/true").unwrap();
    for (bytes, name) in [
        (utf16, "UTF-16"),
        (tar, "tar"),
        (twice, "within an archive"),
        (zip, "zip"),
        (b"\xFD7zXZ\0\0\x04".to_vec(), "xz"),
        (program, "ELF"),
    ] {
        for format in [None, Some(Format::Csv)] {
            let error = open(bytes.clone(), format).err().expect(name);
            assert!(matches!(error, Error::NotATrace { .. }) && error.to_string().contains(name), "{error}");
        }
    }
}

#[test]
fn other_binary_files_are_no_oracle_traces() {
    // A VSCSI trace of version 1: 32 bytes a record.
    let vscsi: Vec<u8> = (0..30u32)
        .flat_map(|number| {
            let block = u64::from(42_932_745 + number % 3);
            let time = 5_633_898_611_441 + u64::from(number);
            let words = [number, 512, 1, 0x0001_002A].map(u32::to_le_bytes).concat();
            [words, block.to_le_bytes().to_vec(), time.to_le_bytes().to_vec()].concat()
        })
        .collect();
    for bytes in [vscsi, vec![0; 4096], vec![0xFF; 4096]] {
        let error = open(bytes.clone(), None).err().expect("no trace");
        assert!(matches!(&error, Error::UnknownFormat { reason, .. } if reason.contains("record")), "{error}");
        let error = open(bytes, Some(Format::OracleGeneral)).err().expect("no trace, whatever it is called");
        assert!(error.to_string().contains("record") && error.to_string().contains("--format"), "{error}");
    }
    // The error names the type of a file of another program.
    let archive = [b"PK\x03\x04".as_slice(), &[0xFF; 4096]].concat();
    let error = open(archive, Some(Format::OracleGeneral)).err().expect("no trace");
    assert!(matches!(&error, Error::NotATrace { .. }) && error.to_string().contains("zip"), "{error}");
}

#[test]
fn byte_marks_blank_lines_and_headers_are_skipped() {
    let header_of_twitter = "timestamp,anonymized key,key size,value size,client id,operation,TTL\n";
    for (text, plain, format) in [
        (format!("\u{FEFF}{CSV}"), CSV, Format::Csv),
        (format!("\n# made by a script\n{CSV}\n\n"), CSV, Format::Csv),
        (format!("{header_of_twitter}{TWITTER}"), TWITTER, Format::Twitter),
        (format!("\u{FEFF}# exported\n{KVCACHE}\n"), KVCACHE, Format::Kvcache),
    ] {
        assert_eq!(read(text.as_bytes()), read(plain), "{text}");
        let mut forced = open(text.as_bytes(), Some(format)).unwrap();
        let requests: Vec<_> = std::iter::from_fn(|| forced.next_request().unwrap()).collect();
        assert_eq!(requests, read(plain).1, "{text}");
    }
}

#[test]
fn a_damaged_archive_is_an_error() {
    let mut archive = zstd::encode_all(CSV.repeat(1000).as_bytes(), 3).unwrap();
    archive.truncate(archive.len() / 2);
    let outcome = open(archive, Some(Format::Csv)).and_then(|mut reader| {
        while let Some(_request) = match reader.next_request() {
            Err(Error::Malformed { .. }) => Ok(None),
            other => other,
        }? {}
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Read { .. })), "{outcome:?}");
}

#[test]
fn a_malformed_line_is_numbered_and_reading_continues() {
    let text = format!("{CSV}0,1,2\n{}\n9,1,16,5,get,0", "x".repeat(100_000));
    let mut reader = open(text, None).unwrap();
    let mut lines = Vec::new();
    let mut last = None;
    loop {
        match reader.next_request() {
            Ok(None) => break,
            Ok(request) => last = request,
            Err(Error::Malformed { line, .. }) => lines.push(line),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(lines, [5, 6]);
    assert_eq!(last.map(|request| request.time_seconds), Some(9));
}

#[test]
fn a_truncated_binary_record_is_an_error() {
    let mut bytes = oracle_record(5, 42, 1000, -1);
    bytes.extend([0; 10]);
    let mut reader = open(bytes, None).unwrap();
    assert!(reader.next_request().unwrap().is_some());
    let error = reader.next_request().unwrap_err();
    assert!(matches!(error, Error::Malformed { line: 2, .. }), "{error}");
    assert!(reader.next_request().unwrap().is_none());
}

#[test]
fn the_format_can_be_forced() {
    let headless = CSV.split_once('\n').unwrap().1;
    let unknown = open(headless, None).err().unwrap();
    assert!(matches!(unknown, Error::UnknownFormat { .. }), "{unknown}");
    let mut reader = open(headless, Some(Format::Csv)).unwrap();
    assert_eq!(reader.next_request().unwrap().unwrap().key, 0);
    assert!(open("", None).is_err());
}
