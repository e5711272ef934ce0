//! Features that no file reports and only a trial shows.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use io_uring::IoUring;
use rustix::fs::OFlags;
use rustix::thread::{MembarrierQuery, membarrier_query};

use super::finding::Finding;
use super::machine::Machine;

/// Alignment of direct I/O that all common devices accept, in bytes.
const BLOCK: usize = 4096;

pub fn membarrier() -> Finding {
    const NAME: &str = "membarrier";
    match membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED) {
        true => Finding::ok(NAME, "expedited: gets need no fence"),
        false => Finding::advice(
            NAME,
            "refused: every get pays for a fence",
            "Linux 4.14 or newer, and a seccomp profile that allows membarrier",
        ),
    }
}

pub fn io_uring(machine: &Machine) -> Finding {
    const NAME: &str = "io_uring";
    match IoUring::new(2) {
        Ok(_) => Finding::ok(NAME, "available"),
        Err(error) => {
            let disabled = machine.number("proc/sys/kernel/io_uring_disabled").is_some_and(|mode| mode > 0);
            let advice = match disabled {
                true => {
                    "sysctl -w kernel.io_uring_disabled=0, if files are to be read this way; data in memory does not need it"
                }
                false => {
                    "Linux 5.6 or newer, and a seccomp profile that allows io_uring_setup, if files are to be read this way; data in memory does not need it"
                }
            };
            Finding::advice(NAME, format!("refused: {error}"), advice)
        }
    }
}

/// Writes a block past the page cache, reads it back, and removes the file.
pub fn direct_io(folder: &Path) -> Finding {
    const NAME: &str = "direct I/O";
    let file = folder.join(format!(".ebbtide-doctor-{}", std::process::id()));
    let tried = try_direct(&file);
    // The file may not exist: its creation may have failed.
    let _ = fs::remove_file(&file);
    match tried {
        Ok(true) => Finding::ok(NAME, format!("{} takes it", folder.display())),
        Ok(false) => Finding::problem(
            NAME,
            format!("{} gives back other bytes than were written", folder.display()),
            "do not use this file system",
        ),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Finding::advice(
            NAME,
            format!("{} refuses it", folder.display()),
            "give a folder on ext4 or xfs; tmpfs and overlays keep a second copy in the page cache",
        ),
        Err(error) => Finding::problem(
            NAME,
            format!("{}: {error}", folder.display()),
            "give a folder that this user may write in",
        ),
    }
}

fn try_direct(path: &Path) -> io::Result<bool> {
    let flags = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(path)?;
    let mut memory = vec![0; 2 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let block = &mut memory[start..start + BLOCK];
    block.fill(0xEB);
    file.write_all_at(block, 0)?;
    block.fill(0);
    file.read_exact_at(block, 0)?;
    Ok(block.iter().all(|byte| *byte == 0xEB))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn direct_io_needs_a_folder_and_cleans_up() {
        assert_eq!(direct_io(Path::new("/nonexistent")).verdict, Verdict::Problem);
        let folder = tempfile::tempdir().unwrap();
        assert_ne!(direct_io(folder.path()).verdict, Verdict::Problem);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
