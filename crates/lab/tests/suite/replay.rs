//! Replays of small traces through the real cache, with memory for all of them: hits and misses are known exactly.

use std::io::Write;

use crate::line::Line;
use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::replay::{ReplayArgs, ReplayReport, replay};
use tempfile::NamedTempFile;

fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn try_replay(bytes: &[u8], flags: &str) -> Result<ReplayReport, Error> {
    let file = file(bytes);
    let memory = if flags.contains("--memory") { "" } else { "--memory 64m " };
    let flags = format!("{memory}{flags}");
    let line = ["replay", file.path().to_str().unwrap()];
    let args = Line::<ReplayArgs>::parse_from(line.into_iter().chain(flags.split_whitespace())).args;
    replay(&args, args.cells().unwrap()[0])
}

/// Replays rows of the csv format.
fn csv(rows: &str, flags: &str) -> ReplayReport {
    let text = format!("timestamp_s,key_id,key_size,value_size,op,ttl_s\n{rows}");
    try_replay(text.as_bytes(), flags).unwrap()
}

/// Requests, hits and misses.
fn outcome(report: &ReplayReport) -> (u64, u64, u64) {
    (report.requests, report.hits, report.misses)
}

fn audited(report: &ReplayReport) -> &ebbtide_lab::replay::AuditReport {
    report.audit.as_ref().expect("the replay was audited")
}

#[test]
fn a_trace_without_gets_is_an_error() {
    let trace = file(b"timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,16,100,set,0\n");
    let line = ["replay", trace.path().to_str().unwrap(), "--memory", "1m"];
    let error = ebbtide_lab::replay::run(Line::<ReplayArgs>::parse_from(line).args).unwrap_err();
    assert!(error.to_string().contains("none of the 1 requests is a get"), "{error}");
    assert_eq!(error.exit_code(), 66);
}

#[test]
fn a_set_follows_each_missed_get() {
    let report = csv("0,1,16,100,get,0\n0,2,16,300,get,0\n1,1,16,100,get,0\n2,1,16,100,get,0\n", "");
    assert_eq!(outcome(&report), (4, 2, 2));
    assert_eq!(report.miss_ratio, 0.5);
    assert_eq!(report.byte_miss_ratio, (116 + 316) as f64 / (3 * 116 + 316) as f64);
    assert_eq!((report.objects, report.stored), (2, 2));
    assert_eq!(report.trace_seconds, 2.0);
}

#[test]
fn a_warmup_fills_the_cache_without_counting() {
    let rows = "0,1,16,100,get,0\n0,2,16,300,get,0\n1,1,16,100,get,0\n2,3,16,100,get,0\n";
    let report = csv(rows, "--warmup 2");
    assert_eq!(outcome(&report), (2, 1, 1));
    assert_eq!((report.gets, report.objects), (2, 3));
    let text = format!("timestamp_s,key_id,key_size,value_size,op,ttl_s\n{rows}");
    for (flags, reason) in [
        ("--warmup 5", "the trace has 4 requests only; none is left to count"),
        ("--warmup 4", "the trace has 4 requests only; none is left to count"),
        ("--warmup 1 --threads 2", "give --threads 1"),
    ] {
        let error = try_replay(text.as_bytes(), flags).unwrap_err().to_string();
        assert!(error.contains("--warmup") && error.contains(reason), "{error}");
    }
}

#[test]
fn evictions_of_the_warmup_do_not_count() {
    let row = |i: u64| format!("{},{i},16,1000,get,{}\n", i / 100, if i < 2000 { 5 } else { 0 });
    let rows: String = (0..20_000).map(row).collect();
    let all = csv(&rows, "--memory 2m");
    assert!(all.evictions > 10_000 && all.expired > 1000, "{all:?}");
    let end = csv(&rows, "--memory 2m --warmup 18000");
    assert!(end.evictions > 0 && end.evictions <= 2 * end.stored, "{end:?}");
    assert_eq!((end.stored, end.expired), (2000, 0));
    assert_eq!((end.objects, end.memory_used_bytes), (all.objects, all.memory_used_bytes));
}

