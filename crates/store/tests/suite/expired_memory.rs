//! How soon the memory of expired items is reused, for many mixes of TTLs and write rates.

use crate::common::StoreSubject;
use ebbtide_store::{Mode, Options, Progress, Ttl, Write};
use std::collections::VecDeque;

/// A key that was set, and the end of its TTL.
type Set = (u64, u64);

/// A store and the keys that were set: objects of one size, each key once.
struct Writer {
    subject: StoreSubject,
    value: Vec<u8>,
    now_ms: u64,
    next_key: u64,
    /// Whether more is set than the memory holds.
    evicts: bool,
    /// By TTL, in the order in which they expire.
    sets: Vec<(u32, VecDeque<Set>)>,
}

impl Writer {
    fn new(memory_bytes: u64, value_bytes: usize) -> Self {
        let defaults = Options::default();
        let value_bytes_max = defaults.value_bytes_max.min(memory_bytes / 2);
        let options =
            Options { memory_bytes, memory_bytes_max: Some(memory_bytes), value_bytes_max, writers: 2, ..defaults };
        let subject = StoreSubject::new(options);
        Self { subject, value: vec![7; value_bytes], now_ms: 1_000_000, next_key: 0, evicts: false, sets: Vec::new() }
    }

    fn set(&mut self, ttl: u32) {
        let key = self.next_key.to_le_bytes();
        let (store, now_ms) = (&self.subject.store, self.now_ms);
        let (hash, value) = (store.hash(&key), &self.value[..]);
        let write =
            Write { key: &key, hash, value, flags: 0.into(), ttl: Ttl::Seconds(ttl), mode: Mode::Set, token: None };
        let written =
            self.subject.retry_with_eviction(now_ms, || store.write(&self.subject.participant, &write, now_ms));
        written.expect("there is space");
        let set = (self.next_key, now_ms + u64::from(ttl) * 1000);
        match self.sets.iter_mut().find(|(of, _)| *of == ttl) {
            Some((_, sets)) => sets.push_back(set),
            None => self.sets.push((ttl, VecDeque::from([set]))),
        }
        self.next_key += 1;
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        while self.subject.store.maintain(&self.subject.participant, self.now_ms) == Progress::Working {}
    }

    /// Bytes in the index of objects that expired over a second ago. None of the others is removed early, or served
    /// late.
    fn waiting_bytes(&mut self) -> u64 {
        let mut alive = 0;
        for (ttl, sets) in &mut self.sets {
            let promised_ms = u64::from(*ttl) * 1000 - (u64::from(*ttl) * 16).max(1000);
            while sets.front().is_some_and(|(_, end_ms)| end_ms + 1000 <= self.now_ms) {
                let (key, _) = sets.pop_front().unwrap();
                assert!(
                    self.subject.get(&key.to_le_bytes(), self.now_ms).is_none(),
                    "{key} with {ttl} s is served late"
                );
            }
            let stats = self.subject.store.stats();
            for (key, end_ms) in sets {
                let is_served = self.subject.get(&key.to_le_bytes(), self.now_ms).is_some();
                let promised_until_ms = *end_ms - u64::from(*ttl) * 1000 + promised_ms;
                let is_promised = !self.evicts && self.now_ms < promised_until_ms;
                assert!(is_served || !is_promised, "{key} with {ttl} s is gone early: {stats:?}");
                alive += u64::from(is_served);
            }
        }
        let stats = self.subject.store.stats();
        let waiting = (stats.items - alive) * (stats.live_bytes / stats.items.max(1));
        let counted = self.subject.store.segment_snapshot(self.now_ms).expired_bytes;
        assert!(self.evicts || counted == waiting, "the snapshot counts {counted} of {waiting} that wait: {stats:?}");
        waiting
    }

    /// Asserts that little waits and that nothing was evicted.
    fn check(&mut self) {
        let (waiting, memory_bytes) = (self.waiting_bytes(), self.subject.store.memory_bytes());
        let stats = self.subject.store.stats();
        assert!(waiting * 500 <= memory_bytes, "{waiting} expired bytes wait at {} ms: {stats:?}", self.now_ms);
        assert!(self.evicts || stats.evictions == 0, "{stats:?}");
    }
}

