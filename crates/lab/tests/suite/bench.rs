//! The load, in process and against a server that answers in odd pieces.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::line::Line;
use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::bench::{BenchArgs, BenchReport, bench};

fn run(flags: &str) -> Result<BenchReport, Error> {
    bench(&Line::<BenchArgs>::parse_from(std::iter::once("bench").chain(flags.split_whitespace())).args)
}

#[test]
fn a_prefilled_cache_answers_every_get() {
    let report = run("--keys 1000 --requests 20000 --prefill --threads 2 --value-size 10-200").unwrap();
    assert_eq!(report.requests, 20_000);
    assert_eq!(report.hits, report.gets);
    assert_eq!(report.hit_ratio, 1.0);
    assert_eq!((report.fills, report.errors), (0, 0));
    assert!(report.get_latency.as_ref().unwrap().samples > 100);
    assert!(report.ops_per_second > 0.0 && report.seconds > 0.0);
    assert!((report.ops_per_second * report.seconds / 20_000.0 - 1.0).abs() < 1e-9, "{report:?}");
    // Two threads that never pause spend no more than all of the time in the cache.
    assert!(report.cache_ops_per_second.unwrap() > report.ops_per_second / 2.0, "{report:?}");
}

#[test]
fn fills_follow_the_misses_of_a_batch() {
    let flags = "--keys 100 --requests 4000 --popularity scan --get-ratio 1 --fill --batch 16";
    let report = run(flags).unwrap();
    assert_eq!(report.gets, 4000);
    assert_eq!((report.fills, report.hits), (100, 3900));
    let report = run(&flags.replace("--fill", "")).unwrap();
    assert_eq!((report.fills, report.hits), (0, 0));
}

#[test]
fn the_log_of_latencies_has_every_sample() {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latency.hlog");
    let flags = format!("--keys 1000 --seconds 2.5 --threads 2 --prefill --hdr {}", path.display());
    let report = run(&flags).unwrap();
    let text = std::fs::read(&path).unwrap();
    let mut logged = HashMap::from([("get".to_owned(), 0), ("set".to_owned(), 0)]);
    let (mut starts, mut longest_ns) = (Vec::new(), 0);
    for entry in IntervalLogIterator::new(&text) {
        let LogEntry::Interval(interval) = entry.unwrap() else { continue };
        let bytes = base64_decoded(interval.encoded_histogram());
        let histogram: hdrhistogram::Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        *logged.get_mut(interval.tag().unwrap().as_str()).unwrap() += histogram.len();
        longest_ns = histogram.max().max(longest_ns);
        starts.push(interval.start_timestamp());
    }
    // Values are in nanoseconds: the longest one is the longest of the report, to the three digits of a histogram.
    let reported_ns = report.latency.unwrap().max_us * 1000.0;
    assert!((longest_ns as f64 / reported_ns - 1.0).abs() < 0.002, "{longest_ns} ns, {reported_ns} ns");
    assert_eq!(logged["get"], report.get_latency.unwrap().samples);
    assert_eq!(logged["set"], report.set_latency.unwrap().samples);
    starts.dedup();
    assert!(starts.len() >= 2 && starts.is_sorted(), "{starts:?}");
    let there = run(&flags).unwrap_err().to_string();
    assert!(there.contains("latency.hlog exists") && there.contains("--force"), "{there}");
}

