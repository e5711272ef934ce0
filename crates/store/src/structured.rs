//! The value part of a structured item, which is edited in place.
//!
//! A structured value is bytes with a head that names its structure. A get answers these bytes, the lower tier holds
//! them, and a set of such bytes stores a structured value: this is the content. In memory an item of the kind
//! `Structured` holds the content with a commit word, so that an edit need not write the whole value again; as with
//! numbers, the first edit turns a plain item into one.
//!
//! ```text
//! content   0      2           3         4
//!         +------+-----------+---------+--------------------------------------------+
//!         | magic| structure | version | the rest, which the structure defines      |
//!         | EB7D | u8        | u8 = 1  | words: type tag u32, then 1 to 64 x u64    |
//!         +------+-----------+---------+--------------------------------------------+
//!
//! value part of a structured item (the filler aligns the commit word; 7 bytes with the one at the end)
//!         +--------+------------+---------------------------------------------------+--------+
//!   log   | filler | commit u64 | content, `commit` bytes of it published  | spare   | filler |
//!         +--------+------------+---------------------------------------------------+--------+
//!   words | filler | commit u64 | magic to type tag | words 0: n x u64 | words 1     | filler |
//!         +--------+------------+---------------------------------------------------+--------+
//! ```
//! **Log**, every structure but words: an edit appends to the spare bytes, then publishes the new length. A reader ends
//! at the length that it loaded, so that the bytes it sees never change.
//!
//! **Words**: `commit` counts the edits, and the words `commit & 1` are the current ones. An edit writes the other
//! words, then publishes the count. A reader reads the words and then the count again; a reader that is overtaken
//! reads again. So no reader waits for a writer that is not running, and a kill leaves no torn value.
//!
//! Thread safety: the holder of the lock of the item's bucket, or the owner of the unpublished item, writes the commit
//! word, the spare bytes and the words. All else never changes after the publication.

use crate::arena::Arena;
use crate::item::{ItemAt, Kind};
use crate::segment::Location;
use crate::sync::{Ordering, fence};

/// The first bytes of every structured value.
pub const STRUCTURE_MAGIC: [u8; 2] = [0xEB, 0x7D];
/// The version of the format.
pub const STRUCTURE_VERSION: u8 = 1;
/// Bytes of magic, structure and version.
pub const STRUCTURE_HEAD_BYTES: usize = 4;
/// The number of the structure whose content is words.
pub const WORDS_STRUCTURE: u8 = 1;
/// Bytes in front of the words.
pub const WORDS_HEAD_BYTES: usize = 8;
/// The largest number of words: with both copies they take 16 cache lines.
pub const WORDS_MAX: usize = 64;

/// The commit word.
const COMMIT_BYTES: u32 = 8;
/// Bytes of the value part that are no content: filler and commit word.
pub const STRUCTURED_BYTES: u32 = 7 + COMMIT_BYTES;

/// How a structured value is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StructuredKind {
    Words { count: u32 },
    Log,
}

impl StructuredKind {
    /// The kind of the value with this content; `None` if it is not structured.
    pub fn of(content: &[u8]) -> Option<Self> {
        let [first, second, structure, version, ..] = *content else { return None };
        if [first, second] != STRUCTURE_MAGIC || version != STRUCTURE_VERSION {
            return None;
        }
        if structure != WORDS_STRUCTURE {
            return Some(Self::Log);
        }
        let bytes = content.len().checked_sub(WORDS_HEAD_BYTES)?;
        let count = bytes / 8;
        (bytes.is_multiple_of(8) && (1..=WORDS_MAX).contains(&count)).then_some(Self::Words { count: count as u32 })
    }

    /// Bytes of the value part of an item with this content.
    pub fn value_length(self, content: usize, spare: u32) -> u32 {
        STRUCTURED_BYTES
            + match self {
                Self::Words { count } => WORDS_HEAD_BYTES as u32 + 2 * 8 * count,
                Self::Log => content as u32 + spare,
            }
    }
}

