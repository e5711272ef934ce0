//! `replay --divide auto`: the controller moves memory to the pool that earns hits by it, in the time of the trace.

use crate::line::Line;
use crate::pooled::{MIB, file, memory, replay_file};
use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::replay::{ReplayArgs, ReplayReport, replay};
use tempfile::NamedTempFile;

/// Requests of each pool in a second.
const RATE: u64 = 100;

fn try_replay(trace: &NamedTempFile, pools: &str, flags: &str) -> Result<ReplayReport, Error> {
    replay_file(trace.path(), pools, flags)
}

/// The key of a request, from its second and its number.
type KeyOf = fn(u64, u64) -> u64;

/// A trace of gets of 1,000 bytes: each pool has the same rate of gets.
fn trace(seconds: u64, pools: &[(&str, KeyOf)]) -> NamedTempFile {
    let mut text = "timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n".to_owned();
    for second in 0..seconds {
        for number in 0..RATE {
            for (pool, key) in pools {
                let key = key(second, second * RATE + number);
                text.push_str(&format!("{second},{key},16,1000,get,0,{pool}\n"));
            }
        }
    }
    file(&text)
}

/// Keys drawn evenly from a range.
fn even(number: u64, keys: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 27)) % keys
}

fn asks_again(_: u64, number: u64) -> u64 {
    even(number, 5000)
}

/// The same load, of other keys.
fn asks_others(_: u64, number: u64) -> u64 {
    even(number ^ (1 << 40), 5000)
}

fn asks_once(_: u64, number: u64) -> u64 {
    1_000_000 + number
}

const TWO_POOLS: &str = "[[pool]]\nname = \"again\"\n[[pool]]\nname = \"once\"\n";

#[test]
fn memory_goes_to_the_pool_that_asks_again() {
    let trace = trace(1500, &[("again", asks_again), ("once", asks_once)]);
    let fixed = try_replay(&trace, TWO_POOLS, "--memory 8m").unwrap();
    let best = try_replay(&trace, TWO_POOLS, "--memory 8m --divide optimal").unwrap();
    let auto = try_replay(&trace, TWO_POOLS, "--memory 8m --divide auto").unwrap();
    // The pool of 5 MB of objects gets their memory; the other one gains no hits from memory.
    assert!(memory(&best)[0] > 5 * MIB && memory(&best)[1] >= MIB, "{:?}", memory(&best));
    assert!(memory(&auto)[0] > 5 * MIB && memory(&auto)[1] >= MIB, "{:?}", memory(&auto));
    assert!(memory(&auto).iter().sum::<u64>() <= 8 * MIB);
    let avoided = |report: &ReplayReport| fixed.misses as f64 - report.misses as f64;
    assert!(avoided(&best) > 10_000.0, "{} {}", fixed.misses, best.misses);
    assert!(avoided(&auto) > 0.8 * avoided(&best), "{} of {}", avoided(&auto), avoided(&best));
    let decisions = auto.decisions.as_ref().unwrap();
    let first = &decisions[0];
    assert!(first.reason.starts_with("again +") && first.reason.contains("from once: "), "{}", first.reason);
    assert!(first.moves.iter().map(|step| step.bytes).sum::<u64>() <= 8 * MIB / 20, "{first:?}");
    assert!(decisions.iter().all(|decision| !decision.is_undo), "{decisions:?}");
    let again = try_replay(&trace, TWO_POOLS, "--memory 8m --divide auto").unwrap();
    assert_eq!(auto.decisions, again.decisions, "a replay depends on the trace and the seed alone");
}

#[test]
fn equal_loads_keep_equal_memory() {
    let trace = trace(900, &[("again", asks_again), ("once", asks_others)]);
    let auto = try_replay(&trace, TWO_POOLS, "--memory 6m --divide auto").unwrap();
    assert_eq!(auto.decisions, Some(Vec::new()));
    assert_eq!(memory(&auto), [3 * MIB, 3 * MIB]);
}

