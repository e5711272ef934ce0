//! The image of a compact table: all state that a new table needs to continue from it, as a stream of bytes.
//!
//! ```text
//! image     head | frame, frame, ...
//! head      magic 8 B | version u32 | key bytes u32 | value bytes u32 | 1 if entries may expire u32 | seed u64 |
//!           hash of the magic u64 | memory u64 | sets before a resize u32 | sets after it u32 | its cursor u64 |
//!           flush at ms u64 | 6 counters u64 | frames u32
//! frame     number u32 | bytes in use u32 | their checksum u64
//! ```
//! Numbers are little-endian. A frame in use as a whole has all its bytes in use, the last one those up to the end of
//! its last set: `layout` draws them. The bytes are not in the stream: each frame has its place in the address space of
//! the engine, and is kept there, or in a file at the same offset. A table that was being resized continues its resize.
//!
//! A load trusts no byte. It checks each frame by its checksum, then each set: no lock, no more entries than fit, each
//! key in the set of its hash, and no key twice. The checksum of the stream is the caller's.
//!
//! Thread safety: while an image is made, and until the table ends, changes are refused (`Participant::begin_change`):
//! a hit moves no entry, and a flush whose time has come removes none.

use super::layout::{Layout, SET_BYTES_MAX, SetControl, WAYS_MAX};
use super::memory::{Memory, Resizing};
use super::resize::{SETS_MIN, checked_sets};
use super::shape::{Shape, View};
use super::stats::Event;
use super::table::CompactTable;
use super::types::CompactSizes;
use super::words::SetRef;
use crate::engine_memory::EngineMemory;
use crate::frames::FRAME_BYTES;
use crate::image::{ImageError, OnThreads, Put, Saved, SegmentBytes, Take, check, damaged};
use crate::sync::{AtomicU64, AtomicUsize, Ordering, lock};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use std::io::{self, Read, Write};
use std::sync::OnceLock;

const MAGIC: [u8; 8] = *b"EBBTABLE";
const VERSION: u32 = 2;
/// Counters in the head, in this order.
const COUNTERS: [Event; 6] =
    [Event::StoredValue, Event::StoredNegative, Event::Evicted, Event::Expired, Event::Flushed, Event::Promoted];
const HEAD_BYTES: usize = 8 + 4 * 4 + 3 * 8 + 2 * 4 + 2 * 8 + COUNTERS.len() * 8 + 4;
const RECORD_BYTES: usize = 4 + 4 + 8;
const _: () = assert!(HEAD_BYTES == 124 && RECORD_BYTES == 16);

/// The checksum of the bytes of a frame that are in use.
fn checksum(frame: u32, bytes: &[u8]) -> u64 {
    rapidhash_v3_inline::<true, false, false>(bytes, &RapidSecrets::seed(frame.into()))
}

/// The first numbers of an image.
struct Head {
    sizes: CompactSizes,
    seed: u64,
    memory_bytes: u64,
    view: View,
    flush_at_ms: u64,
    counters: [u64; COUNTERS.len()],
    frames: u32,
}

/// A frame as an image has it.
struct Record {
    frame: u32,
    length: u32,
    checksum: u64,
}

impl Head {
    fn put(&self, put: &mut Put) {
        let Self { sizes, seed, memory_bytes, view, flush_at_ms, counters, frames } = self;
        put.bytes(&MAGIC).u32(VERSION);
        put.u32(sizes.key_bytes as u32).u32(sizes.value_bytes as u32).u32(sizes.has_ttl.into());
        put.u64(*seed).u64(crate::hash::KeyHash::new(*seed).hash(&MAGIC)).u64(*memory_bytes);
        put.u32(view.from).u32(view.to).u64(view.cursor).u64(*flush_at_ms);
        counters.iter().for_each(|sum| _ = put.u64(*sum));
        put.u32(*frames);
    }

    fn take(take: &mut Take<'_, impl Read>) -> Result<Self, ImageError> {
        if take.array::<8>()? != MAGIC {
            return Err(ImageError::Foreign("it is not the image of a compact pool".to_owned()));
        }
        let version = take.u32()?;
        if version != VERSION {
            let reason = format!("its compact pools have format {version}, this version reads format {VERSION}");
            return Err(ImageError::Foreign(reason));
        }
        let (key_bytes, value_bytes) = (take.u32()? as usize, take.u32()? as usize);
        let has_ttl = match take.u32()? {
            0 => false,
            1 => true,
            _ => return damaged("a compact pool has TTLs or none"),
        };
        let (seed, hash) = (take.u64()?, take.u64()?);
        if crate::hash::KeyHash::new(seed).hash(&MAGIC) != hash {
            return Err(ImageError::Foreign("another hash function was used".to_owned()));
        }
        let memory_bytes = take.u64()?;
        let view = View { version: 0, from: take.u32()?, to: take.u32()?, cursor: take.u64()? };
        let has_sets = view.from >= SETS_MIN && view.to >= SETS_MIN;
        let is_possible = view.cursor <= if view.is_resizing() { u64::from(view.from) } else { 0 };
        check(has_sets && is_possible, "a compact pool has no such sets")?;
        let flush_at_ms = take.u64()?;
        let mut counters = [0; COUNTERS.len()];
        for counter in &mut counters {
            *counter = take.u64()?;
        }
        let sizes = CompactSizes { key_bytes, value_bytes, has_ttl };
        Ok(Self { sizes, seed, memory_bytes, view, flush_at_ms, counters, frames: take.u32()? })
    }
}