/// The words of a structured item at one moment.
#[derive(Clone, Debug)]
pub(crate) struct WordsContent {
    /// The commit word.
    pub edits: u64,
    pub content: Box<[u8]>,
}

/// Bytes of a structured item that are in place, by kind. Methods are called under a pin, under the lock of the item's
/// bucket, or by the owner of the unpublished item.
impl ItemAt {
    fn commit_at(self) -> Location {
        let offset = self.value_at().offset().next_multiple_of(8);
        Location::new(self.at.segment(), offset)
    }

    /// The location of the content.
    pub fn content_at(self) -> Location {
        self.commit_at().plus(COMMIT_BYTES)
    }

    /// Bytes that the content of a log may have.
    pub fn content_capacity(self) -> u32 {
        self.header.value_length().saturating_sub(STRUCTURED_BYTES)
    }

    /// # Safety
    /// As `ItemAt::read`, of a structured item.
    pub unsafe fn commit(self, arena: &Arena) -> u64 {
        debug_assert_eq!(self.header.kind(), Kind::Structured);
        // SAFETY: the caller's. Acquire pairs with the Release of `set_commit`, for the published bytes.
        unsafe { arena.word(self.commit_at()).load(Ordering::Acquire) }
    }

    /// # Safety
    /// As `commit`, by the holder of the item's bucket lock or its unpublished owner.
    unsafe fn set_commit(self, arena: &Arena, commit: u64) {
        // SAFETY: the caller's. Release pairs with the Acquire of `commit`.
        unsafe { arena.word(self.commit_at()).store(commit, Ordering::Release) }
    }

    /// Whether the content is words.
    ///
    /// # Safety
    /// As `commit`.
    pub unsafe fn has_words(self, arena: &Arena) -> bool {
        // SAFETY: the caller's; the head is in every structured item and never changes.
        unsafe { arena.slice(self.content_at().plus(2), 1)[0] == WORDS_STRUCTURE }
    }

    /// Published bytes of a log. Not more than there are, also in a damaged item.
    ///
    /// # Safety
    /// As `commit`, of an item without words.
    pub unsafe fn log_length(self, arena: &Arena) -> u32 {
        // SAFETY: the caller's.
        let commit = unsafe { self.commit(arena) };
        u32::try_from(commit).unwrap_or(u32::MAX).min(self.content_capacity())
    }

    fn word_count(self) -> u32 {
        self.content_capacity().saturating_sub(WORDS_HEAD_BYTES as u32) / (2 * 8)
    }

    /// The location of word `index` of the words that are current after `edits` edits.
    fn word_at(self, edits: u64, index: u32) -> Location {
        let copy = (edits & 1) as u32;
        self.content_at().plus(WORDS_HEAD_BYTES as u32 + 8 * (copy * self.word_count() + index))
    }

    /// The content of words, from one moment.
    ///
    /// # Safety
    /// As `commit`, of an item with words.
    pub unsafe fn words(self, arena: &Arena) -> WordsContent {
        let mut content = vec![0; WORDS_HEAD_BYTES + 8 * self.word_count() as usize].into_boxed_slice();
        // SAFETY: the caller's; the head never changes, and the words are atomic.
        unsafe {
            content[..WORDS_HEAD_BYTES].copy_from_slice(arena.slice(self.content_at(), WORDS_HEAD_BYTES));
            let mut edits = self.commit(arena);
            loop {
                for (index, word) in content[WORDS_HEAD_BYTES..].chunks_exact_mut(8).enumerate() {
                    let value = arena.word(self.word_at(edits, index as u32)).load(Ordering::Relaxed);
                    word.copy_from_slice(&value.to_le_bytes());
                }
                // Pairs with the Release fence of `write_words`: if one of these words is of a later edit, the next
                // load sees the edit before it.
                fence(Ordering::Acquire);
                let later = self.commit(arena);
                if later == edits {
                    return WordsContent { edits, content };
                }
                // Ends: each round another writer has finished an edit.
                edits = later;
            }
        }
    }