/// Keys one after the other, more than the memory holds: LRU misses each of them.
fn asks_in_a_loop(_: u64, number: u64) -> u64 {
    number % 6000
}

#[test]
fn a_pool_gets_the_policy_that_misses_least() {
    let trace = trace(600, &[("again", asks_in_a_loop), ("once", asks_once)]);
    let pools = file(TWO_POOLS);
    let divided = format!("--pools {} --memory 8m --policy lru", pools.path().display());
    let run = |flags: &str| {
        let line = format!("replay {} {flags}", trace.path().display());
        let args = Line::<ReplayArgs>::parse_from(line.split_whitespace()).args;
        replay(&args, args.cells().unwrap()[0])
    };
    let fixed = run(&divided).unwrap();
    for divide in ["static", "auto"] {
        let chosen = run(&format!("{divided} --divide {divide} --controller-policies random,lru")).unwrap();
        let changes: Vec<_> =
            chosen.decisions.iter().flatten().filter_map(|decision| decision.policy.as_ref()).collect();
        let [change] = changes[..] else { panic!("{changes:?}") };
        assert_eq!([&change.pool, &change.from, &change.to], ["again", "lru", "random"]);
        assert!(change.miss_ratio_before > 0.95 && change.miss_ratio_after < 0.9 && change.gets >= 4000, "{change:?}");
        assert!(chosen.misses + 5000 < fixed.misses, "{divide}: {} {}", chosen.misses, fixed.misses);
    }
    let alone = run("--memory 8m --policy random --controller-policies lru").unwrap();
    assert_eq!(alone.decisions, Some(Vec::new()), "the policy is the better one already");
    let refused = run("--memory 8m --controller-policies lru --threads 2").unwrap_err().to_string();
    assert!(refused.contains("--controller-policies needs one thread"), "{refused}");
}

#[test]
fn hits_count_by_their_value() {
    let trace = trace(300, &[("again", asks_again), ("once", asks_others)]);
    let valued = "[[pool]]\nname = \"again\"\n[[pool]]\nname = \"once\"\nhit_value = 50\n";
    let best = try_replay(&trace, valued, "--memory 6m --divide optimal").unwrap();
    assert!(memory(&best)[1] > memory(&best)[0] + MIB, "{:?}", memory(&best));
    let auto = try_replay(&trace, valued, "--memory 6m --divide auto").unwrap();
    assert!(memory(&auto)[1] > memory(&auto)[0], "{:?}", memory(&auto));
}

/// Records of 100 bytes are asked for ten times as often as pages of 10,000 bytes; all of each take 5 MB.
fn records_and_pages(seconds: u64) -> NamedTempFile {
    let mut text = "timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n".to_owned();
    for second in 0..seconds {
        for number in second * 400..(second + 1) * 400 {
            text.push_str(&format!("{second},{},16,100,get,0,records\n", even(number, 40_000)));
            if number % 10 == 0 {
                text.push_str(&format!("{second},{},16,10000,get,0,pages\n", 100_000 + even(number, 500)));
            }
        }
    }
    file(&text)
}

#[test]
fn bytes_are_served_where_they_are_the_objective() {
    let trace = records_and_pages(600);
    let pools = "[[pool]]\nname = \"records\"\n[[pool]]\nname = \"pages\"\n";
    let run = |flags: &str| try_replay(&trace, pools, &format!("--memory 6m {flags}")).unwrap();
    for (objective, records_first) in [("objects", true), ("bytes", false)] {
        let best = run(&format!("--divide optimal --objective {objective}"));
        let [records, pages] = memory(&best)[..] else { panic!("{best:?}") };
        assert_eq!(records > pages, records_first, "{objective}: {records} {pages}");
        let auto = run(&format!("--divide auto --objective {objective}"));
        let [records, pages] = memory(&auto)[..] else { panic!("{auto:?}") };
        assert!(if records_first { records > pages + MIB } else { pages > records + MIB }, "{records} {pages}");
        let decision = &auto.decisions.unwrap()[0];
        assert_eq!(decision.moves[0].gained_bytes_per_second.is_some(), !records_first, "{decision:?}");
        assert_eq!(decision.reason.contains("more of hits a second"), !records_first, "{}", decision.reason);
    }
    let byte_misses = |objective: &str| run(&format!("--divide auto --objective {objective}")).byte_miss_ratio;
    assert!(byte_misses("bytes") + 0.02 < byte_misses("objects"));
}

