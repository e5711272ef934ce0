//! Starts on superblocks of all kinds, and starts that end early.

use super::*;
use crate::cache::Cache;
use crate::pool_options::PoolOptions;
use crate::pools;
use ebbtide_store::Options;
use std::fs::OpenOptions;
use tempfile::TempDir;

/// A folder for each mode of a memory file.
fn folders() -> impl Iterator<Item = TempDir> {
    [tempfile::tempdir_in("/dev/shm"), tempfile::tempdir()].into_iter().flatten()
}

/// Whether a start may leave values unread: those of a mapped file, where the system reports the boot.
fn may_be_unread(mode: MemoryFileMode) -> bool {
    mode.is_mapped() && Elapsed::now().boot != 0
}

#[test]
fn a_start_that_ends_early_changes_nothing() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let pool = PoolOptions::named("second");
        let builder = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).memory_file(&path);
        let cache = builder.pool(pool.clone()).build().unwrap();
        for number in 0..20_000_u32 {
            for pool in [cache.pool("default").unwrap(), cache.pool("second").unwrap()] {
                pool.insert(&number.to_le_bytes(), &[7; 100]).apply().unwrap();
            }
        }
        cache.close().unwrap();
        drop(cache);
        let before = std::fs::read(&path).unwrap();
        let options = Options { memory_bytes: 16 << 20, memory_bytes_max: Some(64 << 20), ..Options::default() };
        // Both pools are loaded, then one of them is dropped with its frames.
        for (number, pools) in [vec![pool], Vec::new()].into_iter().enumerate() {
            let memory = Memory::begin(
                Some(&path),
                pools::plan(&options, &pools).unwrap(),
                Clock::Manual,
                KeyRouting::default(),
            )
            .unwrap();
            let Some((opened, start @ MemoryStart::Warm { are_values_checked, .. })) = &memory.opened else {
                panic!("it is warm");
            };
            // The memory of a start may have been used: the next start reads it.
            assert_eq!(*are_values_checked, number > 0 || !may_be_unread(opened.mode), "{start}");
            drop(memory);
            assert!(std::fs::read(&path).unwrap() == before);
        }
    }
}

/// A file that a cache has left, whose superblock can be changed and has a right checksum afterwards.
struct LeftFile {
    folder: TempDir,
    whole: Vec<u8>,
}

impl LeftFile {
    fn in_folder(folder: TempDir) -> Self {
        let path = folder.path().join("memory");
        let cache = Self::build(&path).unwrap();
        for number in 0..500_u32 {
            cache.insert(&number.to_le_bytes(), &number.to_be_bytes()).apply().unwrap();
        }
        cache.close().unwrap();
        drop(cache);
        Self { whole: std::fs::read(&path).unwrap(), folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("memory")
    }

    fn build(path: &Path) -> Result<Cache, Error> {
        let builder = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::mib(1));
        // Without a thread of its own a cache has left the file when it is dropped.
        builder.clock(Clock::Manual).memory_file(path).build()
    }

    /// Starts from the file with another superblock, and without a mark.
    fn start(&self, change: impl FnOnce(&mut Superblock)) -> MemoryStart {
        self.start_marked(change, |_, _| ())
    }

    /// As `start`, with `mark` called before the file is opened. A warm start has all objects, a cold one none.
    fn start_marked(&self, change: impl FnOnce(&mut Superblock), mark: impl FnOnce(&File, &Superblock)) -> MemoryStart {
        std::fs::write(self.path(), &self.whole).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(self.path()).unwrap();
        let mut superblock = Superblock::read(&file).unwrap();
        change(&mut superblock);
        file.write_all_at(&superblock.encode(), 0).unwrap();
        mark(&file, &superblock);
        drop(file);
        let cache = Self::build(&self.path()).unwrap();
        let start = cache.memory_start().unwrap().clone();
        let is_there = |number: &u32| {
            let found = cache.get(&number.to_le_bytes()).hit().map(|item| item.to_vec());
            assert!(found.is_none() || found.as_deref() == Some(&number.to_be_bytes()[..]), "a wrong value");
            found.is_some()
        };
        let found = (0..500).filter(is_there).count();
        assert_eq!(found, if matches!(start, MemoryStart::Warm { .. }) { 500 } else { 0 }, "{start}");
        cache.verify();
        start
    }
}