    /// Publishes words as the next edit.
    ///
    /// # Safety
    /// As `set_commit`, of an item with as many words as `words` has.
    pub unsafe fn write_words(self, arena: &Arena, words: &[u8]) {
        debug_assert_eq!(words.len(), 8 * self.word_count() as usize);
        // SAFETY: the caller's; no other thread writes.
        unsafe {
            let edits = self.commit(arena) + 1;
            // Pairs with the Acquire fence of `words`.
            fence(Ordering::Release);
            for (index, word) in words.chunks_exact(8).enumerate() {
                let value = u64::from_le_bytes(word.try_into().expect("a chunk of 8 bytes"));
                arena.word(self.word_at(edits, index as u32)).store(value, Ordering::Relaxed);
            }
            self.set_commit(arena, edits);
        }
    }

    /// Appends to a log and publishes the bytes, which fit its spare bytes.
    ///
    /// # Safety
    /// As `set_commit`, of an item without words.
    pub unsafe fn append_to_log(self, arena: &Arena, bytes: &[u8]) {
        // SAFETY: the caller's; no reader reads the spare bytes before they are published.
        unsafe {
            let length = self.log_length(arena);
            assert!(bytes.len() as u64 + u64::from(length) <= u64::from(self.content_capacity()), "the bytes fit");
            arena.write(self.content_at().plus(length), bytes);
            self.set_commit(arena, u64::from(length) + bytes.len() as u64);
        }
    }

    /// Fills the value part of an item that is not published.
    ///
    /// # Safety
    /// The caller must own the unpublished range, and `kind` be that of the content.
    pub unsafe fn write_content(self, arena: &Arena, kind: StructuredKind, content: &[u8]) {
        debug_assert_eq!(self.header.kind(), Kind::Structured);
        // SAFETY: the caller's.
        unsafe {
            self.set_commit(arena, 0);
            match kind {
                StructuredKind::Log => self.append_to_log(arena, content),
                StructuredKind::Words { .. } => {
                    arena.write(self.content_at(), &content[..WORDS_HEAD_BYTES]);
                    self.write_words(arena, &content[WORDS_HEAD_BYTES..]);
                }
            }
        }
    }

    /// Brings an unpublished copy up to the present content. `copied` bytes of a log were copied before; the answer is
    /// how many are now. The copy has the same length, and its head in front of the value is written.
    ///
    /// # Safety
    /// As `commit` of this item, and `copy` is owned by the caller. If the copy is published next, this item's bucket
    /// must be locked since.
    pub unsafe fn copy_content(self, arena: &Arena, copy: ItemAt, copied: u32) -> u32 {
        debug_assert_eq!(copy.header.value_length(), self.header.value_length());
        // SAFETY: the caller's.
        unsafe {
            if self.has_words(arena) {
                copy.set_commit(arena, 0);
                let words = self.words(arena);
                arena.write(copy.content_at(), &words.content[..WORDS_HEAD_BYTES]);
                copy.write_words(arena, &words.content[WORDS_HEAD_BYTES..]);
                return 0;
            }
            let length = self.log_length(arena);
            let new = (length - copied) as usize;
            arena.copy(self.content_at().plus(copied), copy.content_at().plus(copied), new);
            copy.set_commit(arena, length.into());
            length
        }
    }

    /// Whether the value part can be that of a structured item: of an image, which may have any bytes.
    ///
    /// # Safety
    /// As `commit`, and the bytes of the item lie in its segment.
    pub unsafe fn is_sound(self, arena: &Arena) -> bool {
        let capacity = self.content_capacity() as usize;
        if capacity < STRUCTURE_HEAD_BYTES {
            return false;
        }
        // SAFETY: the caller's.
        unsafe {
            if self.has_words(arena) {
                let words = capacity.wrapping_sub(WORDS_HEAD_BYTES);
                return capacity > WORDS_HEAD_BYTES && words.is_multiple_of(16) && words / 16 <= WORDS_MAX;
            }
            (STRUCTURE_HEAD_BYTES as u64..=capacity as u64).contains(&self.commit(arena))
        }
    }
}
