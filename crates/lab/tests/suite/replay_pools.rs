//! `replay --pools`: pools have the memory that the file sets, and none takes from another.

use crate::pooled::{MIB, file, memory, replay_file};
use ebbtide_lab::Error;
use ebbtide_lab::replay::ReplayReport;

fn try_replay(trace: &str, pools: &str, flags: &str) -> Result<ReplayReport, Error> {
    replay_file(file(trace).path(), pools, flags)
}

fn csv(rows: impl IntoIterator<Item = String>) -> String {
    let mut text = "timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n".to_owned();
    rows.into_iter().for_each(|row| text.push_str(&row));
    text
}

/// (name, requests, hits, misses) of each pool.
fn outcome(report: &ReplayReport) -> Vec<(&str, u64, u64, u64)> {
    let pools = report.pools.as_ref().expect("pools were replayed");
    pools.iter().map(|pool| (pool.name.as_str(), pool.requests, pool.hits, pool.misses)).collect()
}

#[test]
fn each_pool_has_its_own_keys_and_counts() {
    let rows = ["0,1,16,100,get,0,a\n", "0,1,16,100,get,0,b\n", "1,1,16,100,get,0,a\n", "1,2,16,100,set,0,b\n"];
    for threads in ["", "--threads 2"] {
        let report = try_replay(
            &csv(rows.map(str::to_owned)),
            "[[pool]]\nname = \"b\"\n[[pool]]\nname = \"a\"\nweight = 3\n",
            &format!("--memory 64m --audit {threads}"),
        )
        .unwrap();
        assert_eq!(outcome(&report), [("b", 2, 0, 1), ("a", 2, 1, 1)]);
        assert_eq!(memory(&report), [16 * MIB, 48 * MIB]);
        assert_eq!((report.requests, report.hits, report.misses, report.objects), (4, 1, 2, 3));
        assert_eq!(report.memory_limit_bytes, 64 * MIB);
        report.audit.as_ref().unwrap().verdict().unwrap();
    }
}

#[test]
fn a_flood_costs_other_pools_no_hit() {
    let get = |time: u32, key: u32, pool: &str| format!("{time},{key},16,1000,get,0,{pool}\n");
    let quiet = |time: u32| (0..1000).map(move |key| get(time, key, "quiet"));
    // Ten times as many bytes as the flooded pool has.
    let flood = (0..40_000).map(|key| get(1, key, "flooded"));
    let pools = "[[pool]]\nname = \"quiet\"\n[[pool]]\nname = \"flooded\"\n";
    let alone = try_replay(&csv(quiet(0).chain(quiet(2))), pools, "--memory 8m").unwrap();
    let beside = try_replay(&csv(quiet(0).chain(flood).chain(quiet(2))), pools, "--memory 8m").unwrap();
    assert_eq!(outcome(&beside)[0], outcome(&alone)[0]);
    assert_eq!(outcome(&beside)[0], ("quiet", 2000, 1000, 1000));
    assert!(beside.evictions > 30_000, "{}", beside.evictions);
}

#[test]
fn memory_is_divided_as_asked() {
    // Three times as many bytes of distinct objects in `large`, asked for as often.
    let get =
        |key: u32, pool: &str| format!("0,{},16,1000,get,0,{pool}\n", if pool == "small" { key % 1000 } else { key });
    let rows = || (0..3000).flat_map(|key| [get(key, "small"), get(key, "large")]);
    let pools = "[[pool]]\nname = \"small\"\nweight = 7\n[[pool]]\nname = \"large\"\nmax = \"30m\"\n";
    let divided = |flags: &str| memory(&try_replay(&csv(rows()), pools, flags).unwrap());
    assert_eq!(divided("--memory 32m"), [28 * MIB, 4 * MIB]);
    assert_eq!(divided("--memory 32m --divide equal"), [16 * MIB, 16 * MIB]);
    assert_eq!(divided("--memory 32m --divide proportional"), [8 * MIB, 24 * MIB]);
    assert_eq!(divided("--memory 64m --divide proportional"), [34 * MIB, 30 * MIB], "a max holds");
}

#[test]
fn text_keys_belong_to_the_longest_prefix() {
    let row = |key: &str| format!("0,{key},20,100,7,get,0\n");
    let trace: String = ["user:1", "user:vip:1", "user:1", "page:1"].map(row).concat();
    let pools = "[[pool]]\nname = \"users\"\nprefix = \"user:\"\n[[pool]]\nname = \"vips\"\nprefix = \"user:vip:\"\n";
    let report = try_replay(&trace, &format!("{pools}[[pool]]\nname = \"default\"\n"), "--memory 64m").unwrap();
    assert_eq!(outcome(&report), [("users", 2, 1, 1), ("vips", 1, 0, 1), ("default", 1, 0, 1)]);
    let message = try_replay(&trace, pools, "--memory 64m").unwrap_err().to_string();
    assert!(message.contains("`(none)`") && message.contains("default"), "{message}");
}

#[test]
fn pools_that_do_not_fit_are_refused() {
    let rows = || csv(["0,1,16,100,get,0,a\n".to_owned()]);
    let refused = |trace: &str, pools: &str, flags: &str| try_replay(trace, pools, flags).unwrap_err().to_string();
    let message = refused(&rows(), "[[pool]]\nname = \"a\"\nmin = \"1g\"\n[[pool]]\nname = \"b\"\n", "--memory 64m");
    assert!(message.contains("at least 1074790400 bytes and there are 67108864: a 1073741824, b 1048576"), "{message}");
    let message = refused(&rows(), "[[pool]]\nname = \"b\"\n", "--memory 64m");
    assert!(message.contains("`a`, which is not in the file"), "{message}");
    let plain = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,16,100,get,0\n";
    let message = refused(plain, "[[pool]]\nname = \"a\"\n", "--memory 64m");
    assert!(message.contains("the trace has no column `pool`"), "{message}");
    let message = refused(&rows(), "[[pool]]\nname = \"a\"\n", "--memory 64m --max-value 40m");
    assert!(message.starts_with("pool a: ") && message.contains("40"), "{message}");
}

#[test]
fn the_json_object_names_pools_and_decisions() {
    let rows = csv(["0,1,16,100,get,0,a\n".to_owned()]);
    let report = try_replay(&rows, "[[pool]]\nname = \"a\"\n", "--memory 8m").unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let expected = serde_json::json!([
        {"name": "a", "requests": 1, "hits": 0, "misses": 1, "memory_bytes": 8 * MIB}
    ]);
    assert_eq!((&json["pools"], &json["decisions"]), (&expected, &serde_json::json!([])));
}