/// A TTL of about an hour: evenly within 10 % of it.
fn about_an_hour(number: u64) -> u32 {
    3240 + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as u32 % 720
}

/// Sets with these TTLs in turn, one every `interval_ms`, until the longest has ended `turns` times.
fn set_in_turn(memory_bytes: u64, value_bytes: usize, ttls: &[u32], interval_ms: u64, turns: f64) {
    let mut writer = Writer::new(memory_bytes, value_bytes);
    let longest_ms = f64::from(*ttls.iter().max().unwrap()) * 1000.0;
    let steps = (longest_ms * turns / interval_ms as f64) as usize;
    for step in 0..steps {
        writer.set(ttls[step % ttls.len()]);
        writer.pass(interval_ms);
        if step % (steps / 97).max(1) == 0 {
            writer.check();
        }
    }
    writer.pass(longest_ms as u64 + 1000);
    writer.check();
    let stats = writer.subject.store.stats();
    assert_eq!(stats.items, 0, "everything has expired: {stats:?}");
    println!(
        "{ttls:?} every {interval_ms} ms in {memory_bytes}: {} set, {} copied",
        stats.stored_total, stats.survived
    );
    writer.subject.store.verify(&writer.subject.participant, writer.now_ms);
}

/// The milliseconds between sets in turn that keep this share of the memory alive.
fn interval_ms(memory_bytes: u64, value_bytes: usize, ttls: &[u32], share: f64) -> u64 {
    let mean_ms = ttls.iter().map(|ttl| f64::from(*ttl) * 1000.0).sum::<f64>() / ttls.len() as f64;
    let objects = memory_bytes as f64 * share / (value_bytes + 13) as f64;
    (mean_ms / objects).max(1.0) as u64
}

const MIX: [u32; 4] = [120, 600, 3600, 86_400];

#[test]
fn expired_memory_is_reusable_with_one_ttl() {
    const MEMORY: u64 = 16 << 20;
    for ttl in [600, 3600, 86_400] {
        for (value_bytes, share) in [(1000, 0.8), (1000, 0.1), (30_000, 0.7), (30_000, 0.05)] {
            set_in_turn(MEMORY, value_bytes, &[ttl], interval_ms(MEMORY, value_bytes, &[ttl], share), 2.3);
        }
    }
}

#[test]
fn expired_memory_is_reused_with_mixed_ttls() {
    const MEMORY: u64 = 16 << 20;
    for (value_bytes, share) in [(1000, 0.7), (1000, 0.1), (30_000, 0.5)] {
        set_in_turn(MEMORY, value_bytes, &MIX, interval_ms(MEMORY, value_bytes, &MIX, share), 2.3);
        set_in_turn(MEMORY, value_bytes, &MIX[..3], interval_ms(MEMORY, value_bytes, &MIX[..3], share), 4.1);
    }
}

#[test]
fn expired_memory_is_reusable_in_a_large_memory() {
    const MEMORY: u64 = 1 << 30;
    for ttls in [&[600][..], &[3600], &[86_400], &MIX] {
        for share in [0.15, 0.01] {
            set_in_turn(MEMORY, 60_000, ttls, interval_ms(MEMORY, 60_000, ttls, share), 1.5);
        }
    }
}

#[test]
fn expired_memory_is_reused_with_distinct_ttls() {
    const MEMORY: u64 = 16 << 20;
    let mut writer = Writer::new(MEMORY, 1000);
    let interval_ms = interval_ms(MEMORY, 1000, &[3600], 0.7);
    for number in 0..2 * 3600 * 1000 / interval_ms {
        writer.set(about_an_hour(number));
        writer.pass(interval_ms);
        if number % 500 == 0 {
            writer.check();
        }
    }
    let stats = writer.subject.store.stats();
    println!("about an hour: {} set, {} copied", stats.stored_total, stats.survived);
    assert!(stats.survived < 20 * stats.stored_total, "{stats:?}");
    writer.subject.store.verify(&writer.subject.participant, writer.now_ms);
}