impl CompactTable {
    /// Writes the image of the table to `out`. `keep` gets the bytes of each frame that are in use, with their offset
    /// in the memory of the engine. Changes are refused, and have ended.
    ///
    /// # Errors
    /// Those of `out` and `keep`.
    pub fn save(&self, out: &mut impl Write, keep: &mut impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<Saved> {
        let _resizing = lock(&self.memory.resizing);
        let view = self.shape.view();
        let frames = view.sets().div_ceil(self.layout.sets_per_frame);
        let head = Head {
            sizes: self.sizes(),
            seed: self.seed,
            memory_bytes: self.memory_bytes(),
            view,
            flush_at_ms: self.flush_at_ms.load(Ordering::Relaxed),
            counters: COUNTERS.map(|event| self.counters.sum(event)),
            frames,
        };
        let mut put = Put::default();
        head.put(&mut put);
        put.write_to(out)?;
        let mut saved = Saved { items: self.stats().items, bytes: 0 };
        for place in 0..frames {
            let length = self.layout.bytes_in_frame(place, view.sets());
            // SAFETY: the sets have memory, and no thread changes them.
            let bytes = unsafe { self.memory.bytes(place, length) };
            keep(self.memory.offset(place) as u64, bytes)?;
            let frame = self.memory.frame(place).0;
            put.u32(frame).u32(length as u32).u64(checksum(frame, bytes)).write_to(out)?;
            saved.bytes += length as u64;
        }
        Ok(saved)
    }

    /// The table of an image, in the frames that it had, and its entries. `None` if its lengths differ from `sizes`:
    /// the image is skipped. The frames are checked on the caller's threads. `resize` brings the table to another
    /// memory afterwards.
    ///
    /// # Errors
    /// `Foreign` and `Damaged` tell what is wrong with the image.
    pub fn load(
        sizes: CompactSizes,
        source: &mut impl Read,
        (bytes, on_threads): (SegmentBytes<'_>, OnThreads<'_>),
        memory: &EngineMemory,
    ) -> Result<Option<(Self, u64)>, ImageError> {
        let mut take = Take(source);
        let head = Head::take(&mut take)?;
        if head.sizes != sizes {
            take.skip(u64::from(head.frames) * RECORD_BYTES as u64)?;
            return Ok(None);
        }
        check(head.memory_bytes <= memory.address_bytes(), "a compact pool has more memory than the cache")?;
        let layout = Layout::new(sizes)?;
        let target = checked_sets(&layout, head.memory_bytes);
        let Ok(target) = target else { return damaged("a compact pool has no memory") };
        let sets = head.view.sets();
        check(head.frames == sets.div_ceil(layout.sets_per_frame), "a compact pool has other frames than its sets")?;
        let mut records = Vec::new();
        for place in 0..head.frames {
            let record = Record { frame: take.u32()?, length: take.u32()?, checksum: take.u64()? };
            let is_right = record.length as usize == layout.bytes_in_frame(place, sets);
            check(is_right, "a frame of a compact pool has another length")?;
            records.push(record);
        }
        let mut memory = Memory::new(memory, head.memory_bytes)?;
        let frames: Vec<u32> = records.iter().map(|record| record.frame).collect();
        check(memory.adopt(&layout, &frames, sets), "a frame of a compact pool is another pool's, or is not there")?;
        let is_in_place = matches!(bytes, SegmentBytes::InPlace);
        if let SegmentBytes::Read(read) = bytes {
            for (place, record) in (0..).zip(&records) {
                // SAFETY: anonymous memory comes by touching it, and the table is not there yet.
                let bytes = unsafe { memory.bytes_mut(place, record.length as usize) };
                read(u64::from(record.frame) * FRAME_BYTES as u64, bytes)?;
            }
        }
        *lock(&memory.resizing) = Resizing { target, held: sets, leaving: None };
        let table = Self::with_memory(layout, head.seed, memory, Shape::at(head.view));
        table.flush_at_ms.store(head.flush_at_ms, Ordering::Relaxed);
        let checked = CheckedFrames::new(&table, &records, is_in_place);
        on_threads(&|| checked.work());
        let (items, negatives) = checked.result()?;
        table.counters.restore(&[(Event::Entered, items), (Event::EnteredNegative, negatives)]);
        COUNTERS.iter().zip(head.counters).for_each(|(event, sum)| table.counters.restore(&[(*event, sum)]));
        Ok(Some((table, items)))
    }

    /// Skips an image.
    ///
    /// # Errors
    /// As `load`.
    pub fn skip_image(source: &mut impl Read) -> Result<(), ImageError> {
        let mut take = Take(source);
        let head = Head::take(&mut take)?;
        Ok(take.skip(u64::from(head.frames) * RECORD_BYTES as u64)?)
    }
}

/// The frames of an image, in place. Any number of threads call `work` at once; a frame is checked by the thread that
/// took its number.
struct CheckedFrames<'t> {
    table: &'t CompactTable,
    records: &'t [Record],
    view: View,
    /// Whether the bytes are those of a file, which may have lost a part of them.
    is_in_place: bool,
    /// The first record that no thread has taken.
    next: AtomicUsize,
    items: AtomicU64,
    negatives: AtomicU64,
    damage: OnceLock<&'static str>,
}