#[test]
fn each_segment_of_a_replay_has_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("segments.csv");
    let row = |i: u64| format!("{},{i},16,1000,set,{}\n", i / 100, if i.is_multiple_of(2) { 0 } else { 1_000_000 });
    let rows: String = (0..20_000).map(row).collect();
    let flags = format!("--memory 2m --segments {}", path.display());
    let report = csv(&rows, &flags);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name| columns.iter().position(|column| *column == name).unwrap();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == columns.len()) && rows.len() > 200, "{} segments", rows.len());
    let sum = |name, row: fn(&&Vec<&str>) -> bool| -> u64 {
        rows.iter().filter(row).map(|row| row[place(name)].parse::<u64>().unwrap()).sum()
    };
    assert!(sum("objects", |_| true) >= 20_000, "survivors of evictions were written again");
    // The tenth column is the age at the end, which segments that are still there do not have.
    assert_eq!(place("left_age_s"), 10);
    assert_eq!(sum("live_objects", |row| row[10].is_empty()), report.objects);
    let left = rows.iter().filter(|row| !row[10].is_empty());
    let ages: Vec<f64> = left.map(|row| row[10].parse::<f64>().unwrap()).collect();
    assert!(!ages.is_empty() && ages.iter().all(|age| (0.0..=200.0).contains(age)), "{ages:?}");
    let ttls = |wanted: bool| rows.iter().filter(|row| row[place("ttl_min_s")].is_empty() == wanted).count();
    assert!(ttls(true) > 50 && ttls(false) > 50, "both kinds of TTLs");
    let trace = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,16,100,get,0\n";
    let again = try_replay(trace.as_bytes(), &flags).unwrap_err().to_string();
    assert!(again.contains("--overwrite"), "{again}");
    try_replay(trace.as_bytes(), &format!("{flags} --overwrite")).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
}

#[test]
fn only_gets_count_in_the_miss_ratio() {
    let report = csv(
        "0,1,16,100,set,0\n0,1,16,100,get,0\n1,1,16,100,delete,0\n1,1,16,100,gets,0\n1,9,16,100,delete,0\n",
        "--audit",
    );
    assert_eq!(outcome(&report), (5, 1, 1));
    assert_eq!((report.gets, report.deletes), (2, 2));
    audited(&report).verdict().unwrap();
}

#[test]
fn objects_expire_in_the_time_of_the_trace() {
    // Filled at 100 with 10 s to live; the trace's clock starts at its first request.
    let rows =
        "100,1,16,100,get,10\n108,1,16,100,get,10\n110,1,16,100,get,10\n118,1,16,100,get,10\n121,1,16,100,get,10\n";
    let report = csv(rows, "--audit");
    assert_eq!(outcome(&report), (5, 2, 3));
    let audit = audited(&report);
    assert_eq!((audit.late_hits, audit.wrong_values, audit.lost), (0, 0, Some(0)));
    audit.verdict().unwrap();
}

#[test]
fn writes_do_as_memcached_does() {
    // Keys 1 to 5 are absent: only add and set store. Key 1 is then present.
    let rows = "0,1,16,100,replace,0\n0,2,16,100,append,0\n0,3,16,100,prepend,0\n0,4,16,100,cas,0\n0,5,16,100,add,0\n\
                1,1,16,100,set,0\n1,1,16,50,append,0\n1,1,16,50,prepend,0\n1,1,16,200,get,0\n1,1,16,90,cas,0\n1,1,16,80,replace,0\n1,1,16,70,add,0\n";
    let report = csv(&format!("{rows}2,1,16,80,get,0\n2,5,16,100,get,0\n"), "--audit");
    assert_eq!(outcome(&report), (14, 3, 0));
    assert_eq!((report.objects, report.stored), (2, 6));
    audited(&report).verdict().unwrap();
    let report = csv(&format!("{rows}2,2,16,80,get,0\n2,3,16,80,get,0\n2,4,16,80,get,0\n"), "--audit");
    assert_eq!(outcome(&report), (15, 1, 3));
}

#[test]
fn counters_replace_values_that_are_no_numbers() {
    let rows = "0,1,16,8,incr,5\n1,1,16,8,incr,5\n1,1,16,8,decr,5\n2,1,16,8,get,5\n3,2,16,8,set,0\n3,2,16,8,incr,0\n4,2,16,8,get,0\n7,1,16,8,get,5\n";
    let report = csv(rows, "--audit");
    assert_eq!(outcome(&report), (8, 2, 1));
    audited(&report).verdict().unwrap();
}

