//! The first block of the file of a log, and the meaning of the file's name. The format is drawn in `mod.rs`.

use crate::device::BLOCK;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

pub(super) const MAGIC: [u8; 8] = *b"ebbtider";
pub(super) const VERSION: u32 = 3;
pub(super) const HEAD_BYTES: usize = 40;
pub(super) const HEAD_CHECKSUM: usize = 32;
/// Offsets of the two slots of the latest time, written alternately.
pub(super) const TIME_SLOTS: [u64; 2] = [512, 1024];
pub(super) const SLOT_BYTES: usize = 16;
/// Offset of the pending-flush flag.
pub(super) const PENDING_FLUSH_SLOT: u64 = 1536;
/// Offset of the run that names the WAL buffer.
pub(super) const WAL_BUFFER_SLOT: u64 = 2048;
/// Bytes that are read at once.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Suffix that follows the path of the flash.
pub(super) const SUFFIX: &str = ".removals";

const _: () = assert!(HEAD_BYTES as u64 <= TIME_SLOTS[0] && WAL_BUFFER_SLOT as usize + SLOT_BYTES <= BLOCK);

/// The head of a log whose run is erased: it matches no superblock.
pub(super) fn invalid_head(blocks: u32) -> Vec<u8> {
    let mut head = LogHead { blocks, run: 0, next: 0 }.encode();
    head[MAGIC.len()..].fill(0);
    head.to_vec()
}

/// The runs of the flash to which a log belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogHead {
    pub(super) blocks: u32,
    pub(super) run: u64,
    /// The run that a start has announced, or 0.
    pub(super) next: u64,
}

impl LogHead {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&self.blocks.to_le_bytes());
        head[16..24].copy_from_slice(&self.run.to_le_bytes());
        head[24..32].copy_from_slice(&self.next.to_le_bytes());
        let sum = XxHash3_64::oneshot(&head[..HEAD_CHECKSUM]);
        head[HEAD_CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// `None` if the block is not the head of a log of this version.
    pub(super) fn decode(block: &[u8]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let blocks = u32::from_le_bytes(block[12..16].try_into().expect("four bytes"));
        let head = Self { blocks, run: word(16), next: word(24) };
        (block[..HEAD_BYTES] == head.encode()).then_some(head)
    }
}

/// The run whose WAL buffer the file of a log names, 0 for none; `None` if the slot is damaged.
pub(super) fn named_wal_buffer(file: &File) -> Option<u64> {
    let mut bytes = [0; SLOT_BYTES];
    file.read_exact_at(&mut bytes, WAL_BUFFER_SLOT).ok()?;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (word(8) == XxHash3_64::oneshot(&bytes[..8])).then(|| word(0))
}

/// Bytes of a log whose rings have `blocks` blocks each.
pub(super) fn bytes_of(blocks: u32) -> u64 {
    BLOCK as u64 * (1 + 2 * u64::from(blocks))
}

/// Whether a file has at most `max` bytes, all of them zeros.
pub(super) fn is_blank(file: &File, max: u64) -> io::Result<bool> {
    let bytes = file.metadata()?.len();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes && bytes <= max {
        let piece = &mut piece[..PIECE_BYTES.min((bytes - at) as usize)];
        file.read_exact_at(piece, at)?;
        if piece.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(bytes <= max)
}

pub(super) fn decode_slot(bytes: &[u8], incarnation: u64) -> Option<u32> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let is_whole = word(8) == XxHash3_64::oneshot_with_seed(incarnation, &bytes[..8]);
    is_whole.then(|| u32::try_from(word(0)).unwrap_or(u32::MAX))
}

/// The path of the flash beside which a log is, by the log's name.
pub(super) fn path_of_flash(log: &Path) -> Option<PathBuf> {
    let name = log.as_os_str().as_bytes().strip_suffix(SUFFIX.as_bytes())?;
    Some(OsStr::from_bytes(name).into())
}
