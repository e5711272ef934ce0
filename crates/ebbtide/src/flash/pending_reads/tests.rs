//! Reads from devices that complete transfers on request, or none.

mod shutdown;

use super::*;
use crate::byte_size::ByteSize;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::flash::promotion::FlashPromotion;
use crate::flash::read::{Blocking, EndedRead, FlashProbe, FlashReads, ReadKeys};
use crate::flash::resolve::{ReadOutcome, ReadPurpose};
use crate::flash::threads::IoThreads;
use ebbtide_flash::Error;
use ebbtide_flash::device::{
    BLOCK, Buffer, Delivery, Device, DeviceMonitor, Direction, Disk, DiskOptions, Faults, FaultyDevice, Health,
    TransferRequest, read,
};
use ebbtide_flash::{Object, TierOptions};
use ebbtide_store::Mode;
use std::sync::mpsc::{Receiver, channel};

const NOW: u32 = 5;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads with this bound on bytes, of a tier with these keys, on a device that completes transfers on request.
fn with_keys_on_flash(keys: &[&[u8]], max_bytes: u64) -> (Arc<PendingReads>, Arc<FaultyDevice>) {
    let device = Arc::new(FaultyDevice::new(64 << 20, 7, Delivery::Later { queue_depth: 64 }));
    (with_keys_on(device.clone(), keys, max_bytes, || device.drain()), device)
}

/// As `with_keys_on_flash`, of a device on which `drain` ends all transfers.
fn with_keys_on(device: Arc<dyn Device>, keys: &[&[u8]], max_bytes: u64, drain: impl Fn()) -> Arc<PendingReads> {
    let options = TierOptions { memory_bytes: 8 << 20, ..TierOptions::default() };
    let tier = Tier::on(device, &options).unwrap();
    let insert = |key: &[u8]| {
        let object =
            Object { key: Key::new(key), value: &[&[7; 9000]], client_flags: 0, is_annotated: false, expiry: 0 };
        tier.insert(&object, NOW).unwrap();
    };
    keys.iter().for_each(|key| insert(key));
    for filler in 0..1000_u32 {
        insert(&filler.to_le_bytes());
        tier.maintain(NOW);
        drain();
    }
    Arc::new(PendingReads::new(tier, max_bytes * MAX_BYTES_SHARE))
}

fn start(reads: &Arc<PendingReads>, key: &[u8], when_busy: WhenBusy) -> (Start, Receiver<FlashRead>) {
    let (sender, receiver) = channel();
    let key = Key::new(key);
    let place = reads.tier.probe(key.hash).expect("flash has the key");
    let start = reads.start(key, None, place, NOW, when_busy, Box::new(move |read| sender.send(read).unwrap()));
    (start, receiver)
}

/// Reads these keys as one caller that blocks, and calls `each` with every result.
fn read_and_wait(pending: &Arc<PendingReads>, keys: &[&[u8]], mut each: impl FnMut(EndedRead)) {
    let first = Key::new(keys[0]);
    let probe = FlashProbe { hash: first.hash, pool: first.pool, place: pending.tier.probe(first.hash) };
    let (mut reads, mut waiter) = (FlashReads::default(), Blocking::new(pending, NOW));
    let keys = ReadKeys { first, probe, range: None, others: &keys[1..] };
    reads.run(pending, &keys, NOW, &|key| Some(Key::new(key)), &mut waiter, |others, ended, _| {
        ended.into_iter().chain(others.drain(..)).for_each(&mut each);
        Some(())
    });
}

fn bytes(read: &FlashRead) -> Option<usize> {
    read.value().map(|value| value.found.value().len())
}

fn permits(reads: &PendingReads) -> (usize, u64) {
    let state = reads.state();
    (state.permits, state.permit_bytes)
}

#[test]
fn one_read_serves_all_waiters() {
    let (reads, device) = with_keys_on_flash(&[b"a"], 1 << 20);
    let started: Vec<_> = (0..5).map(|_| start(&reads, b"a", WhenBusy::Refuse)).collect();
    assert_eq!(device.pending(), 1);
    assert!(started.iter().all(|(start, result)| *start == Start::Reading && result.try_recv().is_err()));
    device.drain();
    let results: Vec<_> = started.iter().map(|(_, result)| result.try_recv().unwrap()).collect();
    assert!(results.iter().all(|read| bytes(read) == Some(9000)));
    assert_eq!(permits(&reads).0, 1);
    drop(results);
    assert_eq!(permits(&reads), (0, 0));
    assert!(reads.tier.probe(Key::new(b"never there").hash).is_none());
}

