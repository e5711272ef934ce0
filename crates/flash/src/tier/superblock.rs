//! The first block of the capacity: how the rest is divided, the incarnations of both stores (here: lives), and whether
//! the last run stopped cleanly.
//!
//! ```text
//! 0      8        12            16        24          32          40        48        56
//! magic  version  region bytes  identity  life large  life small  capacity  boundary  end of large objects
//!
//! 64             68           72    88           96      100    104
//! segment bytes  log percent  boot  checkpoint   latest  state  run
//!
//! 112       120          128
//! checksum  key routing  checksum  zeros
//! ```
//! Little-endian. The checksums are XXH3 of the bytes before them. The first one is without the key routing, which is
//! that of no pools where zeros are in its place, and unknown if the second checksum does not match. The identity is
//! that of the device's label, so a superblock that was copied to another device is invalid. Segment bytes of 0 mean
//! that the capacity is not divided. A life is drawn whenever its store starts empty. It is the seed of all checksums
//! in that store, so no bytes of an earlier life are valid as an object. Each start draws `run`, never 0, and writes it
//! to the deletion log, too. A file that was restored from an earlier run has another number, so a start neither
//! accepts an old log nor uses a current log with an old flash (`deletion_log`: how both change together).
//!
//! | state | | boot | checkpoint | latest |
//! |---|---|---|---|---|
//! | 0, running | as from a start on | of the machine, or 0: no crash is recovered from | 0 | at the start |
//! | 1, clean | as of a stop | 0 | where that of the large objects lies | at the stop |
//! | 2, clean without a log | the same; no deletion log, or an incomplete one | 0 | the same | at the stop |

use crate::KeyRouting;
use crate::deletion_log::Incarnations;
use crate::device::{self, BLOCK, Buffer, Device};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"ebbtidet";
const VERSION: u32 = 8;
/// From this version on a superblock has its run and its checksum where this one has them.
const LAYOUT_VERSION: u32 = 7;
const CHECKSUM: usize = 112;
const KEY_ROUTING: usize = CHECKSUM + 8;
const BYTES: usize = 136;

const _: () = assert!(KEY_ROUTING + 2 * size_of::<u64>() == BYTES && BYTES <= BLOCK);

/// The run that used a device before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// The device is new.
    Absent,
    /// The run with this number.
    Known(u64),
    /// A run whose superblock cannot be read.
    Unknown,
}

/// The last run of a device and the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRuns {
    /// The identity of the device, which is drawn when it is new.
    pub device: u64,
    pub last: LastRun,
    /// The number of the present run, drawn at each start. Never 0.
    pub present: u64,
}

/// How the device is divided. Objects are found only by a tier that divides the device in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub identity: u64,
    pub capacity: u64,
    pub boundary: u64,
    pub end: u64,
    pub region_bytes: u32,
    pub segment_bytes: u32,
    pub log_percent: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    Running {
        boot: u128,
    },
    /// `is_logged`: a deletion log belongs to this state, and may have records from after the stop.
    Clean {
        large_checkpoint: u64,
        is_logged: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub shape: Partition,
    pub incarnations: Incarnations,
    /// The number of the start that wrote it.
    pub run: u64,
    pub state: RunState,
    /// Seconds since 1970.
    pub latest: u32,
    pub key_routing: KeyRouting,
}

/// Why a block is not a valid superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuperblockError {
    Blank,
    /// Another version, with its run if that is where it is in this one.
    Version {
        version: u32,
        run: Option<u64>,
    },
    Damaged,
}

impl Partition {
    /// The first difference to an earlier partition, in words for the operator.
    pub fn difference(&self, before: &Self) -> Option<String> {
        let numbers = [
            ("its size is", self.capacity, before.capacity, "bytes"),
            ("the share of small objects is", self.boundary, before.boundary, "bytes"),
            ("the end of large objects is", self.end, before.end, ""),
            ("a region has", self.region_bytes.into(), before.region_bytes.into(), "bytes, which follow the memory"),
            ("the log of small objects has", self.log_percent.into(), before.log_percent.into(), "percent"),
            ("a segment has", self.segment_bytes.into(), before.segment_bytes.into(), "bytes, which follow the memory"),
        ];
        match numbers.into_iter().find(|(_, now, before, _)| now != before) {
            Some((what, now, before, unit)) => {
                Some(format!("{what} {now} now, and was {before} {unit}").trim_end().to_owned())
            }
            None if self.identity != before.identity => Some("what it holds is of another device".to_owned()),
            None => None,
        }
    }
}

