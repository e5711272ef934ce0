//! Process settings of the server: limits, locked memory, another user, a pid file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall, munlockall};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{AccessFlags, Pid, User, access, geteuid, setgid, setgroups, setuid};

use crate::error::Error;

/// Open files beside the connections: listeners, wakers, epoll and the standard streams.
const OTHER_FILES: u64 = 64;

/// Increases the limit on open files so that `-c` connections fit.
pub fn allow_files(connections: usize, threads: usize) -> Result<(), Error> {
    let wanted = connections as u64 + 4 * threads as u64 + OTHER_FILES;
    let failed = |error: Errno| {
        Error::System(format!(
            "-c {connections}: failed to set rlimit for open files to {wanted} ({error}). Try starting as root or \
             requesting smaller maxconns value."
        ))
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).map_err(failed)?;
    }
    Ok(())
}

/// Increases the limit on core files to the hard limit.
pub fn allow_core_dumps() -> Result<(), Error> {
    getrlimit(Resource::RLIMIT_CORE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_CORE, hard, hard))
        .map_err(|error| Error::System(format!("-r: failed to ensure corefile creation: {error}")))
}

/// Locks all memory, now and later; a refusal is only worth a warning, as it is to memcached.
pub fn lock_memory() -> Result<(), String> {
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .map_err(|error| format!("-k invalid, mlockall() failed: {error}"))
}

/// Whether [`lock_memory`] would be allowed; call it as early as that.
pub fn try_lock_memory() -> Result<(), String> {
    let locked = lock_memory();
    // Memory that stays locked makes a process larger, not wrong.
    let _ = munlockall();
    locked
}

pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether this process runs as the user `name`.
pub fn is_user(name: &str) -> bool {
    User::from_name(name).is_ok_and(|user| user.is_some_and(|user| user.uid == geteuid()))
}

/// Bytes of memory that this process may hope for: the machine's, or those of its control group if these are fewer.
pub fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine = line.split_whitespace().next()?.parse::<u64>().ok()? << 10;
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some(group.map_or(machine, |group: u64| group.min(machine)))
}

/// The user `name`.
pub fn find_user(name: &str) -> Result<User, Error> {
    let user = User::from_name(name).map_err(|error| no_identity(name, error))?;
    user.ok_or_else(|| Error::NoUser(name.to_owned()))
}

/// Gives up root for a user and its group.
pub fn become_user(user: &User) -> Result<(), Error> {
    let become_it = || {
        setgroups(&[])?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    become_it().map_err(|error| no_identity(&user.name, error))
}

fn no_identity(name: &str, error: Errno) -> Error {
    Error::System(format!("-u {name}: failed to assume identity: {error}"))
}

/// The file with our process id; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Written to another file and renamed, so that no reader sees half a number.
    pub fn write(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let mut beside = path.clone().into_os_string();
        beside.push(".tmp");
        fs::write(&beside, format!("{}\n", Pid::this()))?;
        fs::rename(&beside, &path)?;
        Ok(Self { path })
    }

    /// Why this user could not write it, as far as its folder tells.
    pub fn refusal(path: &Path) -> Option<String> {
        let shown = path.display();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let reason = match access(folder, AccessFlags::W_OK | AccessFlags::X_OK) {
            Ok(()) if path.is_dir() => "it is a directory: name a file in it".to_owned(),
            Ok(()) => return None,
            Err(Errno::ENOENT | Errno::ENOTDIR) => {
                format!("the directory {} does not exist: make it, or name another path", folder.display())
            }
            Err(error) => {
                format!("{}: {}: let this user write there, or name another path", folder.display(), error.desc())
            }
        };
        Some(format!("-P {shown}: the pid file could not be written: {reason}"))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // The file may be removed already; other errors cannot be reported any more.
        let _ = fs::remove_file(&self.path);
    }
}
