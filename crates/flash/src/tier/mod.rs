//! Both stores, admission and the device as one: what the cache sees of flash.
//!
//! ```text
//! insert -> device failed? -> admission -> by size --> large log, or small objects     the other store's version goes first
//! lookup -> device failed? -> large log --- not there, or another key's ---> small objects
//! ```
//! | where | what |
//! |---|---|
//! | `options`, `layout` | what can be chosen; how capacity and memory are divided |
//! | `divide`, `smalls` | when the boundary is drawn; small objects before and after |
//! | `superblock` | the format of the first block |
//! | `insert`, `lookup` | objects in and out |
//! | `stats` | what is counted |
//!
//! Invariant: of a key at most one store has a version that could be found. An insert first takes the key out of the other store,
//! and inserts of one key go one after the other; so what ends in one store never uncovers something in the other.
//!
//! Any thread may call any method. [`Tier::maintain`] and [`Tier::settle`] wait for the device; nothing else does.

mod divide;
mod insert;
mod layout;
mod lookup;
mod options;
mod smalls;
mod stats;
mod superblock;
#[cfg(test)]
mod tests;

pub use options::TierOptions;
pub use stats::{Drops, TierStats, Written};

use crate::admission::Admission;
use crate::device::{Buffer, Device, Direction, Disk, Health, Outcome, Request};
use crate::large::LargeLog;
use crate::small::{PAGE, SmallStore};
use crate::{Error, KeyHash, Token};
use divide::Mix;
use layout::Layout;
use smalls::Smalls;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Marks the tokens of large objects. Theirs count regions and small ones' pages, neither gets so far; the bit above it is used.
const LARGE: u64 = 1 << 62;
/// Inserts of one key go one after the other: they share one of so many locks.
const STRIPES: usize = 64;

/// How long [`Tier::settle`] waits at most, and how often it looks.
const SETTLE_MOST: Duration = Duration::from_secs(30);
const SETTLE_STEP: Duration = Duration::from_micros(50);

/// The flash tier.
pub struct Tier {
    device: Arc<dyn Device>,
    large: Arc<LargeLog>,
    small: Arc<Smalls>,
    admission: Admission,
    inserting: Box<[Mutex<()>]>,
    /// When the device was judged last, and when admission was told of time.
    observed: AtomicU32,
    maintained: AtomicU32,
    dropped_failed: AtomicU64,
    superblock_bytes: AtomicU64,
    mix: Mix,
}

impl Tier {
    /// An empty tier on files and block devices, each with its bytes. Says in what lesser ways it works than it could.
    ///
    /// # Errors
    ///
    /// As [`Disk::open`] and [`Tier::on`].
    pub fn open(paths: &[(PathBuf, u64)], options: &TierOptions) -> Result<(Arc<Self>, Vec<String>), Error> {
        let opened = Disk::open(paths, &options.disk)?;
        let notices = opened.notices.iter().map(ToString::to_string).collect();
        let identity = opened.disk.identity();
        Ok((Self::with(Arc::new(opened.disk), identity, options)?, notices))
    }

    /// Whether [`Tier::open`] would succeed, as far as that can be said without changing anything or taking a lock.
    ///
    /// # Errors
    ///
    /// As [`Tier::open`].
    pub fn check(paths: &[(PathBuf, u64)], options: &TierOptions) -> Result<(), Error> {
        let capacity = Disk::check(paths, &options.disk)?;
        let admission = Admission::new(options.admission, capacity, 0)?;
        Layout::new(capacity, 0, admission.memory_bytes(), options).map(drop)
    }

    /// An empty tier on any device.
    ///
    /// # Errors
    ///
    /// [`Error::Options`] when the options make no sense, or the device or the memory is too small for them.
    pub fn on(device: Arc<dyn Device>, options: &TierOptions) -> Result<Arc<Self>, Error> {
        Self::with(device, 0, options)
    }

    fn with(device: Arc<dyn Device>, identity: u64, options: &TierOptions) -> Result<Arc<Self>, Error> {
        let life = RandomState::new().hash_one("life");
        let admission = Admission::new(options.admission, device.capacity(), life)?;
        let layout = Layout::new(device.capacity(), life, admission.memory_bytes(), options)?;
        let superblock = superblock::to_block(identity, &layout);
        let small = Smalls::default();
        if let Some(options) = layout.small_options.clone() {
            small.set(SmallStore::new(Arc::clone(&device), layout.small_area(), options)?);
        }
        let tier = Arc::new(Self {
            large: LargeLog::new(Arc::clone(&device), layout.large_area(), layout.large_options)?,
            small: Arc::new(small),
            mix: Mix::new(identity, layout, options),
            admission,
            device,
            inserting: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            observed: AtomicU32::new(0),
            maintained: AtomicU32::new(0),
            dropped_failed: AtomicU64::new(0),
            superblock_bytes: AtomicU64::new(0),
        });
        tier.write_superblock(superblock);
        Ok(tier)
    }