impl<'t> CheckedFrames<'t> {
    fn new(table: &'t CompactTable, records: &'t [Record], is_in_place: bool) -> Self {
        Self {
            table,
            records,
            view: table.shape.view(),
            is_in_place,
            next: AtomicUsize::new(0),
            items: AtomicU64::new(0),
            negatives: AtomicU64::new(0),
            damage: OnceLock::new(),
        }
    }

    /// Checks frames until all are checked or one is damaged.
    fn work(&self) {
        // Ends: each turn takes another record.
        while self.damage.get().is_none() {
            // Relaxed: the records were complete before the threads started.
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(record) = self.records.get(place) else { return };
            if let Err(damage) = self.check(place as u32, record) {
                // The first of several damages is reported.
                let _ = self.damage.set(damage);
            }
        }
    }

    /// Entries and negative ones, after the last thread has left `work`.
    fn result(&self) -> Result<(u64, u64), ImageError> {
        match self.damage.get() {
            Some(damage) => damaged(*damage),
            None => Ok((self.items.load(Ordering::Relaxed), self.negatives.load(Ordering::Relaxed))),
        }
    }

    fn check(&self, place: u32, record: &Record) -> Result<(), &'static str> {
        let (memory, layout) = (&self.table.memory, &self.table.layout);
        let length = record.length as usize;
        if self.is_in_place && !memory.frames().allocate(memory.offset(place), length) {
            return Err("the file system has no memory for the bytes that the file has lost");
        }
        // SAFETY: the bytes have memory, and no thread changes them.
        if checksum(record.frame, unsafe { memory.bytes(place, length) }) != record.checksum {
            return Err("the bytes of a compact pool have another checksum");
        }
        let (mut items, mut negatives) = (0, 0);
        for number in 0..layout.sets_per_frame {
            let set = SetRef::new(layout, memory.frames(), memory.frame(place), number);
            let control = SetControl(set.control().load(Ordering::Relaxed));
            let (used, index) = (control.used(), u64::from(place * layout.sets_per_frame) + u64::from(number));
            // The control words of a frame lie in front of its sets: also those of sets that are not in use.
            let ways = if index < self.view.sets().into() { layout.ways } else { 0 };
            if control.is_locked() || used > ways || u64::from(control.negatives()) >> used != 0 {
                return Err("a set of a compact pool is locked, or counts other entries than it has");
            }
            self.check_keys(&set, used, index)?;
            items += used as u64;
            negatives += u64::from(control.negatives().count_ones());
        }
        self.items.fetch_add(items, Ordering::Relaxed);
        self.negatives.fetch_add(negatives, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that a set has each of its keys once, and no other key.
    fn check_keys(&self, set: &SetRef<'_>, used: usize, index: u64) -> Result<(), &'static str> {
        let Layout { key_bytes, entry_bytes, .. } = self.table.layout;
        let (mut bytes, mut hashes) = ([0; SET_BYTES_MAX], [0; WAYS_MAX]);
        set.load(&mut bytes, used * entry_bytes);
        let key = |position: usize| &bytes[position * entry_bytes..][..key_bytes];
        for position in 0..used {
            let hash = self.table.hash.hash(key(position));
            if u64::from(self.view.locate(hash)) != index {
                return Err("a key of a compact pool is in no set of its hash");
            }
            let is_same = |other: usize| hashes[other] == hash && key(other) == key(position);
            if (0..position).any(is_same) {
                return Err("a key of a compact pool is there twice");
            }
            hashes[position] = hash;
        }
        Ok(())
    }
}
