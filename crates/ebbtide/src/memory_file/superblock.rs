//! The first block of a memory file, which makes the rest valid.
//!
//! ```text
//! superblock | 0 ... up to 2 MiB | frames, 2080 KiB each | image of the pools, in blocks with checksums
//!
//! magic 8 B | format u32 | frames u32 | image bytes u64 | flash run u64 | wall ms u64 | boot ms u64 | boot id 16 B |
//! epoch s u64 | now ms u64 | skipped ms u64 | version of the program 24 B | state u32 | ran alone u32 |
//! XXH3-64 of what precedes u64 | run of flash before u64 | run of flash after u64 | XXH3-64 of what precedes u64 |
//! device of flash u64 | key routing u64 | XXH3-64 of the first 128 B and these two u64 | 0 ... up to 4096 B
//! ```
//! The frames are those of the engine (see `frames.rs` of the store), each at its place: a file may have holes. The
//! state is 0 for a file with an image. Without one it is the reason: 1 if the time limit of the stop was over, 2 if
//! the file system refused bytes, 3 while a cache uses the file, 4 while a stop writes it. The flash run and the mark
//! of a run without flash are valid in every state (see `RunRecord`).
//!
//! The runs behind the first checksum announce a run of flash, from its start until the file is in use beside flash
//! (see `memory_file`). A program that does not know them finds flash at another run than the flash run, and starts
//! with empty memory. The device is that of the flash run. A program that does not know it leaves it out, so that flash
//! at another run than the flash run begins empty. The key routing (`KeyRouting`) is that of no pools then. If these
//! words are there and their checksum is another, the device is not known, and the key routing is not, either.
//!
//! The format decides whether a program reads a file. The version, text with zeros behind it, is for the operator only:
//! an upgrade and its rollback are warm where both programs have one format.

use crate::clock::{Elapsed, SavedTime};
use ebbtide_flash::{DeviceRuns, KeyRouting, LastRun};
use ebbtide_store::FRAME_BYTES;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use twox_hash::XxHash3_64;

pub(super) const BLOCK_BYTES: u64 = 4096;

/// Where the frames begin.
pub(super) const FRAMES_OFFSET: u64 = 2 << 20;

const MAGIC: [u8; 8] = *b"EBBTIDEM";
const FORMAT: u32 = 6;
/// Bytes of the version of a program. A longer one is cut.
const PROGRAM_BYTES: usize = 24;
/// Bytes in front of the checksum.
const CHECKED_BYTES: usize = 8 + 4 + 4 + 8 + 8 + 8 + 8 + 16 + 8 + 8 + 8 + PROGRAM_BYTES + 4 + 4;
const _: () = assert!(CHECKED_BYTES == 120);
/// Where the announcement of a run of flash begins, and its checksum.
const ANNOUNCED_AT: usize = CHECKED_BYTES + 8;
const ANNOUNCED_END: usize = ANNOUNCED_AT + 16;
/// Where the device of flash and the key routing are, and their checksum.
const DEVICE_AT: usize = ANNOUNCED_END + 8;
const _: () = assert!(DEVICE_AT == 152 && DEVICE_AT + 24 <= BLOCK_BYTES as usize);

/// Which flash goes with the memory: each run of the cache writes it when it takes the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunRecord {
    /// The number of the last run of flash beside this file; 0 if there was none.
    flash_run: u64,
    /// The device of that run; 0 if it is not known.
    device: u64,
    /// The rules by which the caller divides keys among pools.
    pub key_routing: KeyRouting,
    /// Whether the cache has run with this file and without flash since: flash may have values that are older than
    /// acknowledged writes of that run.
    ran_alone: bool,
    /// The runs of flash before and after a start that was announced in the file and has not taken it; 0 for none.
    announced: [u64; 2],
}