/// The alphabet is RFC 4648's with padding.
fn base64_decoded(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').collect();
    for group in letters.chunks(4) {
        let word =
            group.iter().enumerate().fold(0u32, |word, (at, &letter)| word | u32::from(digit(letter)) << (18 - 6 * at));
        bytes.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    bytes
}

#[test]
fn a_time_bounds_the_run() {
    let report = run("--keys 100 --seconds 0.05").unwrap();
    assert!(report.requests > 0);
    assert!(report.seconds >= 0.05, "{}", report.seconds);
}

#[test]
fn flash_answers_what_memory_has_no_space_for() {
    let folder = tempfile::tempdir().unwrap();
    let flags =
        "--keys 20000 --value-size 400 --memory 6m --prefill --popularity uniform --get-ratio 1 --requests 40000";
    let alone = run(flags).unwrap();
    assert!(alone.hit_ratio < 0.8 && alone.flash.is_none(), "{alone:?}");
    let path = folder.path().join("flash");
    let with_flash = run(&format!("{flags} --flash {} --flash-size 64m", path.display())).unwrap();
    let flash = with_flash.flash.as_ref().expect("there was flash");
    assert!(flash.inserts > 0 && flash.hits > 0, "{with_flash:?}");
    let refused = run(&format!("--target localhost:1 --flash {} --flash-size 64m", path.display()));
    assert!(refused.unwrap_err().to_string().contains("--flash"), "a server has its own");
}

#[test]
fn options_that_cannot_be_met_are_refused() {
    for (flags, option) in [
        ("--get-ratio 1.5", "--get-ratio"),
        ("--exponent NaN", "--exponent"),
        ("--seconds 0", "--seconds"),
        ("--pipeline 2", "--pipeline"),
        ("--connections 2", "--connections"),
        ("--rate 5", "--rate"),
        ("--protocol redis", "--protocol"),
        ("--target 127.0.0.1:1 --rate 0", "--rate"),
        ("--target 127.0.0.1:1 --rate NaN", "--rate"),
        ("--target 127.0.0.1:1 --ttl 2592001", "--ttl"),
        ("--target 127.0.0.1:1 --threads 3 --connections 2", "--connections"),
    ] {
        match run(flags) {
            Err(Error::Configuration { option: named, .. }) => assert_eq!(named, option),
            other => panic!("{flags}: {other:?}"),
        }
    }
}

#[test]
fn an_absent_server_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let outcome = run(&format!("--target 127.0.0.1:{port} --requests 1"));
    assert!(matches!(outcome, Err(Error::Connection { .. })), "{outcome:?}");
}

/// How the server answers.
#[derive(Clone, Copy)]
enum Manner {
    Properly,
    /// In pieces of this many bytes.
    InPieces(usize),
    /// Every set is refused.
    Full,
    /// Every get is answered with another key's value.
    WrongKey,
    /// Closes after the first command.
    HangUp,
}

/// A server for `get`, `delete`, `incr` and writes on a port of its own. Its threads end with the connections.
fn serve(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let values = Arc::new(Mutex::new(HashMap::new()));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let values = Arc::clone(&values);
            thread::spawn(move || converse(&stream, manner, &values));
        }
    });
    address
}

type Values = Mutex<HashMap<String, Vec<u8>>>;

fn converse(stream: &TcpStream, manner: Manner, values: &Values) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    while input.read_line(&mut line).ok()? > 0 {
        let answer = obey(&line, &mut input, manner, values)?;
        let mut output = stream;
        match manner {
            Manner::InPieces(size) => {
                for piece in answer.chunks(size) {
                    output.write_all(piece).ok()?;
                }
            }
            Manner::HangUp => return None,
            _ => output.write_all(&answer).ok()?,
        }
        line.clear();
    }
    None
}