#[test]
fn nothing_alive_is_evicted_while_expired_memory_waits() {
    const MEMORY: u64 = 16 << 20;
    let mut writer = Writer::new(MEMORY, 1000);
    writer.evicts = true;
    // The writers evict: there is no maintenance.
    let interval_ms = interval_ms(MEMORY, 1000, &[3600, 600], 1.3);
    let (mut evictions, mut looks) = (0, 0);
    for number in 0..2 * 3600 * 1000 / interval_ms {
        writer.set(if number % 2 == 0 { about_an_hour(number) } else { 600 });
        writer.now_ms += interval_ms;
        let evicted = writer.subject.store.stats().evictions;
        if evicted > evictions {
            looks += 1;
            if looks % 20 == 0 {
                writer.now_ms -= interval_ms;
                writer.check();
                writer.now_ms += interval_ms;
            }
            evictions = evicted;
        }
    }
    assert!(looks > 200, "{looks} times something was evicted");
    writer.subject.store.verify(&writer.subject.participant, writer.now_ms);
}

/// TTLs of 20 classes, from a minute to a month.
fn classes() -> Vec<u32> {
    (0..20).map(|class| (60.0 * 1.75_f64.powi(class)) as u32).collect()
}

#[test]
fn a_small_memory_keeps_data_of_many_ttls() {
    // The floor of a pool, and a small server.
    for (memory_bytes, descending) in [256 << 10, 4 << 20].into_iter().flat_map(|bytes| [(bytes, false), (bytes, true)])
    {
        let mut ttls = classes();
        if descending {
            ttls.reverse();
        }
        let mut writer = Writer::new(memory_bytes, 100);
        // Key, value and metadata of 113 bytes: 55 % of the memory.
        let count = memory_bytes as usize / 205;
        for number in 0..count {
            writer.set(ttls[number % ttls.len()]);
        }
        let stats = writer.subject.store.stats();
        assert_eq!((stats.items, stats.evictions), (count as u64, 0), "{memory_bytes}: {stats:?}");
        let mut ends: Vec<_> = ttls.iter().map(|ttl| 1_000_000 + u64::from(*ttl) * 1000).collect();
        ends.sort_unstable();
        for end_ms in ends {
            for at_ms in [end_ms - 1, end_ms + 1000] {
                writer.pass(at_ms.saturating_sub(writer.now_ms));
                writer.check();
            }
        }
        let stats = writer.subject.store.stats();
        assert_eq!((stats.items, stats.segments_free), (0, stats.segments_total), "{stats:?}");
        writer.subject.store.verify(&writer.subject.participant, writer.now_ms);
    }
}

#[test]
fn a_full_list_seals_no_other_segment() {
    for descending in [false, true] {
        let mut ttls: Vec<u32> = (0..32).map(|octave| 1 << octave).collect();
        if descending {
            ttls.reverse();
        }
        let mut writer = Writer::new(4 << 20, 100);
        for number in 0..3200 {
            writer.set(ttls[number % ttls.len()]);
        }
        let snapshot = writer.subject.store.segment_snapshot(writer.now_ms);
        assert_eq!(snapshot.segments_sealed, 0, "{snapshot:?}");
        // The limit, one for each octave with units of a second, and one for two of the others.
        assert!(snapshot.segments_open <= 4 + 7 + 10 + 1, "{snapshot:?}");
        writer.check();
        writer.subject.store.verify(&writer.subject.participant, writer.now_ms);
    }
}

#[test]
fn a_small_memory_is_freed_from_many_ttls() {
    const MEMORY: u64 = 4 << 20;
    let ttls = &classes()[..12];
    set_in_turn(MEMORY, 100, ttls, interval_ms(MEMORY, 100, ttls, 0.55), 1.3);
    set_in_turn(MEMORY, 1000, &classes(), interval_ms(MEMORY, 1000, &classes(), 0.55), 1.3);
}
