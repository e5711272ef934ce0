use super::super::set_group::{SetGroup, next_generation};
use super::super::{Counts, MAX_RECORD_BYTES, Options, PAGE, SmallDrop, is_page_token, page_token};
use super::{get, put, store, store_on, value};
use crate::Error;
use crate::FlashLookup;
use crate::device::{
    BLOCK, Delivery, Device, DeviceMonitor, Direction, Faults, FaultyDevice, MemoryDevice, TransferRequest,
};
use crate::object::{FIRST_POOL, FlashHash, FlashHit, Key};
use crate::pools::LivePools;
use std::sync::{Arc, Mutex};

const MIB: usize = 1 << 20;

fn fill(store: &super::SmallStore, keys: std::ops::Range<u32>, bytes: usize) {
    for i in keys {
        while put(store, &i.to_le_bytes(), &vec![i as u8; bytes], 0, 1) == Err(SmallDrop::Busy) {
            store.maintain(1);
        }
    }
    store.maintain(1);
}

#[test]
fn objects_are_found_in_ram_log_and_sets() {
    for log_percent in [0, 15] {
        let store = store(8 * MIB, Options { log_percent, rewrite_threshold: 1, ..Options::default() });
        put(&store, b"first", b"value", 0, 1).unwrap();
        assert_eq!(value(&store, b"first").unwrap(), b"value");
        fill(&store, 0..7000, 300);
        let stats = store.stats();
        assert!(stats.page_objects > 3000, "{stats:?}");
        assert!(stats.log_objects > if log_percent == 0 { 0 } else { 1000 }, "{stats:?}");
        for i in 0..7000u32 {
            assert_eq!(value(&store, &i.to_le_bytes()), Some(vec![i as u8; 300]), "{i} {:?}", store.stats());
        }
        assert_eq!(value(&store, b"first").unwrap(), b"value");
        assert_eq!(value(&store, b"second"), None);
        store.verify();
    }
}

#[test]
fn bursts_fill_all_buffers_of_a_full_log() {
    let options = Options { segment_bytes: 64 << 10, rewrite_threshold: 1, ..Options::default() };
    let store = store(64 * MIB, options.clone());
    let burst = |from: u32| (from..).take_while(|i| put(&store, &i.to_le_bytes(), &[1; 1500], 0, 1).is_ok()).count();
    for round in 0..16 {
        assert!(store.has_space());
        let taken = burst(round * 10_000);
        assert!(taken >= 2 * 16 * options.buffers, "{taken} of round {round}");
        assert!(!store.has_space());
        let fixed = options.fixed_bytes(&(8192..64 * MIB as u64)).unwrap();
        assert!(store.stats().buffer_bytes <= fixed.1 as u64, "{:?} of {fixed:?}", store.stats());
        store.maintain(1);
    }
    let stats = store.stats();
    assert!(stats.counts.moved > 0 && stats.counts.dropped_busy == 16, "the log went round: {stats:?}");
    store.verify();
}

#[test]
fn each_object_is_counted_as_ended_once() {
    let store = store(4 * MIB, Options { segment_bytes: 64 << 10, ..Options::default() });
    let set_layout = store.shared.area_layout.set_layout;
    let is_here = |key: &[u8]| set_layout.set(FlashHash::of(key)) == 5;
    let mut here = (0_u32..).map(u32::to_le_bytes).filter(|key| is_here(key));
    let mut elsewhere = (0_u32..).map(u32::to_be_bytes).filter(|key| !is_here(key));
    let mut others = |count: usize, now: u32| {
        for key in elsewhere.by_ref().take(count) {
            while put(&store, &key, &[1; 1900], now + 1, now) == Err(SmallDrop::Busy) {
                store.maintain(now + 5);
            }
        }
        store.maintain(now + 5);
    };
    // Its page is full, and no other one.
    here.by_ref().take(3).for_each(|key| _ = put(&store, &key, &[2; 1100], 0, 1).unwrap());
    others(300, 1);
    assert_eq!(store.stats().page_objects, 3);
    // At the log's end one has expired, the other has a newer version.
    let (expired, replaced) = (here.next().unwrap(), here.next().unwrap());
    put(&store, &expired, &[3; 900], 50, 10).unwrap();
    put(&store, &replaced, &[4; 900], 0, 10).unwrap();
    others(60, 10);
    put(&store, &replaced, &[5; 900], 0, 20).unwrap();
    others(160, 100);
    others(1, 200);
    others(300, 300);
    let stats = store.stats();
    let Counts { ended_expired, ended_evicted, ended_unreadmitted, ended_below_threshold, inserted, .. } = stats.counts;
    let ended = ended_expired + ended_evicted + ended_unreadmitted + ended_below_threshold;
    assert_eq!(ended + stats.objects() + 1, inserted, "one was replaced: {stats:?}");
    assert!(value(&store, &replaced).is_some_and(|value| value == [5; 900]));
    store.verify();
}