fn obey(line: &str, input: &mut impl Read, manner: Manner, values: &Values) -> Option<Vec<u8>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut values = values.lock().ok()?;
    if let [command @ ("set" | "add" | "replace" | "append"), key, _flags, _ttl, length] = words[..] {
        let mut body = vec![0; length.parse::<usize>().ok()? + 2];
        input.read_exact(&mut body).ok()?;
        assert!(body.ends_with(b"\r\n"), "the length of {line} is wrong");
        body.truncate(body.len() - 2);
        if let Manner::Full = manner {
            return Some(b"SERVER_ERROR out of memory storing object\r\n".to_vec());
        }
        let is_met = command == "set" || values.contains_key(key) == (command != "add");
        if !is_met {
            return Some(b"NOT_STORED\r\n".to_vec());
        }
        let kept = values.remove(key).filter(|_| command == "append").unwrap_or_default();
        values.insert(key.to_string(), [kept, body].concat());
        return Some(b"STORED\r\n".to_vec());
    }
    if let ["incr", key, "1"] = words[..] {
        let Some(value) = values.get_mut(key) else { return Some(b"NOT_FOUND\r\n".to_vec()) };
        let number = std::str::from_utf8(value).unwrap().parse::<u64>().unwrap() + 1;
        *value = number.to_string().into_bytes();
        return Some(format!("{number}\r\n").into_bytes());
    }
    if let ["delete", key] = words[..] {
        return Some(if values.remove(key).is_some() { b"DELETED\r\n".to_vec() } else { b"NOT_FOUND\r\n".to_vec() });
    }
    assert_eq!(words[0], "get", "{line}");
    let mut answer = Vec::new();
    for key in &words[1..] {
        let shown = match manner {
            Manner::WrongKey => "another",
            _ => key,
        };
        if let Some(value) = values.get(*key) {
            write!(answer, "VALUE {shown} 0 {}\r\n", value.len()).ok()?;
            answer.extend_from_slice(value);
            answer.extend_from_slice(b"\r\n");
        }
    }
    answer.extend_from_slice(b"END\r\n");
    Some(answer)
}

#[test]
fn server_and_engine_get_the_same_load() {
    let flags = "--keys 100 --requests 2000 --fill --batch 5 --value-size 1-300";
    let local = run(flags).unwrap();
    for manner in [Manner::Properly, Manner::InPieces(7)] {
        let target = serve(manner);
        let remote = run(&format!("{flags} --target {target}")).unwrap();
        assert_eq!(remote.gets, local.gets);
        assert_eq!((remote.hits, remote.sets), (local.hits, local.sets));
        assert_eq!((remote.fills, remote.errors), (local.fills, 0));
        assert_eq!(remote.get_latency.unwrap().samples, remote.gets.div_ceil(5));
    }
}

#[test]
fn pipelines_and_connections_lose_no_answer() {
    let target = serve(Manner::Properly);
    let flags = "--keys 500 --requests 20000 --prefill --pipeline 16 --connections 5 --threads 2 --batch 3";
    let report = run(&format!("{flags} --target {target}")).unwrap();
    assert_eq!(report.requests, 20_000);
    assert_eq!(report.hits, report.gets);
    assert_eq!(report.errors, 0);
    assert_eq!(report.connections, 5);
}

#[test]
fn refusals_are_counted() {
    let target = serve(Manner::Full);
    let report = run(&format!("--keys 10 --requests 100 --get-ratio 0 --target {target}")).unwrap();
    assert_eq!((report.sets, report.errors), (100, 100));
    assert!(report.first_error.unwrap().starts_with("SERVER_ERROR out of memory"));
}

#[test]
fn a_protocol_violation_is_an_error() {
    let target = serve(Manner::WrongKey);
    let outcome = run(&format!("--keys 10 --requests 1000 --prefill --target {target}"));
    assert!(matches!(outcome, Err(Error::Protocol { .. })), "{outcome:?}");
    let target = serve(Manner::HangUp);
    let outcome = run(&format!("--keys 10 --requests 1000 --target {target}"));
    assert!(matches!(outcome, Err(Error::Connection { .. })), "{outcome:?}");
}

/// A trace of 40 keys, each with sizes and a TTL of its own; every fourth request is a set.
fn trace(ttl_seconds: u32) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "timestamp_s,key_id,key_size,value_size,op,ttl_s").unwrap();
    for request in 0..400 {
        let key = request * 7 % 40;
        let op = if request % 4 == 0 { "set" } else { "get" };
        writeln!(file, "{request},{key},{},{},{op},{ttl_seconds}", 10 + key, 100 * key).unwrap();
    }
    file
}