#[test]
fn malformed_lines_are_skipped_or_refused() {
    let text = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,16,100,get,0\nrubbish\n0,1,16,100,get,0\n";
    let report = try_replay(text.as_bytes(), "").unwrap();
    assert_eq!(outcome(&report), (2, 1, 1));
    assert_eq!(report.malformed_lines, 1);
    let error = try_replay(text.as_bytes(), "--strict").unwrap_err();
    assert!(matches!(error, Error::Malformed { line: 3, .. }), "{error}");
    let error = try_replay(text.as_bytes(), "--strict --threads 2").unwrap_err();
    assert!(matches!(error, Error::Malformed { line: 3, .. }), "{error}");
}

#[test]
fn a_trace_without_a_request_is_an_error() {
    let scsi = "version,time,op,size,lbn\n1,33898,2a,512,42932745\n1,33899,2a,512,42932746\n";
    for format in ["csv", "twitter"] {
        let error = try_replay(scsi.as_bytes(), &format!("--format {format}")).unwrap_err();
        assert!(matches!(error, Error::NoRequests { malformed: 3, .. }), "{error}");
    }
    let error = try_replay(b"timestamp_s,key_id,key_size,value_size,op,ttl_s\n", "").unwrap_err();
    assert!(matches!(error, Error::NoRequests { malformed: 0, .. }), "{error}");
}

#[test]
fn a_row_of_too_many_requests_is_malformed() {
    let text = "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n0,a,20,GET,2,100,0,60\n\
                0,a,20,GET,18446744073709551615,100,0,60\n";
    let report = try_replay(text.as_bytes(), "").unwrap();
    assert_eq!((outcome(&report), report.malformed_lines), ((2, 1, 1), 1));
    assert!(matches!(try_replay(text.as_bytes(), "--strict"), Err(Error::Malformed { line: 3, .. })));
}

#[test]
fn keys_that_cannot_have_their_length_are_counted() {
    let report = csv("0,1,0,5,get,0\n0,1,300,5,get,0\n0,64,1,5,get,0\n0,1,1,5,get,0\n", "--audit");
    // Lengths 1, 250, 2 and 1: the first and the last request are for the same key.
    assert_eq!(outcome(&report), (4, 1, 3));
    assert_eq!(report.keys_resized, 3);
    audited(&report).verdict().unwrap();
}

#[test]
fn values_too_large_are_counted_and_not_stored() {
    let report = csv("0,1,16,1000,get,0\n0,1,16,2000000,set,0\n0,1,16,1000,get,0\n", "--audit --max-value 1m");
    assert_eq!(outcome(&report), (3, 0, 2));
    assert_eq!(report.store_failures, 1);
    audited(&report).verdict().unwrap();
}

#[test]
fn values_longer_than_a_segment_pass_the_audit() {
    let rows = "0,1,16,3000000,set,0\n0,1,16,3000000,get,0\n1,1,16,10,append,0\n2,1,16,3000010,get,0\n";
    let report = csv(rows, "--audit --max-value 8m");
    assert_eq!(outcome(&report), (4, 2, 0));
    audited(&report).verdict().unwrap();
}

#[test]
fn counts_are_independent_of_the_threads() {
    let mut rows = String::new();
    let mut state = 1u64;
    for request in 0..20_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = (state >> 33) % 500;
        let op = ["get", "get", "get", "get", "get", "set", "delete", "append"][(state >> 60) as usize % 8];
        let ttl = [0, 3, 60][(key % 3) as usize];
        rows.push_str(&format!("{},{key},16,{},{op},{ttl}\n", request / 400, 20 + key % 50));
    }
    let alone = csv(&rows, "--audit");
    let together = csv(&rows, "--audit --threads 3");
    assert_eq!(alone.requests, 20_000);
    assert!(alone.hits > 1000 && alone.misses > 1000, "{alone:?}");
    assert_eq!(outcome(&alone), outcome(&together));
    for report in [alone, together] {
        audited(&report).verdict().unwrap();
    }
}