#[test]
fn only_the_newest_unremoved_value_is_found() {
    let store = store(4 * MIB, Options::default());
    let key = b"key";
    for round in 0..6u32 {
        put(&store, key, &[round as u8; 100], 0, 1).unwrap();
        assert_eq!(value(&store, key).unwrap(), [round as u8; 100]);
        fill(&store, round * 3000..(round + 1) * 3000, 200);
        if let Some(found) = value(&store, key) {
            assert_eq!(found, [round as u8; 100]);
        }
        if round % 2 == 1 {
            store.remove(FlashHash::of(key));
            assert_eq!(value(&store, key), None);
            assert!(!store.could_exist(FlashHash::of(key)));
            fill(&store, round * 5000..round * 5000 + 3000, 200);
            assert_eq!(value(&store, key), None);
        }
    }
    store.verify();
}

#[test]
fn tokens_of_consecutive_versions_differ() {
    for tombstones_per_group in [0, 1000] {
        let store = store(4 * MIB, Options { tombstones_per_group, ..Options::default() });
        let hash = FlashHash::of(b"key");
        let leave: [(&str, &dyn Fn()); 3] =
            [("overwritten", &|| ()), ("removed", &|| _ = store.remove(hash)), ("flushed", &|| store.flush())];
        let mut tokens = vec![put(&store, b"key", b"value", 0, 1).unwrap()];
        for (how, leave) in leave {
            leave();
            tokens.push(put(&store, b"key", b"value", 0, 1).unwrap());
            let current: Vec<_> = tokens.iter().map(|&token| store.is_current(hash, token)).collect();
            let count = current.iter().filter(|&&is| is).count();
            assert!(
                count == 1 && current.last() == Some(&true),
                "{how}, {tombstones_per_group}: {tokens:?} {current:?}"
            );
            assert_eq!(get(&store, b"key", 1).unwrap().1, *tokens.last().unwrap());
        }
        store.verify();
    }
}

#[test]
fn the_next_page_write_drops_tombstones() {
    let store = store(2 * MIB, Options { tombstones_per_group: 1000, rewrite_threshold: 1, ..Options::default() });
    fill(&store, 0..2000, 300);
    let before = store.stats().tombstones;
    let removed = (0..2000u32).step_by(10).filter(|i| store.remove(FlashHash::of(&i.to_le_bytes()))).count();
    assert_eq!(removed, 200);
    assert_eq!(store.stats().tombstones, before + 200);
    fill(&store, 2000..9000, 300);
    assert!(store.stats().tombstones < 10, "{}", store.stats().tombstones);
    assert!((0..2000u32).step_by(10).all(|i| value(&store, &i.to_le_bytes()).is_none()));
    store.verify();
}

#[test]
fn tombstones_are_bounded_and_never_forgotten() {
    let bound = 40;
    let store = store(2 * MIB, Options { tombstones_per_group: bound, ..Options::default() });
    fill(&store, 0..5000, 300);
    for i in 0..2500u32 {
        store.remove(FlashHash::of(&i.to_le_bytes()));
        if i % 500 == 0 {
            store.maintain(1);
        }
    }
    let stats = store.stats();
    assert!(stats.counts.voided_by_tombstones > 0);
    assert!(stats.tombstones <= u64::from(bound) * stats.sets.div_ceil(128));
    assert!((0..2500u32).all(|i| value(&store, &i.to_le_bytes()).is_none()));
    store.maintain(1);
    assert!(store.stats().tombstones <= stats.tombstones / 2, "{:?}", store.stats());
    assert!((0..2500u32).all(|i| value(&store, &i.to_le_bytes()).is_none()));
    store.verify();
}