impl RunRecord {
    fn decode(block: &[u8; BLOCK_BYTES as usize]) -> Self {
        let is_announced = number(block, ANNOUNCED_END) == XxHash3_64::oneshot(&block[..ANNOUNCED_END]);
        let announced = if is_announced { [0, 8].map(|at| number(block, ANNOUNCED_AT + at)) } else { [0; 2] };
        let words = [0, 8].map(|at| number(block, DEVICE_AT + at));
        let is_known = number(block, DEVICE_AT + 16) == words_checksum(block, words);
        let (device, key_routing) = match (is_known, block[DEVICE_AT..][..24].iter().all(|byte| *byte == 0)) {
            (true, _) => (words[0], KeyRouting::from_word(words[1])),
            (false, true) => (0, KeyRouting::default()),
            (false, false) => (0, KeyRouting::UNKNOWN),
        };
        let ran_alone = short_number(block, 116) != 0;
        Self { flash_run: number(block, 24), device, key_routing, ran_alone, announced }
    }

    /// Whether memory is as new as flash whose last run this was.
    pub fn accepts(&self, last_run: LastRun) -> bool {
        match last_run {
            LastRun::Absent => true,
            LastRun::Known(run) => run == self.flash_run || self.announced.contains(&run),
            LastRun::Unknown => false,
        }
    }

    /// The reason why flash may have values that are older than acknowledged writes to memory.
    pub fn outdates(&self, flash: DeviceRuns) -> Option<&'static str> {
        let is_beside_another = self.flash_run != 0 && self.device != flash.device && !self.accepts(flash.last);
        match (self.ran_alone, is_beside_another) {
            (true, _) => Some("the memory file was used without flash since flash was written"),
            (false, true) => Some("the memory file was used with another flash since"),
            (false, false) => None,
        }
    }

    /// The record of the next run, which has this flash. Without flash the announced runs of it stay: memory is newer
    /// than both.
    pub fn next(self, flash: Option<DeviceRuns>, key_routing: KeyRouting) -> Self {
        match flash {
            Some(DeviceRuns { device, present, .. }) => {
                Self { flash_run: present, device, key_routing, ran_alone: false, announced: [0; 2] }
            }
            None => Self { ran_alone: true, key_routing, ..self },
        }
    }

    /// Writes what is behind the first checksum.
    fn encode_behind(&self, block: &mut [u8; BLOCK_BYTES as usize]) {
        if self.announced != [0; 2] {
            let [before, after] = self.announced.map(u64::to_le_bytes);
            block[ANNOUNCED_AT..][..16].copy_from_slice(&[before, after].concat());
            let checksum = XxHash3_64::oneshot(&block[..ANNOUNCED_END]);
            block[ANNOUNCED_END..][..8].copy_from_slice(&checksum.to_le_bytes());
        }
        let words @ [device, key_routing] = [self.device, self.key_routing.to_word()];
        if words != [0; 2] {
            let checksum = words_checksum(block, words);
            block[DEVICE_AT..][..24].copy_from_slice(&[device, key_routing, checksum].map(u64::to_le_bytes).concat());
        }
    }
}

/// The announcement, which changes between, is not part of it.
fn words_checksum(block: &[u8; BLOCK_BYTES as usize], words: [u64; 2]) -> u64 {
    XxHash3_64::oneshot(&[&block[..ANNOUNCED_AT], &words.map(u64::to_le_bytes).concat()].concat())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Frames in front of the image.
    pub frames: u32,
    /// Bytes of the pools' images.
    pub image_bytes: u64,
    pub runs: RunRecord,
    /// When the stop was.
    pub stopped: Elapsed,
    /// Time as the cache counted it then.
    pub time: SavedTime,
    /// The version of the program that wrote it.
    pub program: String,
}

/// The version of this program.
pub(super) const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Milliseconds and seconds of a superblock are less than this: 35,000 years. Arithmetic with them does not overflow.
const TIME_END: u64 = 1 << 50;

/// The state of a file with an image. The others say why there is none.
const CLEAN: u32 = 0;
const LATE: u32 = 1;
const REFUSED: u32 = 2;
const IN_USE: u32 = 3;
const STOPPING: u32 = 4;

const NOT_CLEAN: &str = "the file is new, or the last run was not stopped cleanly";

/// The block of a stop that could not save memory.
pub(super) fn not_saved(runs: RunRecord, is_late: bool) -> [u8; BLOCK_BYTES as usize] {
    invalid(runs, if is_late { LATE } else { REFUSED })
}

