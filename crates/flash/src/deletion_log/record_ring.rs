//! The records of one store, in a ring of blocks: a full ring overwrites its oldest block.
//!
//! ```text
//! block    0        8         16      18         24       48       72            4080
//!          | number | highest | zeros | checksum | record | record | ... 169 ... | zeros |
//!
//! record   0      8       16     18         24
//!          | hash | order | pool | checksum |
//! ```
//! Little-endian. Blocks have numbers from 0 on; block n is at n modulo the ring's length. `highest` is the highest
//! order of all records in earlier blocks: a reader that finds only later blocks treats all objects with lower orders
//! as removed. A record with the highest bit set in its order, and a hash of 0, removes all objects with lower orders.
//! With that bit and a hash of 1, it ends the incarnation of the pool. In other records the pool is 0: the hash of a
//! key includes the salt of its pool. Checksums are XXH3 of the bytes before, with the store's life, the number of the
//! block, the ring and the index in the block as the seed: so a record of an earlier round is invalid. A record has the
//! low 48 bits of its checksum; so does the head of a block, after zeros for the pool.
//!
//! All blocks of the latest round must be present and, except for the last one, full. In the last block the first
//! invalid record ends the log, if no valid one follows: it was being written when the process ended, so its append
//! never returned.

use super::contents::{StoreKind, Unreadable};
use crate::FlashHash;
use crate::device::BLOCK;
use crate::object::FIRST_POOL;
use crate::recovery::{LoggedDeletion, RecoveryInput};
use std::io;
use twox_hash::XxHash3_64;

const RECORD: usize = 24;
const HEAD: usize = 24;
/// Offset of the checksum in a record.
const CHECKSUM: usize = 18;
/// Number of records in a block.
pub(super) const RECORDS: usize = (BLOCK - HEAD) / RECORD;
/// Bit of an order: the record applies to all objects, not to one hash.
const ALL: u64 = 1 << 63;
/// The hash in a record that ends an incarnation of a pool.
const POOL_HASH: u64 = 1;
/// Number of blocks that are read at once.
const BLOCKS_AT_ONCE: u32 = 256;

const _: () = assert!(HEAD + RECORDS * RECORD <= BLOCK && RECORDS == 169 && HEAD == RECORD);

/// The scope of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    Key(FlashHash),
    All,
    /// All objects of an incarnation of a pool.
    Pool(u16),
}

/// A record; the first record of a block follows the block's head.
pub(super) struct RecordBytes {
    bytes: [u8; HEAD + RECORD],
    from: usize,
}

impl RecordBytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

/// A ring and its append position.
pub(super) struct RecordRing {
    store: StoreKind,
    blocks: u32,
    incarnation: u64,
    /// Number of the block that is being filled. `highest_before`: its `highest`. `used`: its records.
    number: u64,
    highest_before: u64,
    used: usize,
    /// Highest order of all records.
    highest: u64,
}

/// A valid block that was read.
struct RecordBlock {
    number: u64,
    highest: u64,
    used: usize,
    /// Whether a valid record follows an invalid one.
    has_gap: bool,
}

impl RecordRing {
    pub fn new(store: StoreKind, blocks: u32) -> Self {
        Self { store, blocks, incarnation: 0, number: 0, highest_before: 0, used: 0, highest: 0 }
    }

    /// Starts with an empty block.
    pub fn begin(&mut self, incarnation: u64, highest: u64) {
        (self.incarnation, self.number, self.used) = (incarnation, 0, 0);
        (self.highest, self.highest_before) = (highest, highest);
    }

    /// The head of the block that is being filled.
    pub fn head(&self) -> [u8; HEAD] {
        self.signed([self.number, self.highest_before], FIRST_POOL, self.number, 0)
    }

    /// Offset in the file of the block that is being filled.
    pub fn offset(&self) -> u64 {
        self.start() + self.number % u64::from(self.blocks) * BLOCK as u64
    }

    /// Offset of the ring: after the head of the file and the other ring.
    fn start(&self) -> u64 {
        BLOCK as u64 * (1 + self.store as u64 * u64::from(self.blocks))
    }