#[test]
fn a_flush_takes_all_at_once() {
    let store = store(2 * MIB, Options::default());
    fill(&store, 0..4000, 300);
    let before = store.stats();
    store.flush();
    assert!((0..4000u32).all(|i| value(&store, &i.to_le_bytes()).is_none()));
    assert!(store.stats().index_bytes < before.index_bytes);
    put(&store, &1u32.to_le_bytes(), b"new", 0, 1).unwrap();
    assert_eq!(value(&store, &1u32.to_le_bytes()).unwrap(), b"new");
    fill(&store, 4000..8000, 300);
    assert_eq!(store.stats().counts.corrupt_pages, 0);
    store.verify();
}

#[test]
fn expired_objects_miss_and_leave_with_rewrites() {
    let store = store(2 * MIB, Options::default());
    put(&store, b"early", b"v", 10, 9).unwrap();
    assert_eq!(put(&store, b"late", b"v", 10, 10), Err(SmallDrop::Expired));
    assert!(get(&store, b"early", 9).is_some());
    assert!(get(&store, b"early", 10).is_none());
    for i in 0..12_000u32 {
        while put(&store, &i.to_le_bytes(), &[7; 300], 100 + i, 1) == Err(SmallDrop::Busy) {
            store.maintain(20_000);
        }
    }
    assert!(store.stats().counts.ended_expired > 5000);
    store.verify();
}

#[test]
fn tokens_name_one_version() {
    let store = store(2 * MIB, Options::default());
    let hash = FlashHash::of(b"key");
    let first = put(&store, b"key", b"first", 0, 1).unwrap();
    assert_eq!(get(&store, b"key", 1).unwrap().1, first);
    assert!(store.is_current(hash, first));
    fill(&store, 0..100, 300);
    let second = put(&store, b"key", b"second", 0, 1).unwrap();
    assert!(!store.is_current(hash, first) && store.is_current(hash, second));
    assert_eq!(value(&store, b"key").unwrap(), b"second");
    assert!(store.remove(hash));
    assert_eq!(value(&store, b"key"), None);
    assert!(!store.is_current(hash, second));
    let third = put(&store, b"key", b"third", 0, 1).unwrap();
    fill(&store, 100..3000, 300);
    let (_, moved) = get(&store, b"key", 1).unwrap();
    assert!(moved != third && store.is_current(hash, moved) && !store.is_current(hash, third));
    assert!(store.remove(hash));
    assert_eq!(value(&store, b"key"), None);
    store.verify();
}

#[test]
fn what_does_not_fit_is_refused() {
    let store = store(2 * MIB, Options::default());
    assert_eq!(put(&store, b"key", &[0; MAX_RECORD_BYTES], 0, 1), Err(SmallDrop::Large));
    assert_eq!(value(&store, b"key"), None);
    assert_eq!(store.stats().counts.dropped_large, 1);
}

#[test]
fn without_maintenance_inserts_are_dropped_in_the_end() {
    let store = store(MIB, Options::default());
    let busy =
        (0..20_000u32).filter(|i| put(&store, &i.to_le_bytes(), &[1; 300], 0, 1) == Err(SmallDrop::Busy)).count();
    assert!(busy > 10_000);
    assert_eq!(store.stats().counts.dropped_busy, busy as u64);
    store.maintain(1);
    put(&store, b"key", b"value", 0, 1).unwrap();
    store.verify();
}

