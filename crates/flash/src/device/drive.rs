//! The logs of NVMe drives: their wear, and their writes for the bytes that they are given.
//!
//! ```text
//! page 02h, health             5: percent of its life used    48..64: data units it was given, of 512,000 bytes
//! page C0h, health, extended   0..16: bytes it wrote to its medium    496..512: the GUID of this page
//! ```
//! The first is that of the NVM Express specification ("SMART / Health Information"), the second that of the Open
//! Compute Project's for drives of data centres ("SMART / Health Information Extended"); other makers have other things
//! there. Numbers are little-endian.

#![allow(unsafe_code)]

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString, c_void};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const PAGE_BYTES: usize = 512;
const HEALTH: u8 = 0x02;
const EXTENDED: u8 = 0xC0;
const EXTENDED_GUID: [u8; 16] =
    [0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF];
const DATA_UNIT: u128 = 512_000;
/// Timeout of a request: a drive that takes longer is faulty, and the caller should not wait.
const TIMEOUT_MS: u32 = 1000;
/// Folder in which the system lists block devices by number.
const NUMBERS: &str = "/sys/dev/block";

/// The combined logs of drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveLog {
    /// The used share of the rated life of the most worn drive; 1 at the end of its rated life.
    pub life_used: f64,
    /// Bytes written to the drives by all hosts since their production.
    pub given_bytes: u64,
    /// Bytes that the drives wrote for them, including moved data. `None` if one of the drives does not report it.
    pub written_bytes: Option<u64>,
}

/// Why the drive under a file has no log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDriveLog {
    /// The file system has no block device: an overlay, memory, or another host.
    NoDevice,
    /// The device is not an NVMe drive. The name is that of the system: `vda`, `dm-0`.
    NotNvme { device: String },
    /// The drive is known, and its device file cannot be opened.
    Closed { path: PathBuf, error: io::ErrorKind },
    /// The drive did not answer, or this process may not ask.
    Silent { path: PathBuf },
}

/// The log of the drive under a file or folder. Waits for the drive, a second at most.
///
/// # Errors
/// Why there is no log; the `io::Error` is of reading the file's metadata.
pub fn drive_log_under(path: &Path) -> io::Result<Result<DriveLog, NoDriveLog>> {
    let metadata = fs::metadata(path)?;
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    Ok(drive_log_of(Path::new(NUMBERS), number))
}

fn drive_log_of(numbers: &Path, number: u64) -> Result<DriveLog, NoDriveLog> {
    let Some(device) = device_of(numbers, number) else { return Err(NoDriveLog::NoDevice) };
    let Some(path) = path_of(numbers, number) else {
        return Err(NoDriveLog::NotNvme { device: device.to_string_lossy().into_owned() });
    };
    let closed = |error: io::Error| NoDriveLog::Closed { path: path.clone(), error: error.kind() };
    let drive = File::open(&path).map_err(closed)?;
    Drives(vec![drive]).ask().ok_or(NoDriveLog::Silent { path })
}

/// The drives under files and block devices.
pub(super) struct Drives(Vec<File>);

impl Drives {
    /// The drives under block devices with these numbers. `None` if one is not a single NVMe drive, or may not be
    /// opened.
    pub fn of_paths(numbers: impl Iterator<Item = Option<u64>>) -> Option<Self> {
        let paths: Option<BTreeSet<PathBuf>> = numbers.map(|number| path_of(Path::new(NUMBERS), number?)).collect();
        let files: Result<Vec<File>, io::Error> = paths?.into_iter().map(File::open).collect();
        files.ok().map(Self)
    }

    /// Reads their logs; `None` if one does not answer, or access is denied. Waits for the drives, at most for seconds.
    pub fn ask(&self) -> Option<DriveLog> {
        let logs = self.0.iter().map(|file| Some(log_of(&page(file, HEALTH)?, page(file, EXTENDED).as_ref())));
        logs.reduce(|all, log| Some(together(all?, log?)))?
    }
}

/// The path of the NVMe drive that has the block device of this number.
fn path_of(numbers: &Path, number: u64) -> Option<PathBuf> {
    let name = device_of(numbers, number).filter(|name| name.as_bytes().starts_with(b"nvme"))?;
    Some(Path::new("/dev").join(name))
}

/// The name of the whole device that has the block device of this number, or of which that is a partition.
fn device_of(numbers: &Path, number: u64) -> Option<OsString> {
    let listed = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let mut device = fs::canonicalize(numbers.join(listed)).ok()?;
    if device.join("partition").exists() {
        device.pop();
    }
    device.file_name().map(OsStr::to_owned)
}

fn log_of(health: &[u8; PAGE_BYTES], extended: Option<&[u8; PAGE_BYTES]>) -> DriveLog {
    let extended = extended.filter(|page| page[496..] == EXTENDED_GUID);
    DriveLog {
        life_used: f64::from(health[5]) / 100.0,
        given_bytes: clamped(number(health, 48).saturating_mul(DATA_UNIT)),
        written_bytes: extended.map(|page| clamped(number(page, 0))),
    }
}

fn number(page: &[u8; PAGE_BYTES], at: usize) -> u128 {
    u128::from_le_bytes(page[at..at + 16].try_into().expect("16 bytes"))
}