    /// Has it written when the device is served. One that is not written is found by no restart, which then starts empty.
    fn write_superblock(self: &Arc<Self>, block: Buffer) {
        // The request may wait for as long as the device lives, which lives as long as the tier.
        let tier = Arc::downgrade(self);
        let written = move |outcome: Outcome| {
            let bytes = outcome.result.map_or(0, |()| outcome.buffer.len());
            if let Some(tier) = tier.upgrade() {
                tier.superblock_bytes.store(bytes as u64, Relaxed);
            }
        };
        let request = Request { direction: Direction::Write, offset: 0, buffer: block, done: Box::new(written) };
        drop(self.device.submit(request));
    }

    /// How many threads are to call [`Tier::serve_io`].
    pub fn io_threads(&self) -> usize {
        self.device.threads()
    }

    /// Moves transfers on and runs completions, until [`Tier::stop`].
    pub fn serve_io(&self) {
        self.device.serve();
    }

    /// Ends [`Tier::serve_io`] after what is under way. What would need the device later is a miss.
    pub fn stop(&self) {
        self.device.stop();
    }

    /// The upkeep of both stores, of the admission and of the device's health; to be called again and again, about every
    /// 10 ms, from a thread that may wait for the device. `now` is in seconds since 1970.
    pub fn maintain(&self, now: u32) {
        if self.has_failed(now) {
            return;
        }
        self.divide();
        self.small.maintain(now);
        self.large.maintain(now);
        if self.maintained.swap(now, Relaxed) != now {
            self.admission.maintain(now, self.written(&self.large.stats(), &self.small.stats()).total());
        }
    }

    /// As [`Tier::maintain`], and waits until the device has done what was begun: for those whose time does not pass by itself.
    /// A device that does nothing is waited for half a minute.
    pub fn settle(&self, now: u32) {
        let deadline = Instant::now() + SETTLE_MOST;
        self.maintain(now);
        while self.device.account().under_way() > 0 && Instant::now() < deadline {
            std::thread::sleep(SETTLE_STEP);
            self.maintain(now);
        }
    }

    /// Whether a lookup may find an object. No I/O.
    pub fn could_exist(&self, hash: KeyHash) -> bool {
        self.health() != Health::Failed && (self.large.could_exist(hash) || self.small.could_exist(hash))
    }

    /// Whether inserts can go on for a while though the device does nothing. Whoever can wait with inserts until it is so loses
    /// none. A tier whose device has failed has room for all that it drops.
    pub fn has_room(&self) -> bool {
        self.health() == Health::Failed || self.small.has_room() && self.large.has_room()
    }

    /// About how many bytes a lookup would read.
    pub fn bytes_to_read(&self, hash: KeyHash) -> u64 {
        self.large.bytes_to_read(hash).unwrap_or(PAGE) as u64
    }

    /// Takes an object away: no lookup that begins later finds it, and none that is under way. Says whether flash may have
    /// held one.
    pub fn remove(&self, hash: KeyHash) -> bool {
        let was_small = self.small.remove(hash);
        self.large.remove(hash) || was_small
    }

    /// Takes away what was inserted with this token, since it was overtaken. A newer version may go with it, and no older one
    /// is found.
    pub fn remove_if(&self, hash: KeyHash, token: Token) -> bool {
        match large_token(token) {
            Some(token) => self.large.remove_if(hash, token),
            None => self.small.remove_if(hash, token),
        }
    }

    /// Whether the object with this token is still what a lookup would find. May say no because of a neighbour.
    pub fn is_current(&self, hash: KeyHash, token: Token) -> bool {
        let is_there = match large_token(token) {
            Some(token) => self.large.is_current(hash, token),
            None => self.small.is_current(hash, token),
        };
        is_there && self.health() != Health::Failed
    }

    /// All objects are gone, also for lookups under way.
    pub fn flush(&self) {
        self.small.flush();
        self.large.flush();
    }

    /// Whether [`Tier::requested`] is to be called; stays so.
    pub fn wants_requests(&self) -> bool {
        self.admission.wants_requests()
    }

    /// A key was requested, and DRAM had it or not: for admission by history. Takes no lock.
    pub fn requested(&self, hash: KeyHash, in_dram: bool) {
        self.admission.requested(hash, in_dram);
    }

    /// RAM in use: indexes, filters, buffers, reads under way.
    pub fn memory_bytes(&self) -> u64 {
        (self.large.memory_bytes() + self.small.memory_bytes() + self.admission.memory_bytes()) as u64
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.device.capacity()
    }

    /// As it was found within the last second of work.
    pub fn health(&self) -> Health {
        self.device.account().health()
    }

    /// Asserts every invariant. Only while nothing else is going on.
    pub fn verify(&self) {
        self.large.verify();
        self.small.verify();
    }

    /// Whether the device has failed. Judges it once a second: whoever comes first does so, since the thread that maintains may
    /// wait for a device that does nothing.
    pub fn has_failed(&self, now: u32) -> bool {
        if self.observed.load(Relaxed) != now && self.observed.swap(now, Relaxed) != now {
            self.device.account().observe(Instant::now());
        }
        self.health() == Health::Failed
    }
}

/// The large log's own token; none for one of a small object.
fn large_token(token: Token) -> Option<Token> {
    (token.0 & LARGE != 0).then_some(Token(token.0 & !LARGE))
}

fn token_of_large(token: Token) -> Token {
    debug_assert_eq!(token.0 & LARGE, 0);
    Token(token.0 | LARGE)
}