#[test]
fn memory_is_bounded_and_counted() {
    let bound = 40_000;
    let store = store(8 * MIB, Options { index_bytes: bound, ..Options::default() });
    let full = store.memory_bytes();
    fill(&store, 0..30_000, 100);
    let stats = store.stats();
    assert!(stats.counts.dropped_memory > 0 && full > 0);
    assert!((bound / 8 * 7..bound + 3 * PAGE).contains(&(stats.index_bytes as usize)), "{}", stats.index_bytes);
    assert_eq!(store.memory_bytes() as u64, stats.index_bytes + stats.buffer_bytes);
    // With maintenance, older objects are always evicted for new ones.
    let mut taken = 0;
    for i in 30_000..100_000_u32 {
        if i % 16 == 0 {
            store.maintain(1);
        }
        let is_taken = put(&store, &i.to_le_bytes(), &[1; 100], 0, 1).is_ok();
        taken += u32::from(is_taken && i >= 86_000);
    }
    assert!(taken > 10_500, "{taken}");
    store.verify();
}

#[test]
fn a_threshold_evicts_lonely_objects_unless_hit() {
    let options = Options { log_percent: 5, rewrite_threshold: 3, ..Options::default() };
    let store = store(4 * MIB, options);
    let fill = |numbers: std::ops::Range<u32>| {
        for i in numbers {
            put(&store, &i.to_le_bytes(), &[1; 300], 0, 1).unwrap();
            store.maintain(1);
            get(&store, &(i / 3 * 3).to_le_bytes(), 1);
        }
        store.stats().counts
    };
    assert!(fill(0..6000).ended_below_threshold < 60, "what fits moves alone");
    let before = fill(6000..20_000);
    let counts = fill(20_000..50_000);
    assert!(counts.ended_below_threshold > 3000 && counts.readmitted > 1000 && counts.moved > 3000, "{counts:?}");
    let (moved, pages) = (counts.moved - before.moved, counts.pages_written - before.pages_written);
    assert!(moved > 3 * pages / 100 * 98, "{moved} to {pages} pages");
    let found = |rest| (0..50_000u32).filter(|i| i % 3 == rest && value(&store, &i.to_le_bytes()).is_some()).count();
    let (hit, others) = (found(0), found(1));
    assert!(hit > 5 * others / 4, "{hit} that were hit, {others} that were not");
    store.verify();
}

/// A `MemoryDevice` that delays single page reads.
struct Holding {
    memory: MemoryDevice,
    contents: Mutex<Option<Vec<TransferRequest>>>,
}

impl Device for Holding {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    fn submit(&self, mut request: TransferRequest) -> Result<(), TransferRequest> {
        let mut contents = self.contents.lock().unwrap();
        if let (Some(contents), Direction::Read, BLOCK) = (contents.as_mut(), request.direction, request.buffer.len()) {
            let page = crate::device::read(&self.memory, request.offset, crate::device::Buffer::zeroed(BLOCK));
            request.buffer = page.unwrap();
            contents.push(request);
            return Ok(());
        }
        drop(contents);
        self.memory.submit(request)
    }

    fn wait_for_slot(&self) {}

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    fn monitor(&self) -> &DeviceMonitor {
        self.memory.monitor()
    }
}

/// The answer of a lookup if this event happens while its page is being read.
fn read_during(keys: u32, change: impl FnOnce(&super::SmallStore)) -> Option<Vec<u8>> {
    let device = Arc::new(Holding { memory: MemoryDevice::new(2 * MIB), contents: Mutex::new(None) });
    let store =
        store_on(Arc::clone(&device) as Arc<dyn Device>, Options { rewrite_threshold: 1, ..Options::default() });
    put(&store, b"key", b"old", 0, 1).unwrap();
    fill(&store, 0..keys, 300);
    *device.contents.lock().unwrap() = Some(Vec::new());
    let answer = Arc::new(Mutex::new(None));
    let later = Arc::clone(&answer);
    let done = Box::new(move |found: Option<FlashHit>| *later.lock().unwrap() = Some(found));
    assert!(matches!(store.lookup(Key::new(b"key"), 1, done), FlashLookup::Reading));
    let contents = device.contents.lock().unwrap().take().unwrap();
    assert_eq!(contents.len(), 1);
    change(&store);
    contents.into_iter().for_each(|request| request.finish(Ok(())));
    store.verify();
    let found = answer.lock().unwrap().take().expect("the lookup is over");
    found.map(|found| found.value().to_vec())
}