#[test]
fn memory_moves_to_a_pool_with_arriving_load() {
    fn first_again(second: u64, number: u64) -> u64 {
        if second < 900 { asks_again(second, number) } else { asks_once(second, number) }
    }
    fn then_again(second: u64, number: u64) -> u64 {
        if second < 900 { asks_once(second, number) } else { asks_others(second, number) }
    }
    let trace = trace(2700, &[("again", first_again), ("once", then_again)]);
    let auto = try_replay(&trace, TWO_POOLS, "--memory 8m --divide auto").unwrap();
    let to = |pool: &str, from: f64| {
        let decisions = auto.decisions.iter().flatten().filter(move |decision| decision.seconds >= from);
        decisions.flat_map(|decision| &decision.moves).find(|step| step.to == pool).is_some()
    };
    assert!(to("again", 0.0) && to("once", 900.0), "{:?}", auto.decisions);
    assert!(memory(&auto)[1] > memory(&auto)[0], "{:?}", memory(&auto));
}

#[test]
fn bounds_hold_and_contradictions_are_refused() {
    let trace = trace(600, &[("again", asks_again), ("once", asks_once)]);
    let bounded = "[[pool]]\nname = \"again\"\nmax = \"4500k\"\n[[pool]]\nname = \"once\"\nmin = \"3m\"\n";
    let auto = try_replay(&trace, bounded, "--memory 8m --divide auto").unwrap();
    assert!(memory(&auto)[0] <= 4500 << 10 && memory(&auto)[1] >= 3 * MIB, "{:?}", memory(&auto));
    let refused = |flags: &str| try_replay(&trace, TWO_POOLS, flags).unwrap_err().to_string();
    let message = refused("--memory 8m --divide auto --threads 2");
    assert!(message.contains("--threads") && message.contains("needs one thread"), "{message}");
    let message = refused("--memory 8m --divide auto --max-value 3m");
    assert!(message.contains("at least 12582912 bytes and there are 8388608"), "{message}");
}

#[test]
fn a_target_hit_ratio_gets_its_memory() {
    let trace = trace(2400, &[("again", asks_again), ("once", asks_others)]);
    let pools =
        |target: &str| format!("[[pool]]\nname = \"again\"\ntarget_hit_ratio = {target}\n[[pool]]\nname = \"once\"\n");
    let auto = try_replay(&trace, &pools("0.9"), "--memory 7m --divide auto").unwrap();
    let [again, once] = memory(&auto)[..] else { panic!("{auto:?}") };
    // 5,000 objects of 1,016 bytes, evenly asked for: 90 % of the hits take nine tenths of them.
    assert!(again > 9 * MIB / 2 && again < 11 * MIB / 2 && once > 3 * MIB / 2, "{again} {once}");
    let said = auto.pools.unwrap()[0].target.clone().unwrap();
    assert!(said.starts_with("again: 90 % of hits take "), "{said}");
    let more = try_replay(&trace, &pools("\"90%\""), "--memory 3m --divide auto").unwrap();
    let said = more.pools.unwrap()[0].target.clone().unwrap();
    assert!(said.starts_with("again: 90 % of hits would take ") && said.ends_with("it can have 2 MiB"), "{said}");
    assert!(more.decisions.unwrap().is_empty(), "both pools earn the same");
}