#[test]
fn another_program_version_starts_warm_with_notice() {
    for file in folders().map(LeftFile::in_folder) {
        let start = file.start(|superblock| assert_eq!(superblock.program, superblock::PROGRAM));
        assert!(!start.to_string().contains("written by"), "{start}");
        for version in ["0.0.1", "99.0.0-rc.1+build.123456"] {
            let start = file.start(|superblock| superblock.program = version.to_owned());
            assert!(start.to_string().ends_with(&format!(", written by version {version}")), "{start}");
        }
        // The rollback: this program's file names it, whichever version it started from.
        let cache = LeftFile::build(&file.path()).unwrap();
        cache.close().unwrap();
        drop(cache);
        assert_eq!(Superblock::read(&File::open(file.path()).unwrap()).unwrap().program, superblock::PROGRAM);
    }
}

#[test]
fn a_superblock_that_contradicts_the_file_is_cold() {
    for file in folders().map(LeftFile::in_folder) {
        let cold = |start: MemoryStart| match start {
            MemoryStart::Cold { reason } => reason,
            MemoryStart::Warm { .. } => panic!("{start}"),
        };
        for frames in [0, 1, 1000, u32::MAX] {
            cold(file.start(|superblock| superblock.frames = frames));
        }
        for bytes in [0, 1, 1 << 20, 1 << 40, u64::MAX - 1] {
            cold(file.start(|superblock| superblock.image_bytes = bytes));
        }
        cold(file.start(|superblock| superblock.image_bytes -= 1));
        let times: [fn(&mut Superblock) -> &mut u64; 5] = [
            |superblock| &mut superblock.stopped.wall_ms,
            |superblock| &mut superblock.stopped.boot_ms,
            |superblock| &mut superblock.time.epoch_seconds,
            |superblock| &mut superblock.time.now_ms,
            |superblock| &mut superblock.time.skipped_ms,
        ];
        for time in times {
            assert!(cold(file.start(|superblock| *time(superblock) = u64::MAX)).contains("no possible"));
        }
    }
}

#[test]
fn clocks_set_back_are_cold_after_reboots() {
    for file in folders().map(LeftFile::in_folder) {
        let ahead = |superblock: &mut Superblock, seconds: u64| {
            superblock.stopped.wall_ms = Elapsed::now().wall_ms + seconds * 1000;
        };
        // Of the same boot another clock decides.
        assert!(matches!(file.start(|superblock| ahead(superblock, 10_000)), MemoryStart::Warm { .. }));
        let rebooted = |seconds: u64| {
            file.start(|superblock| {
                superblock.stopped.boot ^= 1;
                ahead(superblock, seconds);
            })
        };
        assert!(matches!(rebooted(300), MemoryStart::Warm { .. }));
        let MemoryStart::Cold { reason } = rebooted(10_000) else { panic!("lives would be a guess") };
        assert!(reason.contains("the wall clock was set back"), "{reason}");
    }
}

#[test]
fn a_save_takes_no_time_from_lives() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let cache = Cache::builder().memory(ByteSize::mib(96)).memory_file(&path).build().unwrap();
        for number in 0..64_u32 {
            cache.insert(&number.to_le_bytes(), &vec![7; 900_000]).apply().unwrap();
        }
        cache.close().unwrap();
        let Superblock { time, stopped, .. } = Superblock::read(&File::open(&path).unwrap()).unwrap();
        // By a few milliseconds the wall clock may run faster than that of the cache.
        let cache_ms = time.epoch_seconds * 1000 + time.now_ms;
        assert!(cache_ms + 5 >= stopped.wall_ms, "late by {} ms", stopped.wall_ms - cache_ms);
    }
}