fn clamped(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn together(one: DriveLog, other: DriveLog) -> DriveLog {
    DriveLog {
        life_used: one.life_used.max(other.life_used),
        given_bytes: one.given_bytes.saturating_add(other.given_bytes),
        written_bytes: one.written_bytes.zip(other.written_bytes).map(|(one, other)| one.saturating_add(other)),
    }
}

/// A page of a drive's logs; `None` if it has no such page, or access is denied.
fn page(drive: &File, id: u8) -> Option<[u8; PAGE_BYTES]> {
    let mut page = [0; PAGE_BYTES];
    let request = GetLogPage(Command {
        opcode: 0x02,
        namespace: u32::MAX,
        address: page.as_mut_ptr() as u64,
        bytes: PAGE_BYTES as u32,
        // The page, and how many words of four bytes, less one.
        cdw10: u32::from(id) | (PAGE_BYTES as u32 / 4 - 1) << 16,
        timeout_ms: TIMEOUT_MS,
        ..Command::default()
    });
    // SAFETY: the kernel reads and writes the command, and writes `bytes` bytes at its address, which is our page.
    let is_done = unsafe { rustix::ioctl::ioctl(drive, request) };
    matches!(is_done, Ok(true)).then_some(page)
}

/// `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.
#[derive(Default)]
#[repr(C)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    bytes: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

/// `NVME_IOCTL_ADMIN_CMD`
const ADMIN_COMMAND: Opcode = opcode::read_write::<Command>(b'N', 0x41);

const _: () = assert!(size_of::<Command>() == 72 && std::mem::offset_of!(Command, timeout_ms) == 64);

struct GetLogPage(Command);

// SAFETY: the number is that of an ioctl that takes a pointer to a `Command`. Its result is negative for an error, 0
// for a command that the drive has done, and the drive's status for one that it has not.
unsafe impl Ioctl for GetLogPage {
    type Output = bool;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        ADMIN_COMMAND
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(status: IoctlOutput, _: *mut c_void) -> rustix::io::Result<bool> {
        Ok(status == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn health(percent: u8, units: u128) -> [u8; PAGE_BYTES] {
        let mut page = [0xEE; PAGE_BYTES];
        page[5] = percent;
        page[48..64].copy_from_slice(&units.to_le_bytes());
        page
    }

    fn extended(bytes: u128) -> [u8; PAGE_BYTES] {
        let mut page = [0xEE; PAGE_BYTES];
        page[..16].copy_from_slice(&bytes.to_le_bytes());
        page[496..].copy_from_slice(&EXTENDED_GUID);
        page
    }

    #[test]
    fn pages_are_read_as_specified() {
        let log = log_of(&health(3, 2_000), Some(&extended(2_560_000_000)));
        let expected = DriveLog { life_used: 0.03, given_bytes: 1_024_000_000, written_bytes: Some(2_560_000_000) };
        assert_eq!(log, expected);
        assert_eq!(log_of(&health(255, u128::MAX), None).given_bytes, u64::MAX);
        assert_eq!(log_of(&health(255, 1), None).life_used, 2.55);
        let mut other = extended(1);
        other[511] ^= 1;
        assert_eq!(log_of(&health(3, 1), Some(&other)).written_bytes, None, "another maker's page");
    }

    #[test]
    fn drives_are_told_of_as_one() {
        let one = DriveLog { life_used: 0.5, given_bytes: 10, written_bytes: Some(20) };
        let other = DriveLog { life_used: 0.1, given_bytes: 5, written_bytes: Some(6) };
        assert_eq!(together(one, other), DriveLog { life_used: 0.5, given_bytes: 15, written_bytes: Some(26) });
        let silent = DriveLog { written_bytes: None, ..other };
        assert_eq!(together(silent, one), DriveLog { life_used: 0.5, given_bytes: 15, written_bytes: None });
    }

    #[test]
    fn a_partition_leads_to_its_drive() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for device in ["nvme0n1/nvme0n1p2", "vda"] {
            fs::create_dir_all(at(device)).unwrap();
        }
        fs::write(at("nvme0n1/nvme0n1p2/partition"), "2\n").unwrap();
        for (number, device) in [("259:0", "nvme0n1"), ("259:2", "nvme0n1/nvme0n1p2"), ("254:0", "vda")] {
            symlink(at(device), at(number)).unwrap();
        }
        let path = |major, minor| path_of(folder.path(), rustix::fs::makedev(major, minor));
        assert_eq!(path(259, 0), Some("/dev/nvme0n1".into()));
        assert_eq!(path(259, 2), Some("/dev/nvme0n1".into()));
        assert_eq!(path(254, 0), None, "not NVMe");
        assert_eq!(path(0, 30), None, "a filesystem without a device");
        let why = |major, minor| drive_log_of(folder.path(), rustix::fs::makedev(major, minor)).unwrap_err();
        assert_eq!(why(0, 30), NoDriveLog::NoDevice);
        assert_eq!(why(254, 0), NoDriveLog::NotNvme { device: "vda".to_owned() });
        // This machine may have such a drive: then it answers, or not.
        if !Path::new("/dev/nvme0n1").exists() {
            let (path, error) = ("/dev/nvme0n1".into(), io::ErrorKind::NotFound);
            assert_eq!(why(259, 2), NoDriveLog::Closed { path, error }, "as in a container");
        }
    }

    #[test]
    fn what_is_no_drive_tells_nothing() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(page(&file, HEALTH), None);
        assert_eq!(Drives(vec![file]).ask(), None);
        let memory = fs::metadata("/dev/shm").unwrap();
        assert!(Drives::of_paths([Some(memory.dev())].into_iter()).is_none());
        assert_eq!(ADMIN_COMMAND, 0xC048_4E41);
    }
}
