//! How soon the memory of expired items is there again, whatever their TTLs are and however fast they are written.

mod common;

use common::StoreSubject;
use ebbtide_store::{Mode, Options, Progress, Ttl, Write};
use std::collections::VecDeque;

/// A key that was set, and when its TTL is over.
type Set = (u64, u64);

/// A store, and what was set in it: objects of one size, each key once.
struct Writer {
    subject: StoreSubject,
    value: Vec<u8>,
    now_ms: u64,
    next_key: u64,
    /// By TTL, in the order in which they expire.
    sets: Vec<(u32, VecDeque<Set>)>,
}

impl Writer {
    fn new(memory_bytes: u64, value_bytes: usize) -> Self {
        let options = Options { memory_bytes, memory_bytes_max: Some(memory_bytes), writers: 2, ..Options::default() };
        let subject = StoreSubject::new(options);
        Self { subject, value: vec![7; value_bytes], now_ms: 1_000_000, next_key: 0, sets: Vec::new() }
    }

    fn set(&mut self, ttl: u32) {
        let key = self.next_key.to_le_bytes();
        let (store, now_ms) = (&self.subject.store, self.now_ms);
        let (hash, value) = (store.hash(&key), &self.value[..]);
        let write = Write { key: &key, hash, value, flags: 0, ttl: Ttl::Seconds(ttl), mode: Mode::Set, token: None };
        let written = self.subject.with_room(now_ms, || store.write(&self.subject.participant, &write, now_ms));
        written.expect("there is room");
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

    /// Bytes in the index of objects whose life was over a second ago. None of the others is gone early, or served late.
    fn waiting_bytes(&mut self) -> u64 {
        let mut alive = 0;
        for (ttl, sets) in &mut self.sets {
            let promised_ms = u64::from(*ttl) * 1000 - (u64::from(*ttl) * 16).max(1000);
            while sets.front().is_some_and(|(_, end_ms)| end_ms + 1000 <= self.now_ms) {
                let (key, _) = sets.pop_front().unwrap();
                assert!(self.subject.get(&key.to_le_bytes(), self.now_ms).is_none(), "{key} with {ttl} s is served late");
            }
            for (key, end_ms) in sets {
                let is_served = self.subject.get(&key.to_le_bytes(), self.now_ms).is_some();
                let promised_until_ms = *end_ms - u64::from(*ttl) * 1000 + promised_ms;
                assert!(is_served || self.now_ms >= promised_until_ms, "{key} with {ttl} s is gone early");
                alive += u64::from(is_served);
            }
        }
        let stats = self.subject.store.stats();
        let waiting = (stats.items - alive) * (stats.live_bytes / stats.items.max(1));
        let counted = self.subject.store.census(self.now_ms).expired_bytes;
        assert_eq!(counted, waiting, "the census counts what waits: {stats:?}");
        waiting
    }

    /// Asserts that little waits and that nothing was evicted.
    fn check(&mut self) {
        let (waiting, memory_bytes) = (self.waiting_bytes(), self.subject.store.memory_bytes());
        let stats = self.subject.store.stats();
        assert!(waiting * 500 <= memory_bytes, "{waiting} expired bytes wait at {} ms: {stats:?}", self.now_ms);
        assert_eq!(stats.evictions, 0, "{stats:?}");
    }
}

/// Sets with these TTLs in turn, one every `interval_ms`, until the longest is over `turns` times.
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
    println!("{ttls:?} every {interval_ms} ms in {memory_bytes}: {} set, {} copied", stats.stored_total, stats.survived);
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
fn expired_memory_is_reusable_with_a_mix_of_ttls() {
    const MEMORY: u64 = 16 << 20;
    for (value_bytes, share) in [(1000, 0.7), (1000, 0.1), (30_000, 0.5)] {
        set_in_turn(MEMORY, value_bytes, &MIX, interval_ms(MEMORY, value_bytes, &MIX, share), 2.3);
        set_in_turn(MEMORY, value_bytes, &MIX[..3], interval_ms(MEMORY, value_bytes, &MIX[..3], share), 4.1);
    }
}
