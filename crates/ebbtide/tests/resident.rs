//! Resident memory follows the limit down. In a process of its own, because it reads the process's resident size.

mod common;

use common::resident_bytes;
use ebbtide::memcached::{ByteSize, Cache, Clock};

#[test]
fn memory_goes_back_to_the_system() {
    let cache = Cache::builder().memory(ByteSize::mib(256)).clock(Clock::Manual).seed(1).build().unwrap();
    let value = vec![7; 20_000];
    for number in 0..16_000 {
        cache.insert(format!("key{number}").as_bytes(), &value).apply().unwrap();
    }
    let full = resident_bytes();
    assert!(full > 230 << 20, "{full} bytes are resident in a full cache of 256 MiB");
    assert!(full < (256 + 256 / 20 + 32) << 20, "{full} bytes are resident, more than the limit and 5 %");
    cache.resize(ByteSize::mib(64)).unwrap();
    let shrunk = resident_bytes();
    assert!(shrunk < (64 + 32) << 20, "{shrunk} bytes are resident after a change to 64 MiB");
    let alive = (0..16_000)
        .filter(|number| cache.get(format!("key{number}").as_bytes()).hit().is_some_and(|item| item.to_vec() == value))
        .count();
    assert!(alive > 1500, "{alive} objects are left");
    cache.resize(ByteSize::mib(256)).unwrap();
    for number in 0..16_000 {
        cache.insert(format!("key{number}").as_bytes(), &value).apply().unwrap();
    }
    assert!(resident_bytes() > 230 << 20);
    cache.verify();
}