#[test]
fn a_range_and_its_value_are_separate_reads() {
    let (reads, device) = with_keys_on_flash(&[b"a"], 1 << 20);
    let key = Key::new(b"a");
    let place = reads.tier.probe(key.hash).unwrap();
    let start_range = |offset| {
        let (sender, receiver) = channel();
        let range = Some(ByteRange { offset, length: 10 });
        let on_read = Box::new(move |read| sender.send(read).unwrap());
        let start = reads.start(key, range, place, NOW, WhenBusy::Refuse, on_read);
        assert_eq!(start, Start::Reading);
        receiver
    };
    let whole = start(&reads, b"a", WhenBusy::Refuse).1;
    let ranges = [start_range(0), start_range(8995), start_range(0)];
    assert_eq!(device.pending(), 3);
    device.drain();
    assert_eq!(bytes(&whole.recv().unwrap()), Some(9000));
    assert_eq!(ranges.map(|range| bytes(&range.recv().unwrap())), [Some(10), Some(5), Some(10)]);
    assert_eq!(permits(&reads), (0, 0));
}

#[test]
fn a_held_value_keeps_its_permit() {
    let (reads, device) = with_keys_on_flash(&[b"a", b"b", b"c"], 20_000);
    let (first, result) = start(&reads, b"a", WhenBusy::Refuse);
    assert_eq!(first, Start::Reading);
    device.drain();
    let held = result.try_recv().unwrap();
    assert_eq!(start(&reads, b"b", WhenBusy::Refuse).0, Start::Refused);
    let (second, second_result) = start(&reads, b"b", WhenBusy::Queue);
    let (third, third_result) = start(&reads, b"c", WhenBusy::Queue);
    assert_eq!((second, third), (Start::Queued, Start::Queued));
    assert_eq!(start(&reads, b"b", WhenBusy::Refuse).0, Start::Refused, "nobody holds a value and waits");
    device.drain();
    assert!(second_result.try_recv().is_err() && device.pending() == 0);
    drop(held);
    device.drain();
    let held = second_result.try_recv().unwrap();
    assert_eq!(bytes(&held), Some(9000));
    assert!(third_result.try_recv().is_err());
    drop(held);
    device.drain();
    assert_eq!(bytes(&third_result.try_recv().unwrap()), Some(9000));
    drop(third_result);
    assert_eq!(permits(&reads), (0, 0));
}

#[test]
fn a_miss_returns_its_permit() {
    let (reads, device) = with_keys_on_flash(&[b"a", b"b", b"c"], 1);
    let (_, first) = start(&reads, b"a", WhenBusy::Queue);
    let (_, second) = start(&reads, b"b", WhenBusy::Queue);
    let (_, third) = start(&reads, b"c", WhenBusy::Queue);
    // The device refuses the first. The others are gone when their turn comes.
    device.set(Faults { read_errors: 1, ..Faults::default() });
    for key in [b"b", b"c"] {
        reads.tier.remove(Key::new(key).hash);
    }
    device.drain();
    assert!([first, second, third].iter().all(|result| result.try_recv().unwrap().value().is_none()));
    assert_eq!(permits(&reads), (0, 0));
}

/// A read that began earlier does not see later inserts.
#[test]
fn only_callers_before_the_read_trust_misses() {
    let (reads, device) = with_keys_on_flash(&[b"a", b"b"], 1);
    let started: Vec<_> = [b"a", b"a", b"b", b"b"].iter().map(|&key| start(&reads, key, WhenBusy::Queue).1).collect();
    device.set(Faults { read_errors: 1, ..Faults::default() });
    reads.tier.remove(Key::new(b"b").hash);
    device.drain();
    let results: Vec<_> = started.iter().map(|result| result.try_recv().unwrap()).collect();
    assert!(results.iter().all(|read| read.value().is_none()));
    let undecided: Vec<_> = results.iter().map(FlashRead::is_undecided).collect();
    assert_eq!(undecided, [false, true, false, false]);
}