/// The block of a file that a cache uses.
pub(super) fn in_use(runs: RunRecord) -> [u8; BLOCK_BYTES as usize] {
    invalid(runs, IN_USE)
}

/// The block of a file that a stop writes.
pub(super) fn stopping(runs: RunRecord) -> [u8; BLOCK_BYTES as usize] {
    invalid(runs, STOPPING)
}

fn invalid(runs: RunRecord, state: u32) -> [u8; BLOCK_BYTES as usize] {
    let (time, program) = (SavedTime { epoch_seconds: 0, now_ms: 0, skipped_ms: 0 }, PROGRAM.to_owned());
    Superblock { frames: 0, image_bytes: 0, runs, stopped: Elapsed::now(), time, program }.encode_in(state)
}

/// The record of the last run with a file, whether it was stopped cleanly or not. A file without a readable one says
/// nothing of flash.
pub(super) fn runs(file: &File) -> RunRecord {
    let mut block = [0; BLOCK_BYTES as usize];
    match file.read_exact_at(&mut block, 0) {
        Ok(()) if check(&block).is_ok() => RunRecord::decode(&block),
        _ => RunRecord::default(),
    }
}

/// Writes into a file, durably, that flash is about to begin a run. Its first block is valid.
///
/// # Errors
/// The file system's.
pub(super) fn announce_run(file: &File, flash: DeviceRuns) -> io::Result<()> {
    let mut block = [0; BLOCK_BYTES as usize];
    file.read_exact_at(&mut block, 0)?;
    let before = if let LastRun::Known(run) = flash.last { run } else { 0 };
    RunRecord { announced: [before, flash.present], ..RunRecord::default() }.encode_behind(&mut block);
    // One sector: after a power cut the file has the announcement or not.
    file.write_all_at(&block[ANNOUNCED_AT..DEVICE_AT], ANNOUNCED_AT as u64)?;
    file.sync_data()
}

fn number(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..][..8].try_into().expect("eight bytes"))
}

fn short_number(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..][..4].try_into().expect("four bytes"))
}

/// Checks magic, format and checksum.
fn check(block: &[u8; BLOCK_BYTES as usize]) -> Result<(), String> {
    if block.iter().all(|byte| *byte == 0) {
        return Err(NOT_CLEAN.to_owned());
    }
    if block[..8] != MAGIC {
        return Err("the file is damaged: it has no superblock".to_owned());
    }
    let format = short_number(block, 8);
    if format != FORMAT {
        return Err(format!("the file has format {format}, this version reads format {FORMAT}"));
    }
    if number(block, CHECKED_BYTES) != XxHash3_64::oneshot(&block[..CHECKED_BYTES]) {
        return Err("the file is damaged: its first block has another checksum".to_owned());
    }
    Ok(())
}

/// Whether a file may be emptied: it has a superblock, or nothing but zeros in its place, as after a power cut at its
/// first start. Zeros in front of other content are foreign: a disk image begins with them.
pub(super) fn is_ours(file: &File) -> bool {
    let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return false };
    let mut block = vec![0; length.min(BLOCK_BYTES) as usize];
    let is_read = file.read_exact_at(&mut block, 0).is_ok();
    is_read && (block.starts_with(&MAGIC) || length <= BLOCK_BYTES && block.iter().all(|byte| *byte == 0))
}

impl Superblock {
    /// Where the image begins.
    pub fn image_offset(&self) -> u64 {
        FRAMES_OFFSET + u64::from(self.frames) * FRAME_BYTES as u64
    }

    pub fn encode(&self) -> [u8; BLOCK_BYTES as usize] {
        self.encode_in(CLEAN)
    }

    fn encode_in(&self, state: u32) -> [u8; BLOCK_BYTES as usize] {
        let mut block = [0; BLOCK_BYTES as usize];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            block[at..][..bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&FORMAT.to_le_bytes());
        put(&self.frames.to_le_bytes());
        for number in [self.image_bytes, self.runs.flash_run, self.stopped.wall_ms, self.stopped.boot_ms] {
            put(&number.to_le_bytes());
        }
        put(&self.stopped.boot.to_le_bytes());
        for number in [self.time.epoch_seconds, self.time.now_ms, self.time.skipped_ms] {
            put(&number.to_le_bytes());
        }
        let mut program = [0; PROGRAM_BYTES];
        let length = self.program.len().min(PROGRAM_BYTES);
        program[..length].copy_from_slice(&self.program.as_bytes()[..length]);
        put(&program);
        put(&state.to_le_bytes());
        put(&u32::from(self.runs.ran_alone).to_le_bytes());
        let checksum = XxHash3_64::oneshot(&block[..CHECKED_BYTES]);
        block[CHECKED_BYTES..][..8].copy_from_slice(&checksum.to_le_bytes());
        self.runs.encode_behind(&mut block);
        block
    }