#[test]
fn what_changes_during_a_read_is_not_missed() {
    for keys in [1200, 2500] {
        let hash = FlashHash::of(b"key");
        assert_eq!(read_during(keys, |_| {}).unwrap(), b"old");
        assert_eq!(read_during(keys, |store| fill(store, 3000..3010, 300)).unwrap(), b"old");
        assert_eq!(read_during(keys, |store| assert!(store.remove(hash))), None);
        assert_eq!(read_during(keys, |store| store.flush()), None);
        let overwritten = read_during(keys, |store| assert!(put(store, b"key", b"new", 0, 1).is_ok()));
        assert_eq!(overwritten.unwrap(), b"new");
        let gone = read_during(keys, |store| {
            store.remove(hash);
            fill(store, 3000..8000, 300);
        });
        assert_eq!(gone, None);
        let moved = read_during(keys, |store| fill(store, 3000..4000, 300));
        assert!(moved.is_none_or(|value| value == b"old"));
    }
}

#[test]
fn retired_segments_leave_the_log_some_space() {
    for left in [2, 3, 5, 8] {
        let device = Arc::new(FaultyDevice::new(2 * MIB, 1, Delivery::AtOnce));
        let options = Options { log_percent: 5, rewrite_threshold: 1, ..Options::default() };
        let store = store_on(Arc::clone(&device) as Arc<dyn Device>, options);
        let mut number = 0_u32;
        let mut is_taken = || {
            number += 1;
            store.maintain(1);
            put(&store, &number.to_le_bytes(), &[1; 1000], 0, 1).is_ok()
        };
        device.set(Faults { write_errors: 1, ..Faults::default() });
        let segments = u64::from(store.shared.area_layout.log.segments);
        while store.stats().counts.segments_retired < segments - left {
            is_taken();
        }
        device.set(Faults::default());
        let outcomes: Vec<_> = (0..1000).map(|_| (is_taken(), store.has_space())).collect();
        let count = |is: fn(&(bool, bool)) -> bool| outcomes.iter().filter(|one| is(one)).count();
        let (taken, with_space) = (count(|one| one.0), count(|one| one.1));
        assert!(
            taken > 700 && with_space > 500,
            "{left} of {segments} segments: {taken} of 1000 taken, space {with_space} times"
        );
        store.verify();
    }
}

#[test]
fn page_tokens_match_no_later_page() {
    let store = store(8 * MIB, Options::default());
    let (set_layout, mut group) = (&store.shared.area_layout.set_layout, SetGroup::new());
    group.version = u32::MAX - 5;
    group.set_page(set_layout, 3, 1, &[], 0);
    let token = page_token(&group, 3);
    assert!(is_page_token(&group, 3, token));
    for later in 0..1000 {
        let generation = next_generation(group.generation(3));
        group.set_page(set_layout, 3, generation, &[], 0);
        assert!(!is_page_token(&group, 3, token), "{later} pages later");
    }
}

#[test]
fn pool_bytes_do_not_count_emptied_sets() {
    for tombstones_per_group in [0, 128, 10_000] {
        let pools = Arc::<LivePools>::default();
        let bytes = || pools.find(FIRST_POOL).unwrap().bytes();
        let options = Options { tombstones_per_group, rewrite_threshold: 1, ..Options::default() };
        let store = store(8 * MIB, Options { pools: Arc::clone(&pools), ..options });
        fill(&store, 0..7000, 300);
        let before = bytes();
        for _ in 0..4 {
            (0..7000_u32).for_each(|i| _ = store.remove(FlashHash::of(&i.to_le_bytes())));
            store.maintain(1);
            fill(&store, 0..7000, 300);
        }
        let counts = store.stats().counts;
        assert_eq!(counts.voided_by_tombstones > 100, tombstones_per_group < 10_000, "{counts:?}");
        assert!(bytes() < before * 5 / 4, "{} bytes, {before} before: {counts:?}", bytes());
        store.verify();
    }
}
