//! The trace readers, bytes in and requests out: each format, told from its content, plain and compressed.

use std::io::Cursor;

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
fn a_malformed_line_has_its_number_and_does_not_end_the_stream() {
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
fn a_binary_trace_that_ends_in_a_record_says_so() {
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
