//! The bytes of sets as atomic words, and reading them beside writers.
//!
//! ```text
//! writer   lock: control | 1      fence   words = ...   control = next, unlocked
//! reader   control unlocked       words   fence         control unchanged? else again
//! ```
//! A reader writes nothing. All words are atomic, so a read beside a writer is no data race; the control word tells
//! that its result is void. The sequence in the control word has 25 bits: a reader that sleeps while its set changes
//! an exact multiple of 2^25 times would not notice.

use super::layout::{ENTRY_BYTES_MAX, Layout, SET_BYTES_MAX, SetControl};
use crate::frames::{FRAME_BYTES, FrameId, Frames};
use crate::sync::{AtomicU64, Backoff, Ordering, fence};

const WORD_BYTES: usize = size_of::<u64>();
/// Words of the largest key, value and expiry.
const ENTRY_WORDS_MAX: usize = ENTRY_BYTES_MAX / WORD_BYTES;

/// A set in its frame. The frame must stay the table's: the thread is pinned since it looked for the set, or it holds
/// the lock of resizes.
#[derive(Clone, Copy)]
pub struct SetRef<'t> {
    pub layout: &'t Layout,
    frames: &'t Frames,
    /// Where its control word and its first byte are among the bytes of all frames.
    control_at: usize,
    bytes_at: usize,
}

/// A key as words, for comparisons with words of sets.
pub struct KeyWords {
    words: [u64; ENTRY_WORDS_MAX],
    /// Bytes of the last word.
    last_bytes: usize,
    length: usize,
}

impl KeyWords {
    pub fn of(key: &[u8]) -> Self {
        let mut words = [0; ENTRY_WORDS_MAX];
        let chunks = key.chunks(WORD_BYTES);
        let length = chunks.len();
        for (word, chunk) in words.iter_mut().zip(chunks) {
            let mut bytes = [0; WORD_BYTES];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(bytes);
        }
        Self { words, last_bytes: key.len() - (length - 1) * WORD_BYTES, length }
    }

    fn bytes_of(&self, word: usize) -> usize {
        if word + 1 == self.length { self.last_bytes } else { WORD_BYTES }
    }
}

impl<'t> SetRef<'t> {
    pub fn new(layout: &'t Layout, frames: &'t Frames, frame: FrameId, set: u32) -> Self {
        let start = frame.0 as usize * FRAME_BYTES;
        let (control_at, bytes_at) = (start + layout.control_at(set), start + layout.set_at(set));
        Self { layout, frames, control_at, bytes_at }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn word_at(&self, offset: usize) -> &'t AtomicU64 {
        debug_assert!(offset.is_multiple_of(WORD_BYTES));
        // SAFETY: the offset is in a frame (`Layout` sees that its sets fit), the address is aligned, and a word may
        // have any bits. The frame is the table's (see `SetRef`), which has only atomic accesses to it; the mapping
        // lives as long as `frames`.
        unsafe { &*self.frames.bytes().base().add(offset).cast::<AtomicU64>() }
    }

    #[cfg(loom)]
    fn word_at(&self, offset: usize) -> &'t AtomicU64 {
        &self.frames.bytes().words[offset / WORD_BYTES]
    }

    #[inline(always)]
    pub fn control(&self) -> &'t AtomicU64 {
        self.word_at(self.control_at)
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &'t AtomicU64 {
        self.word_at(self.bytes_at + index * WORD_BYTES)
    }

    /// Asks the processor for the control word and the first line.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(not(loom))]
        for offset in [self.control_at, self.bytes_at] {
            crate::mapping::prefetch_line(self.frames.bytes().base().wrapping_add(offset));
        }
    }

    /// Up to 8 bytes of the set, as a number whose lowest byte is the first.
    #[inline(always)]
    fn read(&self, at: usize, bytes: usize) -> u64 {
        let (index, skipped) = (at / WORD_BYTES, at % WORD_BYTES);
        let low = self.word(index).load(Ordering::Relaxed);
        let word = match skipped {
            0 => low,
            _ if skipped + bytes <= WORD_BYTES => low >> (8 * skipped),
            _ => {
                let high = self.word(index + 1).load(Ordering::Relaxed);
                low >> (8 * skipped) | high << (8 * (WORD_BYTES - skipped))
            }
        };
        if bytes == WORD_BYTES { word } else { word & ((1 << (8 * bytes)) - 1) }
    }

    /// The entry of a key among the first `used`.
    #[inline(always)]
    pub fn find(&self, key: &KeyWords, used: usize) -> Option<usize> {
        let (first, first_bytes) = (key.words[0], key.bytes_of(0));
        (0..used.min(self.layout.ways)).find(|position| {
            let at = position * self.layout.entry_bytes;
            self.read(at, first_bytes) == first
                && (1..key.length).all(|word| self.read(at + word * WORD_BYTES, key.bytes_of(word)) == key.words[word])
        })
    }

    /// Copies bytes of an entry, from `offset` on.
    pub fn copy_entry(&self, position: usize, offset: usize, to: &mut [u8]) {
        let start = position * self.layout.entry_bytes + offset;
        for (index, chunk) in to.chunks_mut(WORD_BYTES).enumerate() {
            let bytes = self.read(start + index * WORD_BYTES, chunk.len()).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    /// Copies the first bytes of the set.
    pub fn load(&self, to: &mut [u8; SET_BYTES_MAX], bytes: usize) {
        for (index, chunk) in to[..bytes.next_multiple_of(WORD_BYTES)].chunks_exact_mut(WORD_BYTES).enumerate() {
            chunk.copy_from_slice(&self.word(index).load(Ordering::Relaxed).to_le_bytes());
        }
    }

    /// Writes the first bytes of the set, of which the caller holds the lock.
    pub fn store(&self, from: &[u8; SET_BYTES_MAX], bytes: usize) {
        for (index, chunk) in from[..bytes.next_multiple_of(WORD_BYTES)].chunks_exact(WORD_BYTES).enumerate() {
            let word = u64::from_le_bytes(chunk.try_into().expect("a chunk of a word"));
            self.word(index).store(word, Ordering::Relaxed);
        }
    }

    /// Reads the set until no writer has changed it meanwhile. Returns the result with the control word.
    #[inline(always)]
    pub fn read_consistently<R>(&self, mut read: impl FnMut(SetControl) -> R) -> (SetControl, R) {
        let mut backoff = Backoff::new();
        // Ends: the holder of a set's lock waits for no reader, and a change takes well under a microsecond.
        loop {
            // Acquire pairs with the Release in `LockedSet`: the words of that change.
            let control = SetControl(self.control().load(Ordering::Acquire));
            if !control.is_locked() {
                let answer = read(control);
                // Pairs with the fence in `LockedSet::lock`: a thread that read a word of a later change sees its lock
                // here.
                fence(Ordering::Acquire);
                if self.control().load(Ordering::Relaxed) == control.0 {
                    return (control, answer);
                }
            }
            backoff.wait();
        }
    }
}