#[test]
fn cancelled_reads_are_misses() {
    let (reads, device) = with_keys_on_flash(&[b"a", b"b"], 1);
    let (_, under_way) = start(&reads, b"a", WhenBusy::Queue);
    let (queued, waiting) = start(&reads, b"b", WhenBusy::Queue);
    assert_eq!(queued, Start::Queued);
    reads.cancel();
    let is_cancelled = |read: FlashRead| read.value().is_none() && read.is_undecided();
    assert!([under_way, waiting].iter().all(|result| is_cancelled(result.try_recv().unwrap())));
    let (again, results) = start(&reads, b"b", WhenBusy::Queue);
    assert_eq!(again, Start::Queued, "the read that was given up goes on");
    device.drain();
    assert_eq!(bytes(&results.try_recv().unwrap()), Some(9000));
    drop(results);
    assert_eq!(permits(&reads), (0, 0));
}

/// Takes reads and never ends them, from when it holds them.
struct Stalled {
    device: Arc<FaultyDevice>,
    held: Mutex<Option<Vec<TransferRequest>>>,
}

impl Stalled {
    fn held(&self) -> usize {
        self.held.lock().unwrap().as_ref().map_or(0, Vec::len)
    }
}

impl Device for Stalled {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn submit(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        match (&mut *self.held.lock().unwrap(), request.direction) {
            (Some(held), Direction::Read) => held.push(request),
            _ => return self.device.submit(request),
        }
        Ok(())
    }

    fn wait_for_slot(&self) {}

    fn sync(&self) -> Result<(), Error> {
        self.device.sync()
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    fn monitor(&self) -> &DeviceMonitor {
        self.device.monitor()
    }
}

impl Stalled {
    /// With a device that completes each request at once.
    fn new() -> Arc<Self> {
        let device = Arc::new(FaultyDevice::new(64 << 20, 7, Delivery::AtOnce));
        Arc::new(Self { device, held: Mutex::new(None) })
    }

    fn hold(&self) {
        *self.held.lock().unwrap() = Some(Vec::new());
    }

    fn wait_until_one_is_held(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.held() == 0 {
            assert!(Instant::now() < deadline, "nothing is read");
            thread::yield_now();
        }
    }

    fn release(&self) {
        let held = self.held.lock().unwrap().take().unwrap();
        held.into_iter().for_each(|request| self.device.submit(request).unwrap());
    }

