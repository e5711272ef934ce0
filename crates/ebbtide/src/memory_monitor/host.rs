//! Readings of memory from /proc and /sys: the host, the control groups of this process (v1 and v2), pressure stalls.
//!
//! A limit of any group above this process binds it, so free memory is the smallest of the host and of all groups on
//! the way to the root. A group's clean file pages count as free, as `MemAvailable` counts those of the host.

use ebbtide_control::pressure::Reading;
use std::fs;
use std::path::{Path, PathBuf};

/// Larger limits stand for none: version 1 of control groups writes the largest multiple of a page.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The files of the kernel, in tests a folder like it.
#[derive(Debug)]
pub(super) struct Host {
    root: PathBuf,
}

impl Host {
    pub fn this() -> Self {
        Self { root: "/".into() }
    }

    /// Memory at this moment; `None` if the kernel tells neither free nor resident memory.
    pub fn read(&self) -> Option<Reading> {
        let groups = self.text("proc/self/cgroup").unwrap_or_default();
        let limits = self.unified_groups(&groups).chain(self.legacy_groups(&groups));
        let free_bytes = limits.chain(self.entry("proc/meminfo", "MemAvailable:")).min()?;
        let resident_bytes = self.entry("proc/self/status", "VmRSS:")?;
        Some(Reading { free_bytes, resident_bytes, stall_percent: self.stall_percent(&groups) })
    }

    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// Bytes of a line `NAME   N kB`.
    fn entry(&self, path: &str, name: &str) -> Option<u64> {
        let text = self.text(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    }

    /// Free bytes of each limited group of version 2.
    fn unified_groups<'a>(&'a self, groups: &'a str) -> impl Iterator<Item = u64> + 'a {
        folders("sys/fs/cgroup", unified_path(groups)).filter_map(|folder| {
            let limit = self.number(folder.join("memory.max"))?;
            let used = self.number(folder.join("memory.current"))?;
            Some(limit.saturating_sub(used) + self.statistic(&folder, "inactive_file"))
        })
    }

    /// Free bytes of each limited group of version 1.
    fn legacy_groups<'a>(&'a self, groups: &'a str) -> impl Iterator<Item = u64> + 'a {
        let is_memory =
            |line: &&str| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|n| n == "memory"));
        let path = groups.lines().find(is_memory).and_then(|line| line.splitn(3, ':').nth(2));
        folders("sys/fs/cgroup/memory", path.unwrap_or_default()).filter_map(|folder| {
            let limit = self.number(folder.join("memory.limit_in_bytes")).filter(|limit| *limit < NO_LIMIT_BYTES)?;
            let used = self.number(folder.join("memory.usage_in_bytes"))?;
            Some(limit.saturating_sub(used) + self.statistic(&folder, "total_inactive_file"))
        })
    }

    fn statistic(&self, folder: &Path, name: &str) -> u64 {
        let text = self.text(folder.join("memory.stat")).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    }

    /// PSI of this process's group, where it has one of its own, else of the host.
    fn stall_percent(&self, groups: &str) -> Option<f64> {
        let folder = folders("sys/fs/cgroup", unified_path(groups)).next();
        let text = folder.and_then(|folder| self.text(folder.join("memory.pressure")));
        let text = text.or_else(|| self.text("proc/pressure/memory"))?;
        let some = text.lines().find_map(|line| line.strip_prefix("some avg10="))?;
        some.split_whitespace().next()?.parse().ok()
    }
}

/// The path of this process's group of version 2, as /proc/self/cgroup writes it.
fn unified_path(groups: &str) -> &str {
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default()
}

/// Folders of a group and of all groups above it, the innermost first. A container may see its group as the root: a
/// folder that is not there is skipped by its reader.
fn folders(mount: &str, path: &str) -> impl Iterator<Item = PathBuf> {
    let inner = Path::new(mount).join(path.trim_matches('/'));
    let depth = Path::new(path.trim_matches('/')).components().count();
    let outer: Vec<PathBuf> = inner.ancestors().take(depth + 1).map(Path::to_path_buf).collect();
    outer.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().unwrap();
        let basics = [
            ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable:   800 kB\n"),
            ("proc/self/status", "Name:\tebbtide\nVmRSS:\t     300 kB\nRssShmem:\t 200 kB\n"),
        ];
        for (path, text) in basics.iter().chain(files) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host { root: folder.path().to_owned() };
        (folder, host)
    }

    #[test]
    fn without_groups_the_host_counts() {
        let (_folder, host) = host(&[]);
        let expected = Reading { free_bytes: 800 << 10, resident_bytes: 300 << 10, stall_percent: None };
        assert_eq!(host.read(), Some(expected));
    }

    #[test]
    fn the_tightest_group_above_the_process_counts() {
        let (_folder, host) = host(&[
            ("proc/self/cgroup", "4:memory:/ignored\n0::/apps/cache\n"),
            ("sys/fs/cgroup/apps/cache/memory.max", "max\n"),
            ("sys/fs/cgroup/apps/cache/memory.current", "1000\n"),
            ("sys/fs/cgroup/apps/memory.max", "500000\n"),
            ("sys/fs/cgroup/apps/memory.current", "400000\n"),
            ("sys/fs/cgroup/apps/memory.stat", "active_file 7\ninactive_file 50000\n"),
            ("sys/fs/cgroup/apps/cache/memory.pressure", "some avg10=12.50 avg60=0.00 total=1\nfull avg10=1.00\n"),
            ("proc/pressure/memory", "some avg10=0.10 avg60=0.00 total=1\n"),
        ]);
        let reading = host.read().unwrap();
        assert_eq!((reading.free_bytes, reading.stall_percent), (150_000, Some(12.5)));
    }

    #[test]
    fn version_one_cgroups_are_read() {
        let (_folder, host) = host(&[
            ("proc/self/cgroup", "5:cpu,memory:/docker/x\n0::/\n"),
            ("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "600000\n"),
            ("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "590000\n"),
            ("sys/fs/cgroup/memory/docker/x/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000000\n"),
        ]);
        assert_eq!(host.read().unwrap().free_bytes, 12_000);
    }

    #[test]
    fn a_kernel_that_tells_nothing_gives_no_reading() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Host { root: folder.path().to_owned() }.read(), None);
    }
}
