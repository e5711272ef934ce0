//! The path of flash: its file system and mount options, and the health of the drive under it.

use std::io;
use std::path::Path;

use ebbtide::flash::{DriveLog, NoDriveLog, drive_log_under};

use super::finding::Finding;
use super::machine::Machine;

/// The share of a drive's life from which on it should be replaced soon.
const WORN: f64 = 0.9;

/// File systems that put no second layer under the file: direct I/O goes to the drive.
const GOOD: [&str; 2] = ["ext4", "xfs"];

/// The file system, from the list of mounts.
pub fn filesystem(machine: &Machine, path: &Path) -> Finding {
    const NAME: &str = "file system";
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = machine.read("proc/self/mountinfo").unwrap_or_default();
    let Some(mount) = mount_of(&mounts, &real) else {
        return Finding::ok(NAME, format!("{}: this system does not tell its mounts", path.display()));
    };
    let Mount { point, kind, options } = mount;
    let found = format!("{}: {kind} at {point} ({options})", path.display());
    let advice = match kind {
        kind if GOOD.contains(&kind) => {
            match options.split(',').any(|option| option == "noatime" || option == "relatime") {
                true => return Finding::ok(NAME, found),
                false => format!("mount -o remount,noatime {point}: each read writes its time"),
            }
        }
        "overlay" => {
            "the writable layer of a container copies and may be small: mount a volume on ext4 or xfs".to_owned()
        }
        "tmpfs" | "ramfs" => "this is memory: flash on it costs what it saves; name a folder on a drive".to_owned(),
        "nfs" | "nfs4" | "cifs" | "ceph" | "9p" | "virtiofs" => {
            "every read crosses a network or the host: name a folder on a drive of this machine".to_owned()
        }
        "btrfs" => "chattr +C on the empty folder: copy-on-write doubles the writes; or use ext4 or xfs".to_owned(),
        "zfs" => {
            "its own cache keeps a second copy: primarycache=metadata for the data set, or use ext4 or xfs".to_owned()
        }
        _ => "untested: use ext4 or xfs, and try direct I/O here first".to_owned(),
    };
    Finding::advice(NAME, found, advice)
}

struct Mount<'a> {
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

/// The mount with the longest path over `path`; of equal ones the last, which hides the others.
fn mount_of<'a>(mounts: &'a str, path: &Path) -> Option<Mount<'a>> {
    let parsed = mounts.lines().filter_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        let mut words = before.split(' ').skip(4);
        Some(Mount { point: words.next()?, options: words.next()?, kind: behind.split(' ').next()? })
    });
    parsed.filter(|mount| path.starts_with(mount.point)).max_by_key(|mount| mount.point.len())
}

/// The health that the drive reports, or the reason why it reports none.
pub fn drive(path: &Path) -> Finding {
    judge_drive(path, drive_log_under(path))
}

fn judge_drive(path: &Path, log: io::Result<Result<DriveLog, NoDriveLog>>) -> Finding {
    const NAME: &str = "drive";
    let shown = path.display();
    let log = match log {
        Err(error) => return Finding::problem(NAME, format!("{shown}: {error}"), "name a folder that exists"),
        Ok(log) => log,
    };
    match log {
        Ok(DriveLog { life_used, given_bytes, written_bytes }) => {
            let given = given_bytes as f64 / 1e12;
            let amplified = written_bytes.filter(|_| given_bytes > 0).map(|bytes| bytes as f64 / given_bytes as f64);
            let amplified = amplified.map_or(String::new(), |factor| format!(", writes {factor:.1} bytes for each"));
            let found =
                format!("{:.0} % of its life is used; it was given {given:.1} TB{amplified}", life_used * 100.0);
            match life_used >= WORN {
                true => {
                    let remedy =
                        "replace it soon; the next one lasts longer with a budget: --flash-admission=all,budget:3dwpd";
                    Finding::advice(NAME, found, remedy)
                }
                false => Finding::ok(NAME, found),
            }
        }
        Err(NoDriveLog::NoDevice) => Finding::ok(
            NAME,
            format!("{shown}: unknown, its file system has no block device (a container's layer, memory)"),
        ),
        Err(NoDriveLog::NotNvme { device }) => Finding::ok(
            NAME,
            format!(
                "unknown: {device} is no NVMe drive; smartctl -a /dev/{device}, on the host where this is a virtual disk"
            ),
        ),
        Err(NoDriveLog::Closed { path, error: io::ErrorKind::NotFound }) => Finding::advice(
            NAME,
            format!("unknown: {} is not in this container", path.display()),
            format!("ask on the host: nvme smart-log {0}; or start the container with --device {0}", path.display()),
        ),
        Err(NoDriveLog::Closed { path, error }) => Finding::advice(
            NAME,
            format!("unknown: {}: {error}", path.display()),
            format!("run this as root, or ask with nvme smart-log {}", path.display()),
        ),
        Err(NoDriveLog::Silent { path }) => Finding::advice(
            NAME,
            format!("unknown: {} does not tell this user", path.display()),
            "run this as root: the capability CAP_SYS_ADMIN is needed to ask a drive, which a container lacks by default",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Advice, Ok as Fine, Problem};
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn the_longest_mount_point_decides_the_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let look = |kind: &str, options: &str| {
            let mounts = format!(
                "1 0 8:1 / / rw - overlay overlay rw\n2 1 8:2 / {} {options} shared:1 - {kind} /dev/x rw\n",
                real.display()
            );
            let (_folder, machine) = machine(&[("proc/self/mountinfo", &mounts)]);
            filesystem(&machine, folder.path())
        };
        assert_eq!(look("ext4", "rw,relatime").verdict, Fine);
        assert!(look("xfs", "rw").advice.unwrap().contains("noatime"));
        for (kind, word) in [("overlay", "volume"), ("tmpfs", "memory"), ("nfs4", "network"), ("zfs", "second copy")] {
            let finding = look(kind, "rw");
            assert!(finding.verdict == Advice && finding.advice.as_ref().unwrap().contains(word), "{finding:?}");
        }
        assert_eq!(filesystem(&machine(&[]).1, folder.path()).verdict, Fine);
    }

    #[test]
    fn a_drive_that_tells_nothing_has_its_reason() {
        let path = Path::new("/flash");
        let log = |life_used| {
            Ok(DriveLog { life_used, given_bytes: 2_000_000_000_000, written_bytes: Some(3_000_000_000_000) })
        };
        let worn = judge_drive(path, Ok(log(0.95)));
        assert_eq!(worn.verdict, Advice);
        assert_eq!(worn.found, "95 % of its life is used; it was given 2.0 TB, writes 1.5 bytes for each");
        assert_eq!(judge_drive(path, Ok(log(0.1))).verdict, Fine);
        let nvme = || "/dev/nvme0n1".into();
        for (reason, verdict, word) in [
            (NoDriveLog::NoDevice, Fine, "no block device"),
            (NoDriveLog::NotNvme { device: "vda".to_owned() }, Fine, "smartctl -a /dev/vda"),
            (NoDriveLog::Closed { path: nvme(), error: io::ErrorKind::NotFound }, Advice, "not in this container"),
            (NoDriveLog::Closed { path: nvme(), error: io::ErrorKind::PermissionDenied }, Advice, "permission denied"),
            (NoDriveLog::Silent { path: nvme() }, Advice, "does not tell"),
        ] {
            let finding = judge_drive(path, Ok(Err(reason)));
            assert!(finding.verdict == verdict && finding.found.contains(word), "{finding:?}");
        }
        assert_eq!(drive(Path::new("/nonexistent")).verdict, Problem);
    }
}
