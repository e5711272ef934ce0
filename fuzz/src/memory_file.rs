//! The memory file: whatever its superblock, image and frames have, a start refuses it, begins empty, or goes on with a
//! cache that keeps every invariant.
//!
//! The input is the clock, one byte, and a list of changes to a sound file, 6 bytes each. The checksums of superblock
//! and image are made right afterwards, so that the checks behind them are reached:
//!
//! ```text
//! clock     u8, odd: that of the system, else one that stands still
//! change    place u32, mod 4: 0 superblock, 1 frames, 2 and 3 image | operation u8 | operand u8
//! ```
//! The checks behind the checksums of segments are reached by `image`.

use std::path::Path;
use std::sync::OnceLock;

use ebbtide::memcached::{ByteSize, Cache, Clock, Error, MemoryStart, PoolOptions};
use twox_hash::XxHash3_64;

const CHANGE_BYTES: usize = 6;
/// More changes hide each other.
const CHANGES_MAX: usize = 64;
const KEYS: u32 = 300;
/// Bytes of the superblock before its checksum, and of those the ones that say whose file it is.
const SUPERBLOCK_BYTES: usize = 120;
const ORIGIN_BYTES: usize = 12;
/// Where the frames begin, and the bytes of one.
const FRAMES_AT: usize = 2 << 20;
const FRAME_BYTES: usize = 2080 << 10;
/// Bytes of a block of the image, its checksum included.
const BLOCK_BYTES: usize = 1 << 20;

/// The content of a file, and where its image begins.
#[derive(Clone)]
struct File {
    bytes: Vec<u8>,
    image: usize,
}

pub fn check(input: &[u8]) {
    static SOUND: OnceLock<File> = OnceLock::new();
    let Some((clock, changes)) = input.split_first() else { return };
    let clock = if clock % 2 == 1 { Clock::System } else { Clock::Manual };
    let mut file = SOUND.get_or_init(sound).clone();
    changes.chunks_exact(CHANGE_BYTES).take(CHANGES_MAX).for_each(|change| file.change(change));
    file.make_checksums_right();
    let folder = folder();
    let path = folder.path().join("memory");
    write(&path, &file.bytes);
    match build(&path, clock) {
        Ok(cache) => go_on(cache, &path, clock),
        Err(Error::Configuration { option: "memory_file", .. }) => {}
        Err(other) => panic!("no file makes a start fail like this: {other}"),
    }
}

/// A folder on a tmpfs, where there is one: such a file is mapped.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("there is a folder for temporary files")
}

/// Writes a file that only its owner can write.
fn write(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes)).expect("the folder takes a file");
}

fn build(path: &Path, clock: Clock) -> Result<Cache, Error> {
    let builder = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::kib(256)).clock(clock);
    let builder = builder.pool(PoolOptions::named("second"));
    builder.memory_file(path).build()
}

fn set_all(cache: &Cache) {
    for number in 0..KEYS {
        let value = vec![number as u8; if number == 7 { 90_000 } else { number as usize % 400 }];
        for pool in ["default", "second"] {
            // A value longer than a segment may find no memory in a damaged file's budget.
            let _ = cache.pool(pool).expect("it is configured").insert(&number.to_le_bytes(), &value).apply();
        }
    }
}

fn sound() -> File {
    let folder = folder();
    let path = folder.path().join("memory");
    let cache = build(&path, Clock::Manual).expect("the options are sound");
    set_all(&cache);
    cache.close().expect("there is space");
    drop(cache);
    let bytes = std::fs::read(&path).expect("it is there");
    let frames = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
    File { image: FRAMES_AT + FRAME_BYTES * frames as usize, bytes }
}

impl File {
    fn change(&mut self, change: &[u8]) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize;
        let (from, to) = match place % 4 {
            0 => (ORIGIN_BYTES, SUPERBLOCK_BYTES),
            1 => (FRAMES_AT, self.image),
            _ => (self.image, self.bytes.len()),
        };
        let byte = &mut self.bytes[from + place / 4 % (to - from)];
        *byte = match change[4] % 3 {
            0 => *byte ^ change[5],
            1 => byte.wrapping_add(change[5]),
            _ => change[5],
        };
    }

    fn make_checksums_right(&mut self) {
        let (superblock, rest) = self.bytes.split_at_mut(SUPERBLOCK_BYTES);
        rest[..8].copy_from_slice(&XxHash3_64::oneshot(superblock).to_le_bytes());
        for (number, block) in (0..).zip(self.bytes[self.image..].chunks_mut(BLOCK_BYTES)) {
            let (payload, checksum) = block.split_at_mut(block.len() - 8);
            checksum.copy_from_slice(&XxHash3_64::oneshot_with_seed(number, payload).to_le_bytes());
        }
    }
}

/// Uses a cache, stops it, and starts it again.
fn go_on(cache: Cache, path: &Path, clock: Clock) {
    cache.verify();
    for number in 0..KEYS {
        for pool in ["default", "second"] {
            let pool = cache.pool(pool).expect("it is configured");
            if let Some(item) = pool.get(&number.to_le_bytes()).hit() {
                assert_eq!(item.to_vec().len(), item.len());
            }
        }
    }
    set_all(&cache);
    cache.verify();
    cache.close().expect("there is space");
    drop(cache);
    let cache = build(path, clock).expect("a cache has left the file");
    let start = cache.memory_start().expect("there is a file");
    assert!(matches!(start, MemoryStart::Warm { .. }), "{start}");
    cache.verify();
}
