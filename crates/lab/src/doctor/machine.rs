//! The machine and this process, as /proc and /sys describe them.

use std::fs;
use std::path::PathBuf;

/// Reads the machine; in tests, a folder with files in the kernel's format.
pub struct Machine {
    root: PathBuf,
    pub cores: u64,
}

impl Machine {
    pub fn this() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Self { root: "/".into(), cores }
    }

    /// A file of the kernel's, without the blanks around it; `None` where this kernel does not have it.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    pub fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The names in a folder, sorted; none where it does not exist.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// Bytes of an entry of /proc/meminfo.
    pub fn memory(&self, name: &str) -> Option<u64> {
        let text = self.read("proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    }

    /// The path of the control group of this process.
    fn group(&self) -> String {
        // In a container the group is the visible root; outside it has a path.
        let groups = self.read("proc/self/cgroup").unwrap_or_default();
        groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default().to_owned()
    }

    /// A file of the control group of this process.
    pub fn group_file(&self, name: &str) -> Option<String> {
        let own = self.group();
        self.read(&format!("sys/fs/cgroup/{own}/{name}")).or_else(|| self.read(&format!("sys/fs/cgroup/{name}")))
    }

    /// The memory that the control group of this process allows; `None` for all.
    pub fn group_limit(&self) -> Option<u64> {
        let own = self.group();
        let unified = [format!("sys/fs/cgroup/{own}/memory.max"), "sys/fs/cgroup/memory.max".to_owned()];
        let old = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        let limits = unified.iter().map(String::as_str).chain([old]).filter_map(|path| self.number(path));
        // The older interface writes a number beyond all memory for "no limit".
        limits.min().filter(|limit| *limit < 1 << 60)
    }

    /// Folders in `path` whose names begin with `prefix` and a digit.
    pub fn count(&self, path: &str, prefix: &str) -> usize {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else {
            return 0;
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let numbered =
            |name: &String| name.strip_prefix(prefix).is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
        names.filter(numbered).count()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A machine that has these files.
    pub fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine { root: folder.path().to_owned(), cores: 2 };
        (folder, machine)
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let (_folder, own) = machine(&[
            ("proc/self/cgroup", "0::/system.slice/x.service\n"),
            ("sys/fs/cgroup/system.slice/x.service/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
        ]);
        assert_eq!(own.group_limit(), Some(1000));
        let (_folder, none) = machine(&[("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")]);
        assert_eq!(none.group_limit(), None);
    }
}
