//! The load on servers that are slow, and on one that speaks RESP.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::line::Line;
use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::bench::{BenchArgs, BenchReport, bench};

fn run(flags: &str) -> Result<BenchReport, Error> {
    bench(&Line::<BenchArgs>::parse_from(std::iter::once("bench").chain(flags.split_whitespace())).args)
}

/// Serves each connection to a port of its own in a thread, which ends with the connection.
fn serve(converse: impl Fn(&TcpStream) -> Option<()> + Copy + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                stream.set_nodelay(true).ok()?;
                converse(&stream)
            });
        }
    });
    address
}

/// Answers gets with misses: the first one late, and all others after a pause.
fn slow(first: Duration, others: Duration) -> String {
    serve(move |stream| {
        let mut pause = first;
        for line in BufReader::new(stream).lines() {
            assert!(line.ok()?.starts_with("get "));
            thread::sleep(pause);
            pause = others;
            let mut stream = stream;
            stream.write_all(b"END\r\n").ok()?;
        }
        None
    })
}

#[test]
fn a_stall_delays_all_requests_due_during_it() {
    let flags = "--get-ratio 1 --requests 600";
    let stall = Duration::from_millis(300);
    for arrivals in ["constant", "poisson", "bursty --burst 5"] {
        let target = slow(stall, Duration::ZERO);
        let report = run(&format!("{flags} --target {target} --rate 1000 --arrivals {arrivals}")).unwrap();
        let latency = report.get_latency.unwrap();
        assert_eq!((report.requests, latency.samples), (600, 600), "{arrivals}");
        assert!(report.seconds >= 0.3, "{arrivals}: {}", report.seconds);
        // About 300 are due while nothing is answered, and wait from 300 ms down to nothing.
        assert!(latency.max_us >= 290_000.0 && latency.p90_us >= 150_000.0, "{arrivals}: {latency:?}");
        let pace = report.pace.unwrap();
        assert_eq!(pace.unsent, 0, "{arrivals}");
        assert!(pace.delay.unwrap().p90_us >= 150_000.0, "{arrivals}");
    }
    let report = run(&format!("{flags} --target {}", slow(stall, Duration::ZERO))).unwrap();
    assert!(report.pace.is_none());
    assert!(report.get_latency.unwrap().p90_us < 150_000.0);
}

#[test]
fn requests_unsent_to_a_slow_server_are_counted() {
    let pause = Duration::from_millis(100);
    let flags = "--get-ratio 1 --seconds 0.4 --rate 1000";
    let report = run(&format!("{flags} --target {}", slow(pause, pause))).unwrap();
    let (sent, unsent) = (report.requests, report.pace.unwrap().unsent);
    assert!(sent <= 10 && sent + unsent >= 390, "{sent} {unsent}");
    // Requests due while the machine stalls at the end of the run stay unsent, too: then the run is repeated.
    let is_sent = || {
        let report = run(&format!("{flags} --target {} --pipeline 1000", slow(pause, Duration::ZERO))).unwrap();
        let (sent, unsent) = (report.requests, report.pace.unwrap().unsent);
        assert!(sent + unsent >= 390, "{sent} {unsent}");
        sent > 10 + unsent
    };
    assert!((0..20).any(|_| is_sent()), "a pipeline leaves as much unsent");
}

/// A server for GET, MGET and SET; after `sets` sets it refuses everything.
fn redis(sets: usize) -> String {
    serve(move |stream| {
        let mut input = BufReader::new(stream);
        let mut values: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let mut left = sets;
        loop {
            let words = words(&mut input)?;
            let mut answer = Vec::new();
            let show = |answer: &mut Vec<u8>, key: &Vec<u8>| match values.get(key) {
                Some(value) => answer.extend_from_slice(&bulk(value)),
                None => answer.extend_from_slice(b"$-1\r\n"),
            };
            match (words[0].as_slice(), &words[1..]) {
                _ if left == 0 => answer.extend_from_slice(b"-OOM command not allowed\r\n"),
                (b"GET", [key]) => show(&mut answer, key),
                (b"MGET", keys) => {
                    write!(answer, "*{}\r\n", keys.len()).ok()?;
                    keys.iter().for_each(|key| show(&mut answer, key));
                }
                (b"SET", [key, value, expiry @ ..]) => {
                    assert!(matches!(expiry, []) || expiry == [b"EX".to_vec(), b"60".to_vec()], "{expiry:?}");
                    values.insert(key.clone(), value.clone());
                    left -= 1;
                    answer.extend_from_slice(b"+OK\r\n");
                }
                _ => panic!("{words:?}"),
            }
            let mut stream = stream;
            for piece in answer.chunks(7) {
                stream.write_all(piece).ok()?;
            }
        }
    })
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// The bulk strings of one request.
fn words(input: &mut BufReader<&TcpStream>) -> Option<Vec<Vec<u8>>> {
    let number = |kind: char, input: &mut BufReader<&TcpStream>| {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.strip_prefix(kind)?.strip_suffix("\r\n")?.parse::<usize>().ok()
    };
    let count = number('*', input)?;
    (0..count)
        .map(|_| {
            let length = number('$', input)?;
            let mut word = vec![0; length + 2];
            input.read_exact(&mut word).ok()?;
            assert_eq!(word.split_off(length), b"\r\n");
            Some(word)
        })
        .collect()
}

#[test]
fn redis_and_engine_get_the_same_load() {
    for batch in ["--batch 1", "--batch 5"] {
        let flags = format!("--keys 100 --requests 2000 --fill {batch} --value-size 0-300 --ttl 60");
        let local = run(&flags).unwrap();
        for more in ["", "--rate 1e6 --arrivals poisson"] {
            let remote = run(&format!("{flags} {more} --protocol redis --target {}", redis(usize::MAX))).unwrap();
            assert_eq!((remote.gets, remote.sets), (local.gets, local.sets));
            assert_eq!((remote.hits, remote.fills, remote.errors), (local.hits, local.fills, 0));
        }
    }
}

#[test]
fn pipelines_lose_no_answer_of_a_redis_server() {
    let flags = "--keys 500 --requests 20000 --prefill --pipeline 16 --batch 3 --protocol redis";
    let report = run(&format!("{flags} --target {}", redis(usize::MAX))).unwrap();
    assert_eq!(report.requests, 20_000);
    assert_eq!((report.hits, report.errors), (report.gets, 0));
    assert!(report.bytes_received > report.hits * 100);
}

#[test]
fn refusals_of_a_redis_server_are_counted() {
    let flags = "--keys 100 --requests 1000 --batch 4 --get-ratio 0.5 --protocol redis";
    let report = run(&format!("{flags} --target {}", redis(10))).unwrap();
    assert_eq!(report.requests, 1000);
    assert!(report.errors > 10 && report.first_error.unwrap().starts_with("OOM"));
}

#[test]
fn a_server_of_another_protocol_is_an_error() {
    let outcome = run(&format!("--requests 10 --protocol redis --target {}", slow(Duration::ZERO, Duration::ZERO)));
    assert!(outcome.is_err(), "{outcome:?}");
    let memcached = serve(|mut stream| {
        stream.read_exact(&mut [0; 10]).ok()?;
        stream.write_all(b"ERROR\r\n").ok()
    });
    let outcome = run(&format!("--requests 10 --protocol redis --target {memcached}"));
    assert!(matches!(outcome, Err(Error::Protocol { .. })), "{outcome:?}");
}