    /// Has it judged to have failed, while reads are held.
    fn fail(&self) {
        self.device.set(Faults { read_errors: 1, ..Faults::default() });
        let deadline = Instant::now() + PATIENCE;
        while self.monitor().observe(Instant::now(), Duration::ZERO) != Health::Failed {
            assert!(read(&*self.device, 0, Buffer::zeroed(BLOCK)).is_err() && Instant::now() < deadline);
        }
    }
}

fn assert_ends(thread: thread::JoinHandle<()>) {
    let deadline = Instant::now() + PATIENCE;
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(thread.is_finished(), "it waits for ever");
    thread.join().unwrap();
}

#[test]
fn a_wait_for_a_failed_device_ends() {
    let device = Stalled::new();
    let reads = with_keys_on(device.clone(), &[b"a"], 1 << 20, || ());
    device.hold();
    let waiting = thread::spawn(move || {
        read_and_wait(&reads, &[b"a"], |ended| assert!(ended.read.value().is_none(), "nothing is read"));
    });
    device.wait_until_one_is_held();
    device.fail();
    assert_ends(waiting);
}

/// A cache over this device, which has a large object with this key.
fn cache_on(device: &Arc<Stalled>, key: &[u8]) -> Cache {
    let options = TierOptions { seal_seconds: 1, ..TierOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_options(options);
    let builder = builder.flash_promotion(FlashPromotion::Never).flash_device(device.clone());
    let cache = builder.build().unwrap();
    put_on_flash(&cache, key);
    cache.maintain(Duration::from_secs(100));
    cache
}

/// Starts a read of a key that is on flash.
fn read_cache(cache: &Cache, key: &[u8], when_busy: WhenBusy, on_read: OnRead) -> Start {
    let (reads, key) = (&cache.engine().flash().unwrap().reads, Key::new(key));
    reads.start(key, None, reads.tier.probe(key.hash).expect("flash has the key"), NOW, when_busy, on_read)
}

fn put_on_flash(cache: &Cache, key: &[u8]) {
    let object = Object { key: Key::new(key), value: &[&[7; 9000]], client_flags: 0, is_annotated: false, expiry: 0 };
    cache.engine().flash().unwrap().tier.insert(&object, NOW).unwrap();
}

#[test]
fn a_scan_of_a_device_that_failed_ends() {
    let device = Stalled::new();
    let cache = cache_on(&device, b"a");
    device.hold();
    let scanning = thread::spawn(move || {
        let mut scan = cache.scan().unwrap();
        while scan.advance(|_| panic!("nothing is read")) {}
    });
    device.wait_until_one_is_held();
    device.fail();
    assert_ends(scanning);
}

#[test]
fn a_batch_retries_a_value_that_flash_moved() {
    let device = Stalled::new();
    let cache = cache_on(&device, b"far");
    // It is found in a buffer, and waits for the other.
    put_on_flash(&cache, b"near");
    device.hold();
    let found = thread::scope(|scope| {
        let batch = scope.spawn(|| {
            let mut found = Vec::new();
            cache.get_batch(&[b"near", b"far"], |_, lookup| found.push(lookup.is_hit()));
            found
        });
        device.wait_until_one_is_held();
        put_on_flash(&cache, b"near");
        device.release();
        batch.join().unwrap()
    });
    assert_eq!(found, [true, true]);
}

/// Flash has the key, and is closed while a change searches it.
#[test]
fn a_cancelled_search_does_not_show_absence() {
    let device = Stalled::new();
    let cache = cache_on(&device, b"a");
    let handle = cache.without_waiting();
    device.hold();
    let mut reads = FlashReads::default();
    let mut search = || {
        let probe = handle.probe_flash(&reads, b"a").expect("flash has the key");
        handle.read_from_flash(&mut reads, probe, &[b"a"], ReadPurpose::Change, || Box::new(|| ()))
    };
    assert!(matches!(search(), ReadOutcome::Pending));
    cache.close_flash();
    let outcome = search();
    assert!(matches!(outcome, ReadOutcome::MemoryDecides), "{outcome:?}");
    let added = handle.insert(b"a", b"new").mode(Mode::Add).apply();
    assert!(matches!(added, Err(crate::Error::WouldWait { .. })), "{added:?}");
    device.release();
}

#[test]
fn multi_part_values_take_permits_for_all_parts() {
    let (reads, device) = with_keys_on_flash(&[b"a"], 1 << 19);
    let value = vec![7; 1 << 20];
    let object = Object { key: Key::new(b"long"), value: &[&value], client_flags: 0, is_annotated: false, expiry: 0 };
    reads.tier.insert(&object, NOW).unwrap();
    assert!(reads.tier.probe(object.key.hash).unwrap().bytes() <= 1 << 19, "it has one part");
    let (_, results) = start(&reads, b"long", WhenBusy::Queue);
    device.drain();
    let held = results.try_recv().unwrap();
    assert_eq!(bytes(&held), Some(value.len()));
    assert!(permits(&reads).1 >= value.len() as u64, "{:?}", permits(&reads));
    assert_eq!(reads.held_bytes(), permits(&reads).1, "it counts as memory");
    assert_eq!(start(&reads, b"a", WhenBusy::Refuse).0, Start::Refused);
    drop(held);
    assert_eq!((permits(&reads), reads.held_bytes()), ((0, 0), 0));
}

#[test]
fn found_values_are_delivered_after_all_transfers() {
    let folder = tempfile::tempdir().unwrap();
    let opened = Disk::open(&[(folder.path().join("flash"), 64 << 20)], &DiskOptions::default()).unwrap();
    let disk = Arc::new(opened.disk);
    let _io = IoThreads::start(disk.clone()).unwrap();
    let keys: Vec<[u8; 1]> = (0..24).map(|number| [number]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let drain = || while disk.monitor().under_way() > 0 {};
    let reads = with_keys_on(disk.clone(), &keys, 1 << 20, drain);
    for _ in 0..500 {
        let mut found = 0;
        read_and_wait(&reads, &keys, |_| {
            found += 1;
            // As an eviction does for the value, with a manual clock.
            let began = Instant::now();
            reads.tier.settle(NOW);
            assert!(began.elapsed() < Duration::from_secs(10), "it waited for a read that it moves by itself");
        });
        assert_eq!(found, keys.len());
    }
}

#[test]
fn a_panicking_callback_affects_no_other() {
    let device = Stalled::new();
    let cache = cache_on(&device, b"a");
    device.hold();
    let (sender, results) = channel();
    let panicking = read_cache(&cache, b"a", WhenBusy::Queue, Box::new(|_| panic!("of the caller's making")));
    let other = read_cache(&cache, b"a", WhenBusy::Queue, Box::new(move |read| sender.send(read).unwrap()));
    assert_eq!((panicking, other), (Start::Reading, Start::Reading));
    device.release();
    assert_eq!(bytes(&results.recv_timeout(PATIENCE).unwrap()), Some(9000));
    assert!(cache.get(b"a").is_hit());
}

/// A cache with a file; `put_on_flash` comes before.
fn cache_in(folder: &tempfile::TempDir) -> Result<Cache, crate::Error> {
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual);
    builder.flash_promotion(FlashPromotion::Never).flash(folder.path().join("flash"), ByteSize::mib(64)).build()
}

fn is_warm(cache: &Cache) -> bool {
    cache.flash_stats().unwrap().notices.iter().any(|notice| notice.contains("flash is warm after a stop"))
}

#[test]
fn shutdown_does_not_wait_for_maintenance() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache_in(&folder).unwrap();
    let maintaining = Arc::clone(cache.engine());
    drop(cache);
    assert!(is_warm(&cache_in(&folder).unwrap()));
    drop(maintaining);
}

/// A cache whose last clone ends in a callback, in this way, while one of its threads holds the engine.
fn ends_in_a_callback(end: impl FnOnce(Cache) + Send + 'static) {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache_in(&folder).unwrap();
    put_on_flash(&cache, b"a");
    drop(cache);
    let cache = cache_in(&folder).unwrap();
    let maintaining = Arc::clone(cache.engine());
    let (go, going) = channel();
    let clone = cache.clone();
    let on_read = move |read: FlashRead| {
        going.recv().unwrap();
        assert_eq!(bytes(&read), Some(9000));
        end(clone);
    };
    assert_eq!(read_cache(&cache, b"a", WhenBusy::Queue, Box::new(on_read)), Start::Reading);
    drop(cache);
    go.send(()).unwrap();
    let began = Instant::now();
    let again = loop {
        match cache_in(&folder) {
            Ok(cache) => break cache,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    };
    assert!(is_warm(&again));
    assert!(again.get(b"a").is_hit());
    drop(maintaining);
}

#[test]
fn shutdown_in_a_callback_is_clean() {
    ends_in_a_callback(drop);
}

#[test]
fn shutdown_during_close_flash_is_clean() {
    for delay in [0, 200, 2000] {
        ends_in_a_callback(move |cache| {
            cache.close_flash();
            thread::sleep(Duration::from_micros(delay));
        });
    }
}

#[test]
fn waiting_on_the_own_thread_ring_panics() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache_in(&folder).unwrap();
    put_on_flash(&cache, b"a");
    let waits = |cache: &Cache| std::panic::catch_unwind(AssertUnwindSafe(|| cache.get(b"a").is_hit()));
    // Where the system has such rings.
    let Some(ring) = cache.thread_ring() else { return };
    assert!(waits(&cache).is_err());
    assert!(!waits(&cache.without_waiting()).unwrap());
    drop(ring);
    assert!(waits(&cache).unwrap());
}

#[test]
fn a_pending_read_is_answered_at_shutdown() {
    let device = Stalled::new();
    let cache = cache_on(&device, b"a");
    device.hold();
    let (sender, results) = channel();
    // The last clone is dropped in the callback.
    let clone = cache.clone();
    let on_read = move |read| {
        drop(clone);
        sender.send(read).unwrap();
    };
    assert_eq!(read_cache(&cache, b"a", WhenBusy::Queue, Box::new(on_read)), Start::Reading);
    drop(cache);
    device.release();
    results.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_queued_read_is_answered_at_shutdown() {
    let cache = cache_on(&Stalled::new(), b"a");
    let start = |when_busy| {
        let (sender, results) = channel();
        let start = read_cache(&cache, b"a", when_busy, Box::new(move |read| sender.send(read).unwrap()));
        (start, results)
    };
    let mut held = Vec::new();
    while let (Start::Reading, results) = start(WhenBusy::Refuse) {
        held.push(results.recv_timeout(PATIENCE).unwrap());
    }
    let (_, results) = start(WhenBusy::Queue);
    drop(cache);
    assert_eq!(bytes(&results.recv_timeout(PATIENCE).unwrap()), None);
    drop(held);
}
