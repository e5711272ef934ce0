//! Flash of a simulated size that is filled, turned over once, killed and started again.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ebbtide_flash::device::{CompressedDevice, Device};
use ebbtide_flash::{FlashLookup, Key, Object, Tier, TierOptions};

const NOW: u32 = 10_000;
const IDENTITY: u64 = 7;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub capacity: u64,
    pub value_bytes: usize,
    /// Share of the capacity for small objects.
    pub small_share: f64,
    /// Number of inserts for each lookup.
    pub sample: u64,
}

#[derive(Debug)]
#[allow(dead_code, reason = "the test reads fewer of these than the program")]
pub struct Outcome {
    pub written: u64,
    /// Objects that were looked up after the start, and found.
    pub looked_up: u64,
    pub found: u64,
    /// Of the newest quarter of all objects: found, looked up.
    pub newest: (u64, u64),
    pub wrong: u64,
    pub start: Duration,
    pub longest_pause: Duration,
    /// Memory that the tier reports, when full and after the start.
    pub memory_bytes: (u64, u64),
    pub objects: u64,
    pub compressed_bytes: u64,
    pub notices: Vec<String>,
}

/// A value that compresses to a few bytes, and tells its key.
fn value_of(number: u64, bytes: usize) -> Vec<u8> {
    let word = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    word.iter().copied().cycle().take(bytes).collect()
}

fn options(plan: &Plan, folder: &Path) -> TierOptions {
    TierOptions {
        small_share: Some(plan.small_share),
        deletion_log: Some(folder.join("removals")),
        // A start after a kill looks at all small objects.
        scan_bytes: plan.capacity,
        ..TierOptions::default()
    }
}

fn start(device: &Arc<CompressedDevice>, options: &TierOptions) -> (Arc<Tier>, Vec<String>) {
    let opening = Tier::open_on(Arc::clone(device) as Arc<dyn Device>, IDENTITY, options).expect("the options fit");
    opening.start(NOW).expect("the device does not fail")
}

fn get(tier: &Tier, key: &[u8]) -> Option<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |found| sender.send(found).expect("the caller waits"));
    let found = match tier.lookup(Key::new(key), NOW, done) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv().expect("the device answers"),
    };
    found.map(|hit| hit.value().to_vec())
}

/// Writes twice the capacity, ends the tier without a stop, starts it again and looks at a sample.
pub fn run(plan: &Plan, folder: &Path) -> Outcome {
    let device = Arc::new(CompressedDevice::new(plan.capacity));
    let options = options(plan, folder);
    let (tier, _) = start(&device, &options);
    let written = 2 * plan.capacity / plan.value_bytes as u64;
    let mut longest_pause = Duration::ZERO;
    let mut timed = |work: &mut dyn FnMut() -> bool| {
        let began = Instant::now();
        let is_done = work();
        longest_pause = longest_pause.max(began.elapsed());
        is_done
    };
    for number in 0..written {
        let (key, value) = (number.to_le_bytes(), value_of(number, plan.value_bytes));
        let object = Object { key: Key::new(&key), value: &[&value], client_flags: 0, expiry: 0, is_annotated: false };
        // Ends: maintenance frees what the insert needs, and the device does not fail.
        while !timed(&mut || tier.insert(&object, NOW).is_some()) {
            timed(&mut || {
                tier.maintain(NOW);
                true
            });
        }
    }
    // A kill loses the buffers.
    let objects = tier.stats().objects;
    let full_bytes = tier.memory_bytes();
    drop(tier);
    let began = Instant::now();
    let (tier, notices) = start(&device, &options);
    let start = began.elapsed();
    let mut outcome = Outcome {
        written,
        looked_up: 0,
        found: 0,
        newest: (0, 0),
        wrong: 0,
        start,
        longest_pause,
        memory_bytes: (full_bytes, tier.memory_bytes()),
        objects,
        compressed_bytes: device.compressed_bytes(),
        notices,
    };
    for number in (0..written).step_by(plan.sample as usize) {
        let value = get(&tier, &number.to_le_bytes());
        outcome.looked_up += 1;
        outcome.found += u64::from(value.is_some());
        outcome.wrong += u64::from(value.as_ref().is_some_and(|value| *value != value_of(number, plan.value_bytes)));
        // The second half of the second turn.
        if number >= written / 4 * 3 {
            outcome.newest.0 += u64::from(value.is_some());
            outcome.newest.1 += 1;
        }
    }
    tier.verify();
    outcome
}
