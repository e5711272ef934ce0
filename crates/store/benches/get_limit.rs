//! How near a get that hits is to what the memory allows: `cargo bench -p ebbtide-store --bench get_limit -- [KEYS]`.
//!
//! Beside the store runs a prototype that can only be read: the same buckets of a cache line with seven slots and two
//! candidates, the same items, huge pages, and of a get nothing but hash, probe, comparison of the key and copy. It has
//! no clock, no expiry, no frequencies, no protection of readers and no writers. In turns, medians of the rounds; both
//! read the same keys in the same order, Zipf 1.0, and both have all of them.
//!
//! Not measured: misses, writers, several threads. KEYS is 2 million by default; 10 million take 6 GB of memory.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use ebbtide_store::{Mode, Options, Store, Ttl, Write};
use ebbtide_testkit::Random;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

const KEY_BYTES: usize = 20;
const VALUE_BYTES: usize = 230;
const HEADER_BYTES: usize = 5;
const SLOTS: usize = 7;
const TAG_SHIFT: u32 = 52;
const BATCH: usize = 16;
const ROUNDS: usize = 7;
const GETS: usize = 1_000_000;

type Key = [u8; KEY_BYTES];

fn key(number: u64) -> Key {
    let mut key = *b"user:profile\0\0\0\0\0\0\0\0";
    key[KEY_BYTES - 8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// A bucket as in the store: a control word, which nothing here needs, and the slots.
#[derive(Clone)]
#[repr(align(64))]
struct Bucket([u64; SLOTS + 1]);

/// An index and items that nobody changes any more.
struct Prototype {
    buckets: Vec<Bucket>,
    items: Vec<u8>,
    secrets: RapidSecrets,
}

impl Prototype {
    fn filled(keys: u64) -> Self {
        let buckets = (keys as usize * 5 / 4 / SLOTS).next_power_of_two();
        let bytes = keys as usize * (HEADER_BYTES + KEY_BYTES + VALUE_BYTES);
        let (buckets_of, items) = (Vec::with_capacity(buckets), Vec::with_capacity(bytes));
        let mut prototype = Self { buckets: buckets_of, items, secrets: RapidSecrets::seed(1) };
        advise(&prototype.buckets);
        advise(&prototype.items);
        prototype.buckets.resize(buckets, Bucket([0; SLOTS + 1]));
        for number in 0..keys {
            prototype.insert(&key(number), &[number as u8; VALUE_BYTES]);
        }
        prototype
    }

    fn insert(&mut self, key: &Key, value: &[u8; VALUE_BYTES]) {
        let (tag, candidates) = self.place(key);
        // Offset 0 is an empty slot.
        let word = u64::from(tag) << TAG_SHIFT | (self.items.len() as u64 + 1);
        let free = |bucket: usize| self.buckets[bucket].0[1..].iter().filter(|&&word| word == 0).count();
        let bucket = candidates.into_iter().max_by_key(|&bucket| free(bucket)).expect("there are two");
        let slot = self.buckets[bucket].0[1..].iter_mut().find(|word| **word == 0);
        *slot.expect("a load of 0.8 at most leaves a slot in one of two buckets") = word;
        self.items.push(KEY_BYTES as u8);
        self.items.extend_from_slice(&(VALUE_BYTES as u32).to_le_bytes());
        self.items.extend_from_slice(key);
        self.items.extend_from_slice(value);
    }

    #[inline(always)]
    fn place(&self, key: &Key) -> (u16, [usize; 2]) {
        let hash = rapidhash_v3_nano_inline::<true, false>(key, &self.secrets);
        let (mask, tag) = (self.buckets.len() - 1, (hash >> TAG_SHIFT) as u16);
        let first = hash as usize & mask;
        (tag, [first, (first ^ (usize::from(tag) + 1).wrapping_mul(0x5BD1_E995)) & mask])
    }

    /// The value, where it lies.
    #[inline(always)]
    fn find(&self, key: &Key, (tag, candidates): (u16, [usize; 2])) -> Option<&[u8]> {
        for bucket in candidates {
            for &word in &self.buckets[bucket].0[1..] {
                if word >> TAG_SHIFT != u64::from(tag) || word == 0 {
                    continue;
                }
                let item = &self.items[(word & ((1 << TAG_SHIFT) - 1)) as usize - 1..];
                let (header, rest) = item.split_at(HEADER_BYTES);
                let bytes = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
                if rest[..usize::from(header[0])] == key[..] {
                    return Some(&rest[KEY_BYTES..KEY_BYTES + bytes]);
                }
            }
        }
        None
    }
}

/// Asks for huge pages, as the store does.
fn advise<T>(memory: &Vec<T>) {
    let (start, bytes) = (memory.as_ptr().addr(), memory.capacity() * size_of::<T>());
    let first = start.next_multiple_of(4096);
    let pointer = memory.as_ptr().cast::<libc::c_void>().wrapping_byte_add(first - start).cast_mut();
    if bytes > 1 << 21 {
        // SAFETY: the range lies in the allocation, and the advice changes no byte of it.
        unsafe { libc::madvise(pointer, bytes - (first - start), libc::MADV_HUGEPAGE) };
    }
}

fn filled_store(keys: u64) -> Store {
    // Enough for any number of keys: items with 30 bytes of overhead, and what small stores need beside.
    let memory_bytes = keys * (KEY_BYTES + VALUE_BYTES + 30) as u64 + (64 << 20);
    let store = Store::new(Options { memory_bytes, ..Options::default() }).expect("the machine has the memory");
    let participant = store.participate();
    for number in 0..keys {
        let (key, value) = (key(number), [number as u8; VALUE_BYTES]);
        let hash = store.hash(&key);
        let write =
            Write { key: &key, hash, value: &value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
        while store.write(&participant, &write, 1000).is_err() {
            store.maintain(&participant, 1000);
        }
        if number % 1024 == 0 {
            store.maintain(&participant, 1000);
        }
    }
    store
}

/// Million calls in a second.
fn speed(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(&mut call);
    calls as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let keys = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(2_000_000_u64);
    let (prototype, store) = (Prototype::filled(keys), filled_store(keys));
    let participant = store.participate();
    let mut random = Random::new(1);
    // The ranks of Zipf 1.0 in a scattered order of keys.
    let mut draw = || {
        let unit = random.uniform(1 << 53) as f64 / (1_u64 << 53) as f64;
        ((keys as f64).powf(unit) as u64 - 1).wrapping_mul(0x9E37_79B1) % keys
    };
    let names: Vec<Key> = (0..GETS).map(|_| key(draw())).collect();
    let mut out = Vec::with_capacity(VALUE_BYTES);
    let mut hits = 0_u64;
    let mut speeds: [Vec<f64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        speeds[0].push(speed(GETS, |i| {
            let value = prototype.find(&names[i], prototype.place(&names[i])).expect("all keys are there");
            out.clear();
            out.extend_from_slice(value);
            black_box(&out);
        }));
        speeds[1].push(speed(GETS, |i| {
            let item = store.get(&participant, &names[i], store.hash(&names[i]), 1000);
            out.clear();
            if let Some(item) = item {
                item.copy_to(&mut out);
                hits += 1;
            }
            black_box(&out);
        }));
        speeds[2].push(speed(GETS, |i| {
            let value = prototype.find(&names[i], prototype.place(&names[i])).expect("all keys are there");
            black_box(value[0]);
        }));
        speeds[3].push(speed(GETS, |i| {
            let item = store.get(&participant, &names[i], store.hash(&names[i]), 1000);
            black_box(item.as_ref().and_then(|item| item.slices().next()).map(|value| value[0]));
        }));
        speeds[4].push(
            BATCH as f64 * speed(GETS / BATCH, |run| prototype_batch(&prototype, &names[run * BATCH..], &mut out)),
        );
        speeds[5].push(
            BATCH as f64
                * speed(GETS / BATCH, |run| {
                    let run: [&[u8]; BATCH] = std::array::from_fn(|i| &names[run * BATCH + i][..]);
                    store.get_batch(
                        &participant,
                        &run,
                        1000,
                        |_| false,
                        |_, item| {
                            out.clear();
                            item.iter().for_each(|item| item.copy_to(&mut out));
                            black_box(&out);
                            ControlFlow::Continue(())
                        },
                    );
                }),
        );
    }
    let names = ["copy", "zero-copy", "batch of 16, copy"];
    println!("{keys} keys, {hits} hits of {} gets; million gets a second, medians of {ROUNDS} rounds", GETS * ROUNDS);
    println!("| get | prototype | store | store / prototype |\n|---|---|---|---|");
    for (name, pair) in names.iter().zip(speeds.chunks_mut(2)) {
        let (limit, found) = (median(&mut pair[0]), median(&mut pair[1]));
        println!("| {name} | {limit:.2} | {found:.2} | {:.2} |", found / limit);
    }
}

/// Sixteen gets whose misses of the processor's cache overlap: all buckets are asked for before any is searched, then
/// all items.
fn prototype_batch(prototype: &Prototype, names: &[Key], out: &mut Vec<u8>) {
    let places: [_; BATCH] = std::array::from_fn(|i| prototype.place(&names[i]));
    for (_, candidates) in &places {
        candidates.iter().for_each(|&bucket| prefetch(&prototype.buckets[bucket]));
    }
    for &(tag, candidates) in &places {
        for word in candidates.iter().flat_map(|&bucket| &prototype.buckets[bucket].0[1..]) {
            if word >> TAG_SHIFT == u64::from(tag) && *word != 0 {
                let offset = (word & ((1 << TAG_SHIFT) - 1)) as usize - 1;
                (0..4).for_each(|line| prefetch(&prototype.items[(offset + 64 * line).min(prototype.items.len() - 1)]));
            }
        }
    }
    for (name, place) in names.iter().zip(places) {
        let value = prototype.find(name, place).expect("all keys are there");
        out.clear();
        out.extend_from_slice(value);
        black_box(&out);
    }
}

/// Asks the processor for a cache line; does nothing where that is not known.
fn prefetch<T>(line: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address changes nothing but caches.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