    /// Reads the superblock of a file, or says why it has none.
    pub fn read(file: &File) -> Result<Self, String> {
        let mut block = [0; BLOCK_BYTES as usize];
        match file.read_exact_at(&mut block, 0) {
            Ok(()) => Self::decode(&block),
            Err(_) if file.metadata().is_ok_and(|metadata| metadata.len() == 0) => Err(NOT_CLEAN.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err("the file is cut short".to_owned()),
            Err(error) => Err(format!("the file cannot be read: {error}")),
        }
    }

    fn decode(block: &[u8; BLOCK_BYTES as usize]) -> Result<Self, String> {
        check(block)?;
        let reason = match short_number(block, 112) {
            CLEAN => None,
            LATE => Some("it took longer than the time for the save"),
            IN_USE => return Err(NOT_CLEAN.to_owned()),
            STOPPING => return Err("the last stop was cut short".to_owned()),
            _ => Some("the file system refused it"),
        };
        if let Some(reason) = reason {
            return Err(format!("the last stop could not save memory: {reason}"));
        }
        let number = |at: usize| number(block, at);
        if [32, 40, 64, 72, 80].into_iter().any(|at| number(at) >= TIME_END) {
            return Err("the file is damaged: its time is no possible one".to_owned());
        }
        let boot = u128::from_le_bytes(block[48..64].try_into().expect("sixteen bytes"));
        Ok(Self {
            frames: short_number(block, 12),
            image_bytes: number(16),
            runs: RunRecord::decode(block),
            stopped: Elapsed { wall_ms: number(32), boot_ms: number(40), boot },
            time: SavedTime { epoch_seconds: number(64), now_ms: number(72), skipped_ms: number(80) },
            program: String::from_utf8_lossy(&block[88..][..PROGRAM_BYTES]).trim_end_matches('\0').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_as_drawn() {
        let superblock = Superblock {
            frames: 9,
            image_bytes: 0x0102_0304_0506_0708,
            runs: RunRecord {
                flash_run: 0x1112_1314_1516_1718,
                device: 0x2122_2324_2526_2728,
                key_routing: KeyRouting::of(b"rules"),
                ran_alone: true,
                announced: [0x31, 0x32],
            },
            stopped: Elapsed { wall_ms: 3, boot_ms: 4, boot: 0x55 },
            time: SavedTime { epoch_seconds: 6, now_ms: 7, skipped_ms: 8 },
            program: "10.20.30".to_owned(),
        };
        let block = superblock.encode();
        assert_eq!(&block[..16], b"EBBTIDEM\x06\0\0\0\x09\0\0\0");
        assert_eq!(&block[16..32], b"\x08\x07\x06\x05\x04\x03\x02\x01\x18\x17\x16\x15\x14\x13\x12\x11");
        assert_eq!([block[32], block[40], block[48], block[64], block[72], block[80]], [3, 4, 0x55, 6, 7, 8]);
        assert_eq!(&block[88..112], b"10.20.30\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&block[112..120], b"\0\0\0\0\x01\0\0\0");
        assert_eq!(&block[120..128], &0x4AB2_BD75_BAFD_6DDA_u64.to_le_bytes(), "golden");
        assert_eq!(Superblock::decode(&block), Ok(superblock));
        for at in 0..CHECKED_BYTES + 8 {
            let mut damaged = block;
            damaged[at] ^= 1;
            assert!(Superblock::decode(&damaged).is_err(), "byte {at}");
        }
    }

    const ROUTING: KeyRouting = KeyRouting::from_word(5);
    const OLD: u64 = 0x0102_0304_0506_0708;
    const NEW: u64 = 0x1112_1314_1516_1718;

    fn flash(device: u64, last: LastRun, present: u64) -> DeviceRuns {
        DeviceRuns { device, last, present }
    }

    fn accepted(runs: RunRecord) -> [bool; 4] {
        [3, OLD, NEW, 4].map(|run| runs.accepts(LastRun::Known(run)))
    }

    #[test]
    fn an_announced_run_is_as_drawn() {
        let file = tempfile::tempfile().unwrap();
        let runs = RunRecord { flash_run: 3, ..RunRecord::default() };
        file.write_all_at(&stopping(runs), 0).unwrap();
        announce_run(&file, flash(9, LastRun::Known(OLD), NEW)).unwrap();
        let mut block = [0; BLOCK_BYTES as usize];
        file.read_exact_at(&mut block, 0).unwrap();
        assert_eq!(&block[128..144], b"\x08\x07\x06\x05\x04\x03\x02\x01\x18\x17\x16\x15\x14\x13\x12\x11");
        assert_eq!(accepted(runs), [true, false, false, false]);
        let announced = super::runs(&file);
        assert_eq!(accepted(announced), [true, true, true, false]);
        assert_eq!(
            accepted(announced.next(Some(flash(9, LastRun::Known(NEW), 4)), ROUTING)),
            [false, false, false, true]
        );
        // An announcement belongs to its block.
        for at in 128..152 {
            let mut damaged = block;
            damaged[at] ^= 1;
            assert_eq!(RunRecord::decode(&damaged), runs, "byte {at}");
        }
        let other = RunRecord { ran_alone: true, ..runs };
        file.write_all_at(&stopping(other)[..ANNOUNCED_AT], 0).unwrap();
        assert_eq!(super::runs(&file), other);
        announce_run(&file, flash(9, LastRun::Absent, 7)).unwrap();
        assert_eq!([3, 7, 4].map(|run| super::runs(&file).accepts(LastRun::Known(run))), [true, true, false]);
    }

    #[test]
    fn runs_alone_keep_what_was_announced() {
        let file = tempfile::tempfile().unwrap();
        let runs = RunRecord { flash_run: 3, device: 9, ..RunRecord::default() };
        file.write_all_at(&stopping(runs), 0).unwrap();
        announce_run(&file, flash(9, LastRun::Known(3), NEW)).unwrap();
        // The start is killed, and the next one is without flash.
        let alone = super::runs(&file).next(None, ROUTING);
        for block in [in_use(alone), stopping(alone)] {
            file.write_all_at(&block, 0).unwrap();
            assert_eq!(super::runs(&file), alone);
        }
        assert_eq!(accepted(alone), [true, false, true, false]);
        assert!(alone.outdates(flash(9, LastRun::Known(NEW), 4)).is_some());
    }

    #[test]
    fn other_devices_and_unknown_runs_are_told() {
        let runs = RunRecord::default().next(Some(flash(9, LastRun::Absent, 3)), ROUTING);
        let block = in_use(runs);
        assert_eq!(RunRecord::decode(&block), runs);
        // A device that is not readable is another one.
        for at in 152..176 {
            let mut damaged = block;
            damaged[at] ^= 1;
            let unknown = RunRecord { device: 0, key_routing: KeyRouting::UNKNOWN, ..runs };
            assert_eq!(RunRecord::decode(&damaged), unknown, "byte {at}");
        }
        let mut older = block;
        older[152..176].fill(0);
        assert_eq!(RunRecord::decode(&older), RunRecord { device: 0, key_routing: KeyRouting::default(), ..runs });
        let is_outdated = |device, last| runs.outdates(flash(device, last, 5)).is_some();
        assert!(!is_outdated(9, LastRun::Known(3)) && !is_outdated(9, LastRun::Known(4)));
        assert!(!is_outdated(8, LastRun::Absent), "a new device has no older values");
        assert!(is_outdated(8, LastRun::Known(4)));
        assert!(RunRecord::default().outdates(flash(8, LastRun::Known(4), 5)).is_none(), "a new file knows of none");
        assert_eq!([LastRun::Absent, LastRun::Unknown].map(|last| runs.accepts(last)), [true, false]);
    }
}