#[test]
fn every_format_replays_compressed_too() {
    let twitter = "0,a,12,300,7,get,0\n1,a,12,300,7,get,0\n1,b,12,300,7,set,5\n3,b,12,300,7,get,0\n";
    let kvcache = "key,op,size,op_count,key_size\n7,GET,100,3,40\n8,SET,100,1,40\n8,GET,100,1,40\n";
    let mut oracle = Vec::new();
    for (time, id) in [(9u32, 1u64), (9, 2), (10, 1)] {
        oracle.extend(time.to_le_bytes());
        oracle.extend(id.to_le_bytes());
        oracle.extend(500u32.to_le_bytes());
        oracle.extend((-1i64).to_le_bytes());
    }
    for (name, bytes, expected) in [
        ("twitter", twitter.as_bytes(), (4, 2, 1)),
        ("kvcache", kvcache.as_bytes(), (5, 3, 1)),
        ("oracle-general", &oracle, (3, 1, 2)),
    ] {
        for bytes in [bytes, &zstd::encode_all(bytes, 1).unwrap()] {
            let report = try_replay(bytes, "--audit").unwrap();
            assert_eq!(report.format, name);
            assert_eq!(outcome(&report), expected, "{name}");
        }
    }
}

#[test]
fn the_report_has_the_names_of_the_contract() {
    let report = csv("0,1,16,100,get,0\n", "");
    let json = serde_json::to_value(&report).unwrap();
    for name in [
        "requests",
        "hits",
        "misses",
        "miss_ratio",
        "byte_miss_ratio",
        "ops_per_second",
        "memory_used_bytes",
        "objects",
        "evictions",
        "expired",
    ] {
        assert!(json[name].is_number(), "{name}");
    }
    assert!(json.get("audit").is_none());
}

#[test]
fn every_size_is_replayed_under_every_policy() {
    let line = |memory, policy| ["replay", "trace", "--memory", memory, "--policy", policy];
    let cells = Line::<ReplayArgs>::parse_from(line("16m,64m", "merge,s3fifo")).args.cells().unwrap();
    let expected = [(16, "merge"), (16, "s3fifo"), (64, "merge"), (64, "s3fifo")];
    let found: Vec<_> = cells.iter().map(|cell| (cell.memory.as_bytes() >> 20, cell.policy.name())).collect();
    assert_eq!(found, expected);
    assert!(Line::<ReplayArgs>::try_parse_from(line("16m,,64m", "merge")).is_err());
    assert!(Line::<ReplayArgs>::try_parse_from(["replay", "trace"]).is_err());
}

#[test]
fn memory_can_be_a_share_of_the_footprint() {
    // 1,000 objects of 100,000 bytes; each counts once, with the size that it had first.
    let mut rows = String::from("timestamp_s,key_id,key_size,value_size,op,ttl_s\n");
    (0..1000).for_each(|key| rows += &format!("{key},{key},16,99984,get,0\n"));
    rows += "1000,7,16,500000,set,0\n";
    let trace = file(rows.as_bytes());
    let sizes = |memory: &str| {
        let args = Line::<ReplayArgs>::parse_from(["replay", trace.path().to_str().unwrap(), "--memory", memory]).args;
        args.cells().map(|cells| cells.iter().map(|cell| cell.memory.as_bytes()).collect::<Vec<_>>())
    };
    assert_eq!(sizes("10%,64m,0.5%").unwrap(), [10_000_000, 64 << 20, 500_000]);
    assert_eq!(sizes("auto").unwrap(), [1_000_000, 3_000_000, 10_000_000, 30_000_000]);
    assert_eq!(sizes("auto,3%,0.0001%").unwrap(), [1_000_000, 3_000_000, 10_000_000, 30_000_000, 256 << 10]);
    let piped = Line::<ReplayArgs>::parse_from(["replay", "-", "--memory", "1%"]).args.cells().unwrap_err().to_string();
    assert!(piped.contains("standard input") && piped.contains("give bytes, or a file"), "{piped}");
}