#[test]
fn only_an_unchanged_file_is_taken_unread() {
    for left in folders().map(LeftFile::in_folder) {
        let may_be_unread = may_be_unread(MemoryFileMode::of_path(&left.path()).unwrap());
        let is_checked = |start: MemoryStart| match start {
            MemoryStart::Warm { are_values_checked, .. } => are_values_checked,
            MemoryStart::Cold { reason } => panic!("{reason}"),
        };
        let set = modification_mark::set;
        let marked = |mark: &dyn Fn(&File, &Superblock)| is_checked(left.start_marked(|_| (), mark));
        assert_eq!(marked(&set), !may_be_unread, "as a stop leaves it");
        assert!(marked(&|_, _| ()), "without a mark");
        assert!(marked(&|file, left| set(file, &Superblock { image_bytes: 1, ..left.clone() })), "of another stop");
        assert!(is_checked(left.start_marked(|left| left.stopped.boot ^= 1, set)), "of another boot");
        assert!(is_checked(left.start_marked(|left| left.stopped.boot = 0, set)), "of a boot that is not known");
        let written = |file: &File, superblock: &Superblock| {
            set(file, superblock);
            let mut byte = [0];
            file.read_exact_at(&mut byte, FRAMES_OFFSET).unwrap();
            file.write_all_at(&byte, FRAMES_OFFSET).unwrap();
        };
        assert!(marked(&written), "written to");
        let extended = |file: &File, superblock: &Superblock| {
            set(file, superblock);
            let length = file.metadata().unwrap().len();
            file.set_len(length + 1).unwrap();
        };
        assert!(marked(&extended), "of another length");
        let copied = |file: &File, superblock: &Superblock| {
            set(file, superblock);
            let copy = left.folder.path().join("copy");
            std::fs::copy(left.path(), &copy).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            OpenOptions::new().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
            std::fs::rename(copy, left.path()).unwrap();
        };
        assert!(marked(&copied), "a copy with the time of the file");
        let restored = |file: &File, superblock: &Superblock| {
            set(file, superblock);
            let mark = file.metadata().unwrap().modified().unwrap();
            // As the mark of a stop ten seconds ago, which a program has set just now.
            file.set_modified(mark - Duration::from_secs(10)).unwrap();
        };
        assert!(marked(&restored), "written over by a copy with its time");
        // A stop marks its file, and a start removes the mark.
        let stop = || LeftFile::build(&left.path()).unwrap().close().unwrap();
        stop();
        let cache = LeftFile::build(&left.path()).unwrap();
        assert_eq!(is_checked(cache.memory_start().unwrap().clone()), !may_be_unread);
        cache.close().unwrap();
        drop(cache);
        let file = OpenOptions::new().read(true).write(true).open(left.path()).unwrap();
        let superblock = Superblock::read(&file).unwrap();
        assert_eq!(modification_mark::take(&file, &superblock), may_be_unread);
        assert!(!modification_mark::take(&file, &superblock), "a mark is used once");
    }
}

#[test]
fn a_stop_that_was_killed_is_told_apart() {
    for file in folders().map(LeftFile::in_folder) {
        let reason = |block: &[u8]| {
            std::fs::write(file.path(), &file.whole).unwrap();
            OpenOptions::new().write(true).open(file.path()).unwrap().write_all_at(block, 0).unwrap();
            LeftFile::build(&file.path()).unwrap().memory_start().unwrap().to_string()
        };
        assert!(reason(&superblock::stopping(RunRecord::default())).contains("the last stop was cut short"));
        assert!(reason(&superblock::in_use(RunRecord::default())).contains("not stopped cleanly"));
        assert!(
            reason(&superblock::not_saved(RunRecord::default(), true)).contains("longer than the time for the save")
        );
        // A power cut at the first start.
        std::fs::write(file.path(), vec![0; BLOCK_BYTES as usize]).unwrap();
        assert!(LeftFile::build(&file.path()).is_ok());
        // Foreign content begins with zeros, too.
        let mut image = vec![0; 3 * BLOCK_BYTES as usize];
        image[5000] = 1;
        std::fs::write(file.path(), &image).unwrap();
        assert!(LeftFile::build(&file.path()).is_err());
        assert!(std::fs::read(file.path()).unwrap() == image);
    }
}

#[test]
fn a_locked_file_names_its_holder() {
    use rustix::fs::{FlockOperation, flock};
    let file = tempfile::tempfile().unwrap();
    assert_eq!(open::holder(&file), None);
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(open::holder(&file), Some(std::process::id()));
    let told = open::explain_lock(open::holder(&file));
    assert!(told.starts_with("this process has held it for 30s") && told.contains("values"), "{told}");
    assert!(open::explain_lock(Some(u32::MAX)).starts_with("process 4294967295 has held it"));
}

/// A forked process has a copy of each descriptor, and lives on.
#[test]
fn a_forked_process_does_not_keep_the_lock() {
    for folder in folders() {
        for closes in [true, false] {
            let path = folder.path().join("memory");
            let cache = LeftFile::build(&path).unwrap();
            let file = cache.engine().memory_file.as_ref().unwrap();
            let copy = file.file.lock().unwrap().as_ref().unwrap().try_clone().unwrap();
            if closes {
                cache.close().unwrap();
            }
            assert!(open::is_held(&path) || closes && !file.mode.is_mapped(), "handles may read it");
            drop(cache);
            assert!(!open::is_held(&path), "closed: {closes}");
            drop(copy);
        }
    }
}