impl Superblock {
    pub fn encode(&self) -> Buffer {
        let Partition { identity, capacity, boundary, end, region_bytes, segment_bytes, log_percent } = self.shape;
        let (state, boot, checkpoint) = match self.state {
            RunState::Running { boot } => (0_u32, boot, 0),
            RunState::Clean { large_checkpoint, is_logged: true } => (1, 0, large_checkpoint),
            RunState::Clean { large_checkpoint, is_logged: false } => (2, 0, large_checkpoint),
        };
        let mut block = Buffer::zeroed(BLOCK);
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            block[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&VERSION.to_le_bytes());
        put(&region_bytes.to_le_bytes());
        let words = [identity, self.incarnations.large, self.incarnations.small, capacity, boundary, end];
        words.iter().for_each(|word| put(&word.to_le_bytes()));
        put(&segment_bytes.to_le_bytes());
        put(&log_percent.to_le_bytes());
        put(&boot.to_le_bytes());
        put(&checkpoint.to_le_bytes());
        put(&self.latest.to_le_bytes());
        put(&state.to_le_bytes());
        put(&self.run.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&block[..CHECKSUM]);
        block[CHECKSUM..KEY_ROUTING].copy_from_slice(&checksum.to_le_bytes());
        block[KEY_ROUTING..][..8].copy_from_slice(&self.key_routing.to_word().to_le_bytes());
        let checksum = XxHash3_64::oneshot(&block[..KEY_ROUTING + 8]);
        block[KEY_ROUTING + 8..BYTES].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// The last run of a device, and what it wrote, or the reason why that is not known.
    pub fn read(device: &dyn Device) -> (LastRun, Result<Self, String>) {
        let unknown = |reason: String| (LastRun::Unknown, Err(reason));
        let block = match device::read(device, 0, Buffer::zeroed(BLOCK)) {
            Ok(block) => block,
            Err(error) => return unknown(format!("its first block cannot be read: {error}")),
        };
        match Self::decode(&block) {
            Ok(before) => (LastRun::Known(before.run), Ok(before)),
            Err(SuperblockError::Blank) => (LastRun::Absent, Err("it is new".to_owned())),
            Err(SuperblockError::Version { version, run }) => {
                let reason = format!("it is of another version, {version}");
                (run.map_or(LastRun::Unknown, LastRun::Known), Err(reason))
            }
            Err(SuperblockError::Damaged) => unknown("its first block is damaged".to_owned()),
        }
    }

    pub fn decode(block: &[u8]) -> Result<Self, SuperblockError> {
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if block[..BLOCK].iter().all(|&byte| byte == 0) {
            return Err(SuperblockError::Blank);
        }
        if block[..8] != MAGIC {
            return Err(SuperblockError::Damaged);
        }
        let (version, run) = (u32_at(8), u64_at(104));
        let is_intact = u64_at(CHECKSUM) == XxHash3_64::oneshot(&block[..CHECKSUM]);
        if version != VERSION {
            let run = (is_intact && version >= LAYOUT_VERSION).then_some(run);
            return Err(SuperblockError::Version { version, run });
        }
        if !is_intact {
            return Err(SuperblockError::Damaged);
        }
        let state = match u32_at(100) {
            0 => RunState::Running { boot: u128::from_le_bytes(block[72..88].try_into().expect("sixteen bytes")) },
            state @ (1 | 2) => RunState::Clean { large_checkpoint: u64_at(88), is_logged: state == 1 },
            _ => return Err(SuperblockError::Damaged),
        };
        let shape = Partition {
            identity: u64_at(16),
            capacity: u64_at(40),
            boundary: u64_at(48),
            end: u64_at(56),
            region_bytes: u32_at(12),
            segment_bytes: u32_at(64),
            log_percent: u32_at(68),
        };
        let incarnations = Incarnations { large: u64_at(24), small: u64_at(32) };
        let is_routed = u64_at(KEY_ROUTING + 8) == XxHash3_64::oneshot(&block[..KEY_ROUTING + 8]);
        let key_routing = match (is_routed, block[KEY_ROUTING..BYTES].iter().all(|&byte| byte == 0)) {
            (true, _) => KeyRouting::from_word(u64_at(KEY_ROUTING)),
            // Of a program that does not know it.
            (false, true) => KeyRouting::default(),
            (false, false) => KeyRouting::UNKNOWN,
        };
        Ok(Self { shape, incarnations, key_routing, run, state, latest: u32_at(96) })
    }
}

/// The boot ID of the machine, which differs after each restart of it.
pub(super) fn boot() -> Option<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok().filter(|&boot| boot != 0)
}

/// The number of a run, never 0.
pub(super) fn draw_run() -> u64 {
    random_id().max(1)
}