    fn signed(&self, words: [u64; 2], pool: u16, number: u64, place: usize) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..8].copy_from_slice(&words[0].to_le_bytes());
        bytes[8..16].copy_from_slice(&words[1].to_le_bytes());
        bytes[16..CHECKSUM].copy_from_slice(&pool.to_le_bytes());
        let seed = self.incarnation ^ (number << 9 | (self.store as u64) << 8 | place as u64);
        let sum = XxHash3_64::oneshot_with_seed(seed, &bytes[..CHECKSUM]);
        bytes[CHECKSUM..].copy_from_slice(&sum.to_le_bytes()[..RECORD - CHECKSUM]);
        bytes
    }

    /// Adds a record: its bytes, and their offset in the file.
    pub fn append(&mut self, end: Deletion, order: u64) -> (u64, RecordBytes) {
        debug_assert!(order < ALL);
        let mut record = RecordBytes { bytes: [0; HEAD + RECORD], from: HEAD };
        if self.used == RECORDS {
            (self.number, self.used, self.highest_before) = (self.number + 1, 0, self.highest);
            record.from = 0;
            record.bytes[..HEAD].copy_from_slice(&self.head());
        }
        let (hash, word, pool) = match end {
            Deletion::Key(hash) => (hash.0, order, FIRST_POOL),
            Deletion::All => (0, order | ALL, FIRST_POOL),
            Deletion::Pool(pool) => (POOL_HASH, order | ALL, pool),
        };
        self.used += 1;
        record.bytes[HEAD..].copy_from_slice(&self.signed([hash, word], pool, self.number, self.used));
        self.highest = self.highest.max(order);
        let place = HEAD + (self.used - 1) * RECORD - (HEAD - record.from);
        (self.offset() + place as u64, record)
    }

    /// Reads the records of a life, and sets the append position to their end.
    pub fn read(
        &mut self,
        incarnation: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<RecoveryInput, Unreadable> {
        self.incarnation = incarnation;
        let mut known = RecoveryInput::default();
        let mut blocks = Vec::new();
        for first in (0..self.blocks).step_by(BLOCKS_AT_ONCE as usize) {
            let count = BLOCKS_AT_ONCE.min(self.blocks - first) as usize;
            let mut bytes = vec![0; count * BLOCK];
            read(self.start() + u64::from(first) * BLOCK as u64, &mut bytes).map_err(|_| Unreadable::Damaged)?;
            for (place, bytes) in (u64::from(first)..).zip(bytes.chunks_exact(BLOCK)) {
                blocks.extend(self.block(place, bytes, &mut known));
            }
        }
        let last = blocks.iter().max_by_key(|block| block.number).ok_or(Unreadable::Missing)?;
        let oldest = (last.number + 1).saturating_sub(u64::from(self.blocks));
        let is_last = |block: &RecordBlock| block.number == last.number;
        // Each number has one position, so the round is complete if the count of blocks equals the count of numbers.
        let is_whole = blocks.len() as u64 == last.number + 1 - oldest
            && blocks.iter().all(|block| block.number >= oldest && (is_last(block) || block.used == RECORDS))
            && !last.has_gap;
        if !is_whole {
            return Err(Unreadable::Damaged);
        }
        let before = blocks.iter().find(|block| block.number == oldest).map_or(0, |block| block.highest);
        known.flushed = known.flushed.max(before);
        (self.number, self.used, self.highest_before) = (last.number, last.used, last.highest);
        let orders = known.deletions.iter().map(|removal| removal.order);
        self.highest = orders.max().unwrap_or(0).max(known.flushed);
        Ok(known)
    }

    /// Decodes a block of this life at its position, and adds its records to `known`.
    fn block(&self, place: u64, bytes: &[u8], known: &mut RecoveryInput) -> Option<RecordBlock> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (number, highest) = (word(0), word(8));
        let is_here = number % u64::from(self.blocks) == place && number < 1 << 54;
        if !is_here || bytes[..HEAD] != self.signed([number, highest], FIRST_POOL, number, 0) {
            return None;
        }
        let mut block = RecordBlock { number, highest, used: 0, has_gap: false };
        for index in 0..RECORDS {
            let at = HEAD + index * RECORD;
            let (hash, order) = (word(at), word(at + 8));
            let pool = u16::from_le_bytes([bytes[at + 16], bytes[at + 17]]);
            if bytes[at..at + RECORD] != self.signed([hash, order], pool, number, index + 1) {
                continue;
            }
            block.has_gap |= block.used != index;
            block.used += 1;
            match order & ALL {
                0 => known.deletions.push(LoggedDeletion { hash: FlashHash(hash), order }),
                _ if hash == POOL_HASH => known.ended_pools.push(pool),
                _ => known.flushed = known.flushed.max(order & !ALL),
            }
        }
        Some(block)
    }
}
