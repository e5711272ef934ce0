//! Statistics by key prefix: what `stats detail` counts while it is on.
//!
//! A prefix is the part of a key before the first delimiter; keys without a delimiter are not counted. The number of
//! prefixes is bounded: keys of further prefixes are not counted either, until `stats reset`.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ebbtide_protocol::encoding::{is_binary, uri_encode};

use crate::sync::lock;

/// Prefixes at a time: a few megabytes at most.
const MAX_PREFIXES: usize = 10_000;

pub struct PrefixStats {
    pub delimiter: u8,
    counting: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, PrefixCounts>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PrefixCounts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

impl PrefixStats {
    pub fn new(delimiter: u8, counting: bool) -> Self {
        Self { delimiter, counting: AtomicBool::new(counting), counts: Mutex::default() }
    }

    #[inline]
    pub fn is_counting(&self) -> bool {
        self.counting.load(Ordering::Relaxed)
    }

    pub fn set_counting(&self, counting: bool) {
        self.counting.store(counting, Ordering::Relaxed);
    }

    pub fn reset(&self) {
        lock(&self.counts).clear();
    }

    pub fn count_get(&self, key: &[u8], hit: bool) {
        self.count(key, |counts| {
            counts.gets += 1;
            counts.hits += u64::from(hit);
        });
    }

    pub fn count_set(&self, key: &[u8]) {
        self.count(key, |counts| counts.sets += 1);
    }

    pub fn count_delete(&self, key: &[u8]) {
        self.count(key, |counts| counts.deletes += 1);
    }

    fn count(&self, key: &[u8], count: impl FnOnce(&mut PrefixCounts)) {
        let Some(end) = key.iter().position(|byte| *byte == self.delimiter) else {
            return;
        };
        let mut all = lock(&self.counts);
        let has_space = all.len() < MAX_PREFIXES;
        match all.get_mut(&key[..end]) {
            Some(counts) => count(counts),
            None if has_space => count(all.entry(key[..end].into()).or_default()),
            None => {}
        }
    }

    /// A line for each prefix. A binary one, which may hold line ends, is encoded as metadump encodes keys.
    pub fn dump(&self, out: &mut Vec<u8>) {
        for (prefix, counts) in lock(&self.counts).iter() {
            out.extend_from_slice(b"PREFIX ");
            match is_binary(prefix) {
                true => uri_encode(out, prefix),
                false => out.extend_from_slice(prefix),
            }
            let PrefixCounts { gets, hits, sets, deletes } = counts;
            write!(out, " get {gets} hit {hits} set {sets} del {deletes}\r\n")
                .expect("a Vec takes all that is written to it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(stats_prefix: &PrefixStats) -> String {
        let mut out = Vec::new();
        stats_prefix.dump(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_first_delimiter_ends_the_counted_prefix() {
        let stats_prefix = PrefixStats::new(b'/', true);
        stats_prefix.count_get(b"a/b/c", true);
        stats_prefix.count_get(b"a/d", false);
        stats_prefix.count_set(b"/x");
        stats_prefix.count_delete(b"a/");
        stats_prefix.count_set(b"plain:key");
        assert_eq!(dump(&stats_prefix), "PREFIX  get 0 hit 0 set 1 del 0\r\nPREFIX a get 2 hit 1 set 0 del 1\r\n");
        stats_prefix.reset();
        assert_eq!(dump(&stats_prefix), "");
    }

    #[test]
    fn the_number_of_prefixes_is_bounded() {
        let stats_prefix = PrefixStats::new(b':', true);
        for n in 0..MAX_PREFIXES + 5 {
            stats_prefix.count_set(format!("{n}:k").as_bytes());
        }
        stats_prefix.count_set(b"0:k");
        let text = dump(&stats_prefix);
        assert_eq!(text.lines().count(), MAX_PREFIXES);
        assert!(text.contains("PREFIX 0 get 0 hit 0 set 2 del 0\r\n"));
    }
}