/// A random number, unique to a life or a run.
pub(super) fn random_id() -> u64 {
    RandomState::new().hash_one("life")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Partition = Partition {
        identity: 0xfedc_ba98_7654_3210,
        capacity: 64 << 20,
        boundary: 32 << 20,
        end: 63 << 20,
        region_bytes: 1 << 19,
        segment_bytes: 1 << 18,
        log_percent: 10,
    };
    const BLOCK_0: Superblock = Superblock {
        shape: SHAPE,
        incarnations: Incarnations { small: 0x1111_2222_3333_4444, large: 0x0123_4567_89ab_cdef },
        run: 0x5555_6666_7777_8888,
        state: RunState::Running { boot: 0xaabb_ccdd_eeff_0011_2233_4455_6677_8899 },
        latest: 1_800_000_000,
        key_routing: KeyRouting::from_word(0x9999_0000_1111_2222),
    };

    #[test]
    fn the_format_never_changes() {
        let hex = |superblock: Superblock| -> String {
            let block = superblock.encode();
            assert!(block[BYTES..].iter().all(|&b| b == 0));
            assert_eq!(Superblock::decode(&block), Ok(superblock));
            block[..BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let golden = "656262746964657408000000000008001032547698badcfeefcdab896745230144443333222211110000000400000000000000020000\
                      00000000f00300000000000004000a00000099887766554433221100ffeeddccbbaa000000000000000000d2496b00000000\
                      8888777766665555931bbda004f82a412222111100009999c2a2c1bd4298c625";
        assert_eq!(hex(BLOCK_0), golden);
        let clean =
            Superblock { state: RunState::Clean { large_checkpoint: 0x0102_0304_0506, is_logged: true }, ..BLOCK_0 };
        let golden = "00000000000000000000000000000000060504030201000000d2496b010000008888777766665555e1d50e2c092ad7a2222211110000999972fcc93760a958bf";
        assert_eq!(hex(clean)[144..], *golden);
        let unlogged = RunState::Clean { large_checkpoint: 0x0102_0304_0506, is_logged: false };
        let golden = "00000000000000000000000000000000060504030201000000d2496b0200000088887777666655550b8d215bfd7cbf742222111100009999a95eb3d8af8994fd";
        assert_eq!(hex(Superblock { state: unlogged, ..BLOCK_0 })[144..], *golden);
    }

    #[test]
    fn what_is_none_says_why() {
        let block = BLOCK_0.encode();
        for bit in 0..KEY_ROUTING * 8 {
            let mut damaged = block[..].to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                8..12 => SuperblockError::Version { version: VERSION ^ 1 << (bit - 64), run: None },
                _ => SuperblockError::Damaged,
            };
            assert_eq!(Superblock::decode(&damaged), Err(expected), "bit {bit}");
        }
        for bit in KEY_ROUTING * 8..BYTES * 8 {
            let mut damaged = block[..].to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let without = Superblock { key_routing: KeyRouting::UNKNOWN, ..BLOCK_0 };
            assert_eq!(Superblock::decode(&damaged), Ok(without), "bit {bit}");
        }
        let mut older = block[..].to_vec();
        older[KEY_ROUTING..BYTES].fill(0);
        let without = Superblock { key_routing: KeyRouting::default(), ..BLOCK_0 };
        assert_eq!(Superblock::decode(&older), Ok(without));
        assert_eq!(Superblock::decode(&[0; BLOCK]), Err(SuperblockError::Blank));
        // Memory beside flash of another version is as new as its run tells.
        for (version, run) in [(VERSION + 1, Some(BLOCK_0.run)), (7, Some(BLOCK_0.run)), (6, None)] {
            let mut other = block[..].to_vec();
            other[8..12].copy_from_slice(&version.to_le_bytes());
            let checksum = XxHash3_64::oneshot(&other[..CHECKSUM]);
            other[CHECKSUM..KEY_ROUTING].copy_from_slice(&checksum.to_le_bytes());
            assert_eq!(Superblock::decode(&other), Err(SuperblockError::Version { version, run }));
        }
    }

    #[test]
    fn each_difference_is_named() {
        assert_eq!(SHAPE.difference(&SHAPE), None);
        for (before, part) in [
            (Partition { identity: 1, ..SHAPE }, "of another device"),
            (Partition { capacity: 1, ..SHAPE }, "its size is 67108864 now, and was 1 bytes"),
            (Partition { boundary: 1, ..SHAPE }, "share of small objects"),
            (Partition { end: 1, ..SHAPE }, "end of large objects"),
            (Partition { region_bytes: 1, ..SHAPE }, "a region has 524288 now, and was 1"),
            (Partition { segment_bytes: 1, ..SHAPE }, "a segment has"),
            (Partition { log_percent: 1, ..SHAPE }, "the log of small objects has 10 now, and was 1 percent"),
        ] {
            let difference = SHAPE.difference(&before).unwrap();
            assert!(difference.contains(part), "{difference}");
        }
    }
}