#[test]
fn a_trace_gives_engine_and_server_equal_results() {
    let file = trace(600);
    let flags = format!("--trace {} --requests 1000 --fill", file.path().display());
    let local = run(&flags).unwrap();
    assert_eq!((local.gets, local.sets, local.keys), (750, 250, 40));
    // Ten keys have only sets, thirty only gets: each of these misses once.
    assert_eq!((local.hits, local.fills), (720, 30));
    assert!(local.drawn.is_none() && local.trace.is_some());
    let remote = run(&format!("{flags} --target {}", serve(Manner::InPieces(11)))).unwrap();
    assert_eq!((remote.gets, remote.sets, remote.hits), (local.gets, local.sets, local.hits));
    let prefilled = run(&format!("--trace {} --requests 1000 --prefill --threads 2", file.path().display())).unwrap();
    assert_eq!(prefilled.hits, prefilled.gets);
}

#[test]
fn workloads_are_named_or_read_from_cachebench() {
    let named = run("--preset n --generated 3k --requests 5000 --fill").unwrap();
    assert_eq!((named.trace.as_deref(), named.gets + named.sets), (Some("n"), 5000));
    assert!(named.drawn.is_none() && named.keys > 20 && named.hits > 0 && named.fills > 0, "{named:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let sizes = r#""valSizeRange": [100, 200], "valSizeRangeProbability": [1.0]"#;
    let rates = r#""getRatio": 0.8, "setRatio": 0.2, "keySizeRange": [8, 9], "keySizeRangeProbability": [1.0]"#;
    let config = format!(r#"{{"test_config": {{"numOps": 100, "numThreads": 1, "numKeys": 50, {sizes}, {rates}}}}}"#);
    std::fs::write(&path, config).unwrap();
    let played = run(&format!("--cachebench {} --requests 2000", path.display())).unwrap();
    assert!(played.keys <= 50 && played.sets > 200 && played.hits > 0, "{played:?}");
    let error = run(&format!("--cachebench {}/none --requests 2000", folder.path().display())).unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
    for line in
        [["--preset", "n", "--keys", "5"], ["--preset", "n", "--trace", "x"], ["--preset", "c", "--cachebench", "x"]]
    {
        assert!(Line::<BenchArgs>::try_parse_from(["bench"].into_iter().chain(line)).is_err(), "{line:?}");
    }
}

#[test]
fn deletes_and_pools_of_cachebench_are_played() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let sizes = r#""keySizeRange": [12, 13], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 200], "valSizeRangeProbability": [1.0]"#;
    let pool = |rates: &str| format!("{{{rates}, {sizes}}}");
    let pools =
        [pool(r#""getRatio": 0.6, "setRatio": 0.4"#), pool(r#""getRatio": 0.5, "setRatio": 0.3, "delRatio": 0.2"#)];
    let shares = r#""keyPoolDistribution": [0.5, 0.5], "opPoolDistribution": [0.25, 0.75]"#;
    let config = format!(
        r#"{{"test_config": {{"numOps": 8000, "numThreads": 1, "numKeys": 200, {shares}, "poolDistributions": [{}]}}}}"#,
        pools.join(", ")
    );
    std::fs::write(&path, config).unwrap();
    let flags = format!("--cachebench {} --generated 8k --requests 8000 --memory 64m", path.display());
    let local = run(&flags).unwrap();
    // A fifth of three quarters.
    assert_eq!(local.gets + local.sets + local.deletes, 8000);
    assert!((1000..1400).contains(&local.deletes), "{local:?}");
    assert!(local.delete_latency.is_some());
    let names: Vec<&str> = local.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert!(names.len() == 2 && names.contains(&"pool0") && names.contains(&"pool1"), "{names:?}");
    assert_eq!(local.pools.iter().map(|pool| pool.gets).sum::<u64>(), local.gets);
    assert_eq!(local.pools.iter().map(|pool| pool.hits).sum::<u64>(), local.hits);
    assert!(local.pools.iter().all(|pool| pool.hits > 0 && pool.hits < pool.gets), "{:?}", local.pools);
    // The same requests in the same order: deleted keys miss there, too.
    let remote = run(&format!("{flags} --target {}", serve(Manner::InPieces(13)))).unwrap();
    assert_eq!((remote.gets, remote.sets, remote.deletes), (local.gets, local.sets, local.deletes));
    let of_pools = |report: &BenchReport| -> Vec<(String, u64, u64)> {
        report.pools.iter().map(|pool| (pool.name.clone(), pool.gets, pool.hits)).collect()
    };
    assert_eq!((remote.hits, remote.errors, of_pools(&remote)), (local.hits, 0, of_pools(&local)));
    let batched = run(&format!("{flags} --batch 4")).unwrap();
    assert_eq!((batched.hits, &batched.pools), (local.hits, &local.pools));
}

#[test]
fn every_operation_is_played_as_what_it_is() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "timestamp_s,key_id,key_size,value_size,op,ttl_s").unwrap();
    // Key 1: absent for a replace and an append, added once. Key 2 is a counter. Key 3 is read with its appended bytes.
    for step in [
        "1,8,50,replace",
        "1,8,9,append",
        "1,8,50,add",
        "1,8,50,add",
        "1,8,9,append",
        "1,8,50,get",
        "2,8,4,incr",
        "2,8,4,set",
        "2,8,4,incr",
        "2,8,4,incr",
        "3,8,40,cas",
        "3,8,40,set",
        "3,8,40,cas",
        "1,8,0,delete",
        "1,8,50,get",
    ] {
        writeln!(file, "0,{step},0").unwrap();
    }
    let flags = format!("--trace {} --requests 15", file.path().display());
    let local = run(&flags).unwrap();
    let writes = local.writes.unwrap();
    assert_eq!((local.gets, local.hits, local.sets, local.deletes, local.errors), (2, 1, 2, 1, 0));
    assert_eq!((writes.adds, writes.replaces, writes.appends, writes.counts), (2, 3, 2, 3));
    // A replace, an append, the second add, the first incr, the first cas.
    assert_eq!((writes.not_stored, local.requests), (5, 15));
    let remote = run(&format!("{flags} --target {}", serve(Manner::InPieces(5)))).unwrap();
    assert_eq!((remote.writes, remote.hits, remote.errors, remote.requests), (local.writes, 1, 0, 15));
    // The value after an append has 59 bytes: the answer to the first get, with its key and line ends.
    assert!(remote.bytes_received > 59 + 100, "{remote:?}");
    for target in [String::new(), format!("--target {}", serve(Manner::Properly))] {
        let filled = run(&format!("{flags} --fill {target}")).unwrap();
        assert_eq!((filled.fills, filled.writes.unwrap().counts), (2, 3), "the counter, and the last get");
    }
    writeln!(file, "0,1,8,9,prepend,0").unwrap();
    let error = run(&format!("{flags} --protocol redis --target 127.0.0.1:1")).unwrap_err().to_string();
    assert!(error.contains("it has a prepend"), "{error}");
}

#[test]
fn traces_that_cannot_be_played_are_refused() {
    let long = trace(2_592_001);
    let flags = format!("--trace {}", long.path().display());
    assert!(run(&format!("{flags} --requests 10")).is_ok());
    let error = run(&format!("{flags} --target 127.0.0.1:1")).unwrap_err().to_string();
    assert!(error.contains("it has a TTL of 2592001 s"), "{error}");
    let mut empty = tempfile::NamedTempFile::new().unwrap();
    writeln!(empty, "timestamp_s,key_id,key_size,value_size,op,ttl_s").unwrap();
    let error = run(&format!("--trace {} --requests 10", empty.path().display())).unwrap_err().to_string();
    assert!(error.contains("it has no get") || error.contains("empty"), "{error}");
    let line = ["bench", "--trace", "x", "--keys", "5"];
    assert!(Line::<BenchArgs>::try_parse_from(line).is_err());
}
