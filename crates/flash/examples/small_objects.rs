//! The cost of small objects on flash: hit ratio, write amplification, RAM, reads for absent keys; for mean sizes of
//! 50, 100 and 300 B, log shares and move thresholds, beside plain set pages (log share 0).
//!
//!     cargo run --release -p ebbtide-flash --features test-devices --example small_objects \
//!         [-- FLASH_MIB [SIZE [LOG_PERCENT THRESHOLD]]]
//!
//! Gets come with Zipf's popularity (0.9) over three times as many keys as flash holds, one in twenty is a set of the
//! key. DRAM in front is a clock of 5 % of the flash's bytes. A miss is followed by an insert into DRAM; what leaves
//! DRAM goes to flash, unless flash still has it unchanged. Sizes are exponential. It cannot see: speed, a device's own
//! amplification, expiry.

use ebbtide_flash::FlashLookup;
use ebbtide_flash::device::MemoryDevice;
use ebbtide_flash::small::{Options, SmallStore};
use ebbtide_flash::{Key, Object};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const KEY_BYTES: usize = 16;
const NOW: u32 = 1;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|one| *one /= sum);
        Self(sums)
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let at = random.unit();
        self.0.partition_point(|&sum| sum < at) as u64
    }
}

fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[8..].copy_from_slice(&mix(number).to_le_bytes());
    key
}

/// An object's bytes, key and value: exponential, with this mean.
fn size_of(number: u64, mean: usize) -> usize {
    let unit = (mix(number ^ 0xabcd) >> 11) as f64 / (1u64 << 53) as f64;
    let value = -(1.0 - unit).ln() * (mean - KEY_BYTES) as f64;
    KEY_BYTES + (value as usize).clamp(1, 2000)
}

#[derive(Default)]
struct Resident {
    referenced: bool,
    on_flash: bool,
}

struct Run {
    store: SmallStore,
    mean: usize,
    dram: HashMap<u64, Resident>,
    clock: VecDeque<u64>,
    dram_bytes: usize,
    dram_limit: usize,
    payload: Vec<u8>,
}

impl Run {
    fn on_flash(&self, number: u64) -> bool {
        let answer = Arc::new(AtomicBool::new(false));
        let later = Arc::clone(&answer);
        let done = Box::new(move |found: Option<_>| later.store(found.is_some(), Ordering::Relaxed));
        match self.store.lookup(Key::new(&key_of(number)), NOW, done) {
            FlashLookup::Absent => false,
            FlashLookup::Found(_) => true,
            FlashLookup::Reading => answer.load(Ordering::Relaxed),
        }
    }

    /// Whether the key was there.
    fn get(&mut self, number: u64) -> bool {
        if let Some(resident) = self.dram.get_mut(&number) {
            resident.referenced = true;
            return true;
        }
        let hit = self.on_flash(number);
        self.admit(number, hit);
        hit
    }

    fn set(&mut self, number: u64) {
        self.store.remove(Key::new(&key_of(number)).hash);
        match self.dram.get_mut(&number) {
            Some(resident) => *resident = Resident { referenced: true, on_flash: false },
            None => self.admit(number, false),
        }
    }

    fn admit(&mut self, number: u64, on_flash: bool) {
        self.dram.insert(number, Resident { referenced: false, on_flash });
        self.clock.push_back(number);
        self.dram_bytes += size_of(number, self.mean);
        while self.dram_bytes > self.dram_limit {
            let victim = self.clock.pop_front().expect("DRAM holds something");
            if std::mem::take(&mut self.dram.get_mut(&victim).expect("it is resident").referenced) {
                self.clock.push_back(victim);
                continue;
            }
            let resident = self.dram.remove(&victim).expect("it is resident");
            self.dram_bytes -= size_of(victim, self.mean);
            self.demote(victim, &resident);
        }
    }