#[test]
fn flash_holds_what_memory_has_no_space_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = String::from("timestamp_s,key_id,key_size,value_size,op,ttl_s\n");
    for (second, round) in (0..3).enumerate() {
        (0..18_000).for_each(|key| rows += &format!("{},{key},16,{},get,0\n", second * 200 + key / 100, 600 + round));
    }
    let trace = file(rows.as_bytes());
    let path = |flags: &str| {
        let line = ["replay", trace.path().to_str().unwrap(), "--memory"];
        Line::<ReplayArgs>::try_parse_from(line.into_iter().chain(flags.split_whitespace())).map(|line| line.args)
    };
    let run = |flags: &str| {
        let args = path(flags).unwrap();
        replay(&args, args.cells().unwrap()[0]).unwrap()
    };
    let alone = run("6m --audit");
    let file = folder.path().join("flash");
    let with_flash = run(&format!("6m --audit --flash {} --flash-size 64m --flash-promotion always", file.display()));
    assert!(alone.misses > 45_000, "{alone:?}");
    assert!(with_flash.misses < 30_000, "{with_flash:?}");
    let flash = with_flash.flash.as_ref().expect("there was flash");
    assert!(flash.hits > 8000 && flash.inserts > 5000 && flash.written_bytes > flash.inserted_bytes, "{flash:?}");
    let audit = audited(&with_flash);
    assert_eq!((audit.late_hits, audit.wrong_values), (0, 0));
    let by_default = run(&format!("6m --flash {} --flash-size 64m", file.display()));
    let found = by_default.flash.as_ref().expect("there was flash");
    assert!(
        by_default.misses < 30_000 && found.hits > 8000 && found.promoted < found.hits / 10,
        "each came once in a turn: {found:?}"
    );
    let few = run(&format!(
        "6m --flash {} --flash-size 64m --flash-admission probability:0.1 --flash-promotion never",
        file.display()
    ));
    let (all, few) = (flash, few.flash.as_ref().expect("there was flash"));
    assert_eq!((all.promoted, few.promoted), (all.hits, 0));
    assert!(few.hits > 100 && few.written_bytes < all.written_bytes / 2 && few.refused > few.inserts, "{few:?}");
    assert!(path("6m --flash f --flash-size 64m --flash-admission most").is_err(), "no such policy");
    let two = path(&format!("2m,4m --flash {} --flash-size 64m", file.display())).unwrap();
    ebbtide_lab::replay::run(two).unwrap();
    assert!([".0", ".1"].map(|number| folder.path().join(format!("flash{number}")).exists()) == [true; 2]);
    assert!(path("2m --flash somewhere").is_err(), "its size is missing");
}

#[test]
fn what_flash_writes_again_is_a_choice() {
    let folder = tempfile::tempdir().unwrap();
    let file_of_flash = folder.path().join("flash");
    let mut rows = String::from("timestamp_s,key_id,key_size,value_size,op,ttl_s\n");
    // A few keys that memory has no space for come back again and again, among many that do not.
    for step in 0..3000 {
        rows += &format!("{0},{1},16,4000,get,0\n{0},{2},16,4000,get,0\n", step / 50, step % 450, 10_000 + step);
    }
    let trace = file(rows.as_bytes());
    let run = |flags: &str| {
        let line = ["replay", trace.path().to_str().unwrap(), "--memory", "1m", "--flash-size", "6m", "--flash"];
        let line = line.into_iter().chain([file_of_flash.to_str().unwrap()]).chain(flags.split_whitespace());
        let args = Line::<ReplayArgs>::try_parse_from(line).unwrap().args;
        let report = replay(&args, args.cells().unwrap()[0]).unwrap();
        let flash = report.flash.as_ref().expect("there was flash");
        (report.hits, flash.rewritten, flash.written_bytes)
    };
    let none = run("--flash-reclaim fifo --flash-reinsertion none");
    let auto = run("--flash-reclaim fifo");
    let lru = run("--flash-reinsertion none");
    assert_eq!((none.1, lru.1), (0, 0));
    assert!(auto.1 > 100 && auto.0 > none.0, "{auto:?} {none:?}");
    assert!(auto.2 < none.2 * 21 / 20, "as many bytes of new objects are refused: {auto:?} {none:?}");
    assert!(lru.0 != none.0, "{lru:?} {none:?}");
}
