//! Block devices: a loop device over a file stands for a drive. Only root can create one; other users get a message
//! that nothing was tested.

use ebbtide_flash::Error;
use ebbtide_flash::device::{
    BLOCK, Buffer, Device, Disk, DiskOptions, Engine, MIN_STRIPED_PATH_BYTES, OpenError, OpenedDisk, read, write,
};
use std::fs::{self, File, OpenOptions};
use std::io::{Write, stderr};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use tempfile::TempDir;

const BYTES: u64 = 2 * MIN_STRIPED_PATH_BYTES;
/// Flag of open(2) on Linux, equal on every architecture that io_uring runs on.
const O_EXCL: i32 = 0o200;

struct LoopDevice {
    path: PathBuf,
    image: PathBuf,
    _directory: TempDir,
}

impl LoopDevice {
    fn new(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(BYTES).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            // Not by `eprintln`, which is shown for tests that fail.
            let _ = writeln!(stderr(), "not tested: {test}: no loop device can be made here");
            return None;
        };
        let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Some(Self { path, image, _directory: directory })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

fn open(path: &Path, bytes: u64, engine: Option<Engine>) -> Result<OpenedDisk, Error> {
    Disk::open(&[(path.to_owned(), bytes)], &DiskOptions { engine, ..DiskOptions::default() })
}

fn open_error(path: &Path, bytes: u64) -> OpenError {
    match open(path, bytes, None).err().expect("it is refused") {
        Error::Refused { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

fn served(disk: &Disk, work: impl FnOnce()) {
    thread::scope(|scope| {
        for _ in 0..disk.threads() {
            scope.spawn(|| disk.serve());
        }
        work();
        disk.stop();
    });
}

#[test]
fn a_block_device_writes_reads_and_discards() {
    let Some(device) = LoopDevice::new("a block device") else { return };
    let mut is_new = true;
    for engine in [None, Some(Engine::Pool)] {
        let opened = open(&device.path, BYTES, engine).unwrap();
        assert_eq!(opened.is_new, is_new);
        is_new = false;
        let disk = &opened.disk;
        served(disk, || {
            let mut buffer = Buffer::zeroed(16 << 20);
            buffer.fill(7);
            write(disk, BLOCK as u64, buffer).unwrap();
            disk.sync().unwrap();
            let found = read(disk, BLOCK as u64, Buffer::zeroed(16 << 20)).unwrap();
            assert!(found.iter().all(|&b| b == 7));
            let blocks = || fs::metadata(&device.image).unwrap().blocks() * 512;
            let before = blocks();
            let (first, end) = ((4 << 20) + BLOCK as u64, (12 << 20) + BLOCK as u64);
            disk.discard(first, end - first).unwrap();
            assert!(blocks() + (7 << 20) <= before, "the image has holes");
            let stats = disk.monitor().stats();
            assert_eq!((stats.discards, stats.discards_refused), (1, 0));
            for at in [BLOCK as u64, end] {
                let found = read(disk, at, Buffer::zeroed(4 << 20)).unwrap();
                assert!(found.iter().all(|&b| b == 7), "no more than that is forgotten");
            }
        });
    }
}

#[test]
fn a_foreign_block_device_is_refused_unchanged() {
    let Some(device) = LoopDevice::new("a foreign block device") else { return };
    let image = OpenOptions::new().write(true).open(&device.path).unwrap();
    // Where an ext4 superblock has its magic.
    image.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    image.sync_all().unwrap();
    drop(image);
    assert!(matches!(open_error(&device.path, BYTES), OpenError::Foreign));
    let mut beginning = [0; 2048];
    File::open(&device.path).unwrap().read_exact_at(&mut beginning, 0).unwrap();
    assert_eq!(beginning.iter().filter(|&&b| b != 0).count(), 2);
}

#[test]
fn a_block_device_bounds_size_and_users() {
    let Some(device) = LoopDevice::new("the size of a block device") else { return };
    let more = BYTES + BLOCK as u64;
    assert!(matches!(open_error(&device.path, more), OpenError::TooLarge { bytes, has: BYTES } if bytes == more));
    let holder = OpenOptions::new().read(true).custom_flags(O_EXCL).open(&device.path).unwrap();
    assert!(matches!(open_error(&device.path, BYTES), OpenError::InUse));
    drop(holder);
    let opened = open(&device.path, MIN_STRIPED_PATH_BYTES, None).unwrap();
    assert!(opened.disk.capacity() < MIN_STRIPED_PATH_BYTES, "less than all of it can be used");
    assert!(matches!(open_error(&device.path, BYTES), OpenError::InUse));
}