    fn demote(&self, number: u64, resident: &Resident) {
        let (bytes, key) = (key_of(number), size_of(number, self.mean) - KEY_BYTES);
        let key_bytes = Key::new(&bytes);
        if resident.on_flash && self.store.could_exist(key_bytes.hash) {
            return;
        }
        let value: &[&[u8]] = &[&self.payload[..key]];
        let object = Object { key: key_bytes, value, client_flags: 0, is_annotated: false, expiry: 0 };
        if self.store.insert(&object, NOW).is_err() {
            self.store.maintain(NOW);
            let _ = self.store.insert(&object, NOW);
        }
    }
}

fn measure(flash_bytes: usize, mean: usize, log_percent: u8, rewrite_threshold: u8) {
    let segment_bytes = if log_percent == 0 { 4096 } else { Options::default().segment_bytes };
    let options = Options { log_percent, rewrite_threshold, segment_bytes, ..Options::default() };
    let store =
        SmallStore::new(Arc::new(MemoryDevice::new(flash_bytes)), 0..flash_bytes as u64, options).expect("it fits");
    let objects = flash_bytes / mean;
    let zipf = Zipf::new(3 * objects, 0.9);
    let (dram, clock) = (HashMap::new(), VecDeque::new());
    let dram_limit = flash_bytes / 20;
    let mut run = Run { store, mean, dram, clock, dram_bytes: 0, dram_limit, payload: vec![7; 2048] };
    let mut random = Random(7);
    let (warm, counted) = (6 * objects, 4 * objects);
    let mut hits = 0;
    let mut gets = 0;
    let mut before = run.store.stats();
    for request in 0..warm + counted {
        if request == warm {
            before = run.store.stats();
        }
        let number = zipf.draw(&mut random);
        if random.next().is_multiple_of(20) {
            run.set(number);
            continue;
        }
        let hit = run.get(number);
        if request >= warm {
            gets += 1;
            hits += usize::from(hit);
        }
    }
    let after = run.store.stats();
    let absent = 200_000;
    for number in 0..absent {
        assert!(!run.on_flash(u64::MAX - number));
    }
    let read = run.store.stats().counts.lookups_read - after.counts.lookups_read;
    let (a, b) = (after.counts, before.counts);
    let inserted = (a.inserted_bytes - b.inserted_bytes) as f64;
    let written = (a.log_bytes_written + a.set_bytes_written + a.mark_bytes_written)
        - (b.log_bytes_written + b.set_bytes_written + b.mark_bytes_written);
    println!(
        "| {mean} | {log_percent} % | {rewrite_threshold} | {:.2} % | {:.2} | {:.1} | {:.2} | {:.1} % | {:.1} % | {:.1} % | {:.2} |",
        100.0 * hits as f64 / gets as f64,
        written as f64 / inserted,
        (a.moved - b.moved) as f64 / (a.pages_written - b.pages_written).max(1) as f64,
        after.index_bytes as f64 / after.objects() as f64,
        100.0 * read as f64 / absent as f64,
        100.0 * (a.ended_below_threshold - b.ended_below_threshold) as f64 / (a.inserted - b.inserted) as f64,
        100.0 * (a.readmitted - b.readmitted) as f64 / (a.inserted - b.inserted) as f64,
        (a.bytes_read_to_move - b.bytes_read_to_move) as f64 / inserted,
    );
    run.store.verify();
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|text| text.parse().expect("numbers")).collect();
    let flash_bytes = arguments.first().copied().unwrap_or(128) << 20;
    println!(
        "| mean B | log | threshold | hit ratio | bytes written per byte | objects per page write | RAM B per object | absent keys that cost a read | ended below threshold | readmitted | bytes read to move per byte |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    if let [_, mean, log_percent, threshold] = arguments[..] {
        return measure(flash_bytes, mean, log_percent as u8, threshold as u8);
    }
    for mean in [300, 100, 50].into_iter().filter(|mean| arguments.get(1).is_none_or(|only| only == mean)) {
        for (log_percent, threshold) in
            [(0, 1), (5, 1), (5, 2), (10, 1), (10, 2), (15, 1), (15, 2), (20, 1), (20, 2), (30, 1)]
        {
            measure(flash_bytes, mean, log_percent, threshold);
        }
    }
}
