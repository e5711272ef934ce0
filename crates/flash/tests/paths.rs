//! Mistakes of operators with the paths of a device: each message names the path, the limit and what to change, and
//! nothing that is not ours is touched.

mod mounted;

use ebbtide_flash::Error;
use ebbtide_flash::device::{
    BLOCK, Buffer, Device, Disk, DiskOptions, Engine, MIN_SINGLE_PATH_BYTES, MIN_STRIPED_PATH_BYTES, Notice, OpenError,
    OpenedDisk, read, write,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use tempfile::TempDir;

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn open(paths: &[(&Path, u64)]) -> Result<OpenedDisk, Error> {
    let paths: Vec<(PathBuf, u64)> = paths.iter().map(|&(path, bytes)| (path.to_owned(), bytes)).collect();
    Disk::open(&paths, &DiskOptions::default())
}

/// Reason of the refusal, and the operator's message.
fn open_error(path: &Path, bytes: u64) -> (OpenError, String) {
    let error = open(&[(path, bytes)]).err().expect("it is refused");
    let message = error.to_string();
    match error {
        Error::Refused { path: named, reason } => {
            assert_eq!(named, path);
            assert!(message.starts_with(&path.display().to_string()), "{message}");
            let checked =
                Disk::check(&[(path.to_owned(), bytes)], &DiskOptions::default()).map_err(|error| error.to_string());
            match reason {
                OpenError::NotWritable(_) | OpenError::Failed { .. } => {}
                // How much is free changes.
                OpenError::Full { .. } | OpenError::TooLarge { .. } => assert!(checked.is_err(), "{message}"),
                _ => assert_eq!(checked.unwrap_err(), message),
            }
            (reason, message)
        }
        other => panic!("{other}"),
    }
}

fn served<T>(disk: &Disk, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        for _ in 0..disk.threads() {
            scope.spawn(|| disk.serve());
        }
        let done = work();
        disk.stop();
        done
    })
}

fn put(disk: &Disk, byte: u8) {
    let mut buffer = Buffer::zeroed(BLOCK);
    buffer.fill(byte);
    served(disk, || write(disk, 0, buffer).unwrap());
}

fn get(disk: &Disk) -> u8 {
    served(disk, || read(disk, 0, Buffer::zeroed(BLOCK)).unwrap()[0])
}

#[test]
fn a_created_file_reserves_space_and_reopens() {
    let directory = directory();
    let path = directory.path().join("flash");
    let first = open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap();
    assert!(first.is_new);
    assert!(first.disk.capacity() > MIN_STRIPED_PATH_BYTES - (2 << 20));
    assert_eq!(fs::metadata(&path).unwrap().len(), MIN_STRIPED_PATH_BYTES);
    put(&first.disk, 7);
    let identity = first.disk.identity();
    drop(first);
    let second = open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap();
    assert!(!second.is_new);
    assert_eq!(second.disk.identity(), identity);
    assert_eq!(get(&second.disk), 7);
}

#[test]
fn other_sizes_numbers_and_orders_start_empty() {
    let directory = directory();
    let path = |name| directory.path().join(name);
    let (a, b) = (path("a"), path("b"));
    let both = open(&[(&a, MIN_STRIPED_PATH_BYTES), (&b, MIN_STRIPED_PATH_BYTES)]).unwrap();
    let mut identities = vec![both.disk.identity()];
    drop(both);
    assert!(!open(&[(&a, MIN_STRIPED_PATH_BYTES), (&b, MIN_STRIPED_PATH_BYTES)]).unwrap().is_new);
    let larger = MIN_STRIPED_PATH_BYTES + BLOCK as u64;
    let changes = [
        vec![(&*b, MIN_STRIPED_PATH_BYTES), (&*a, MIN_STRIPED_PATH_BYTES)],
        vec![(&*b, MIN_STRIPED_PATH_BYTES)],
        vec![(&*b, larger)],
        vec![(&*b, MIN_STRIPED_PATH_BYTES)],
        vec![(&*a, MIN_STRIPED_PATH_BYTES), (&*b, MIN_STRIPED_PATH_BYTES)],
    ];
    for change in changes {
        let opened = open(&change).unwrap();
        assert!(opened.is_new);
        assert!(opened.notices.iter().any(|notice| matches!(notice, Notice::Relabelled)));
        assert!(opened.notices[0].to_string().contains("flash starts empty"));
        let lengths: Vec<u64> = change.iter().map(|(path, _)| fs::metadata(path).unwrap().len()).collect();
        assert_eq!(lengths, change.iter().map(|&(_, bytes)| bytes).collect::<Vec<_>>());
        identities.push(opened.disk.identity());
    }
    identities.sort();
    identities.dedup();
    assert_eq!(identities.len(), 6, "what remembers one of them does not belong to another");
}

#[test]
fn a_damaged_label_is_ours_and_starts_empty() {
    let directory = directory();
    let path = directory.path().join("flash");
    drop(open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap().is_new);
}

#[test]
fn a_foreign_file_is_refused_unchanged() {
    let directory = directory();
    let (path, other) = (directory.path().join("photos"), directory.path().join("other"));
    let zeros_and_one = [vec![0; 3 << 20], vec![1]].concat();
    for contents in [b"x".to_vec(), zeros_and_one, b"mine".repeat(1 << 20)] {
        fs::write(&path, &contents).unwrap();
        assert!(
            matches!(open_error(&path, MIN_STRIPED_PATH_BYTES), (OpenError::Foreign, message) if message.contains("not ours"))
        );
        assert!(open(&[(&other, MIN_STRIPED_PATH_BYTES), (&path, MIN_STRIPED_PATH_BYTES)]).is_err());
        assert!(fs::read(&path).unwrap() == contents);
        assert!(!other.exists(), "a file that was made is removed again");
    }
}

#[test]
fn a_file_of_one_hole_is_empty() {
    let directory = directory();
    let path = directory.path().join("reserved");
    fs::File::create(&path).unwrap().set_len(MIN_STRIPED_PATH_BYTES).unwrap();
    let opened = open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap();
    assert!(opened.is_new);
    assert!(!opened.notices.iter().any(|notice| matches!(notice, Notice::Relabelled)));
}

#[test]
fn a_file_of_zeros_counts_as_new() {
    let directory = directory();
    let path = directory.path().join("zeros");
    for bytes in [0, 1, 5000, 3 << 20, MIN_STRIPED_PATH_BYTES] {
        fs::write(&path, vec![0; bytes as usize]).unwrap();
        Disk::check(&[(path.clone(), MIN_STRIPED_PATH_BYTES)], &DiskOptions::default()).unwrap();
        assert!(open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap().is_new, "{bytes} bytes");
    }
}

#[test]
fn a_truncated_file_is_new_an_unlabelled_refused() {
    let directory = directory();
    let path = directory.path().join("flash");
    let disk = open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap().disk;
    put(&disk, 7);
    drop(disk);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..BLOCK].fill(0);
    fs::write(&path, &bytes).unwrap();
    let (reason, message) = open_error(&path, MIN_STRIPED_PATH_BYTES);
    assert!(matches!(reason, OpenError::Foreign) && message.contains("to begin anew, remove the file"), "{message}");
    assert!(fs::read(&path).unwrap() == bytes);
    fs::write(&path, []).unwrap();
    assert!(open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap().is_new);
}

/// A file on these filesystems opens for writing and accepts a length, and none can be created there. Root gets that
/// error only from the attempt.
#[test]
fn a_check_refuses_paths_without_storage() {
    for path in ["/proc/self/environ", "/proc/self/comm", "/proc/flash", "/sys/flash"] {
        let message = open_error(Path::new(path), MIN_STRIPED_PATH_BYTES).1;
        let checked = Disk::check(&[(path.into(), MIN_STRIPED_PATH_BYTES)], &DiskOptions::default());
        assert_eq!(checked.unwrap_err().to_string(), message);
    }
}

#[test]
fn directories_and_missing_parents_are_refused() {
    let directory = directory();
    let (reason, message) = open_error(directory.path(), MIN_STRIPED_PATH_BYTES);
    assert!(matches!(reason, OpenError::IsDirectory), "{message}");
    let (reason, message) = open_error(&directory.path().join("absent/flash"), MIN_STRIPED_PATH_BYTES);
    assert!(matches!(reason, OpenError::NoDirectory), "{message}");
    fs::write(directory.path().join("file"), "").unwrap();
    let (reason, message) = open_error(&directory.path().join("file/flash"), MIN_STRIPED_PATH_BYTES);
    assert!(matches!(reason, OpenError::NoDirectory), "{message}");
    let (reason, message) = open_error(Path::new("/dev/null"), MIN_STRIPED_PATH_BYTES);
    assert!(matches!(reason, OpenError::OtherKind), "{message}");
}

#[test]
fn small_sizes_are_refused_others_rounded_down() {
    let directory = directory();
    let path = directory.path().join("flash");
    let (reason, message) = open_error(&path, MIN_SINGLE_PATH_BYTES - BLOCK as u64);
    assert!(matches!(reason, OpenError::TooSmall { .. }) && message.contains("4194304"), "{message}");
    assert!(open(&[(&path, MIN_SINGLE_PATH_BYTES)]).is_ok());
    let second = directory.path().join("second");
    let refused = open(&[(&path, MIN_STRIPED_PATH_BYTES), (&second, MIN_STRIPED_PATH_BYTES - BLOCK as u64)])
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("33554432"), "{refused}");
    fs::remove_file(&path).unwrap();
    assert!(open_error(&path, 1).1.contains("is to have 1 bytes"));
    assert!(!path.exists());
    let opened = open(&[(&path, MIN_STRIPED_PATH_BYTES + 512)]).unwrap();
    let notices: Vec<_> = opened.notices.iter().map(ToString::to_string).collect();
    assert!(notices.iter().any(|notice| notice.contains("33554432 of the 33554944 bytes are used")), "{notices:?}");
    assert_eq!(fs::metadata(&path).unwrap().len(), MIN_STRIPED_PATH_BYTES);
}

#[test]
fn more_than_the_filesystem_has_is_refused() {
    let directory = directory();
    let path = directory.path().join("flash");
    // More than any, and less than a file can have.
    let (reason, message) = open_error(&path, 8 << 40);
    assert!(message.contains("make space"), "{message}");
    let OpenError::Full { free, .. } = reason else { panic!("{message}") };
    let each = [("one", free / 3 * 2), ("two", free / 3 * 2)].map(|(name, bytes)| (directory.path().join(name), bytes));
    assert!(Disk::check(&each[..1], &DiskOptions::default()).is_ok());
    let together = Disk::check(&each, &DiskOptions::default());
    assert!(matches!(together, Err(Error::Refused { path, reason: OpenError::Full { .. } }) if path == each[1].0));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_file_in_use_is_refused_until_closed() {
    let directory = directory();
    let path = directory.path().join("flash");
    let contents = open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap();
    assert!(matches!(open_error(&path, MIN_STRIPED_PATH_BYTES).0, OpenError::InUse));
    assert!(path.exists(), "it was not made by who was refused");
    drop(contents);
    assert!(open(&[(&path, MIN_STRIPED_PATH_BYTES)]).is_ok());
    let other = directory.path().join("other");
    let twice = open(&[(&other, MIN_STRIPED_PATH_BYTES), (&other, MIN_STRIPED_PATH_BYTES)]);
    assert!(matches!(twice, Err(Error::Refused { reason: OpenError::InUse, .. })));
    assert!(!other.exists());
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for (first, second) in [(&other, &directory.path().join(".").join("other")), (&path, &link)] {
        let checked =
            Disk::check(&[first, second].map(|path| (path.clone(), MIN_STRIPED_PATH_BYTES)), &DiskOptions::default());
        assert!(matches!(checked, Err(Error::Refused { path, reason: OpenError::InUse }) if path == *second));
    }
}

#[test]
fn a_link_to_nothing_is_refused() {
    let directory = directory();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("absent", &link).unwrap();
    let (reason, message) = open_error(&link, MIN_STRIPED_PATH_BYTES);
    assert!(matches!(reason, OpenError::Dangling { .. }) && message.contains("is a link to absent"), "{message}");
}

#[test]
fn a_place_that_takes_no_files_is_refused() {
    let (reason, message) = open_error(Path::new("/sys/ebbtide"), MIN_STRIPED_PATH_BYTES);
    assert!(matches!(reason, OpenError::NoStorage) && message.contains("name a path on a disk"), "{message}");
}

#[test]
fn a_read_only_filesystem_is_refused() {
    mounted::run("a_read_only_filesystem_is_refused", "tmpfs", "ro", |directory| {
        let (reason, message) = open_error(&directory.join("flash"), MIN_STRIPED_PATH_BYTES);
        assert!(matches!(reason, OpenError::NotWritable(_)), "{message}");
    });
}

#[test]
fn a_full_filesystem_is_refused() {
    mounted::run("a_full_filesystem_is_refused", "tmpfs", "size=40m", |directory| {
        let path = directory.join("flash");
        let (reason, message) = open_error(&path, 64 << 20);
        assert!(matches!(reason, OpenError::Full { needed: 67_108_864, free } if free <= 40 << 20), "{message}");
        assert!(!path.exists());
        let opened = open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap();
        put(&opened.disk, 5);
        drop(opened);
        // Blocks that the file holds already are not reserved a second time.
        assert_eq!(get(&open(&[(&path, MIN_STRIPED_PATH_BYTES)]).unwrap().disk), 5);
    });
}

#[test]
fn missing_direct_io_or_reservation_is_reported() {
    mounted::run("missing_direct_io_or_reservation_is_reported", "ramfs", "rw", |directory| {
        let opened = open(&[(&directory.join("flash"), MIN_STRIPED_PATH_BYTES)]).unwrap();
        let told = |which: fn(&Notice) -> bool| opened.notices.iter().filter(|notice| which(notice)).count();
        assert_eq!(told(|notice| matches!(notice, Notice::NotDirect { .. })), 1, "{:?}", opened.notices);
        assert_eq!(told(|notice| matches!(notice, Notice::NotReserved { .. })), 1, "{:?}", opened.notices);
        assert!(opened.notices.iter().any(|notice| notice.to_string().contains("no direct I/O here")));
        put(&opened.disk, 6);
        drop(opened);
        assert_eq!(get(&open(&[(&directory.join("flash"), MIN_STRIPED_PATH_BYTES)]).unwrap().disk), 6);
    });
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |options, paths: &[(PathBuf, u64)]| Disk::open(paths, &options).err().unwrap().to_string();
    let path = || [(PathBuf::from("/nowhere"), MIN_STRIPED_PATH_BYTES)];
    for queue_depth in [0, 1, 4097] {
        let message = refused(DiskOptions { queue_depth, ..DiskOptions::default() }, &path());
        assert!(message.contains("2 to 4096"), "{message}");
    }
    for pool_threads in [0, 257] {
        let message = refused(DiskOptions { pool_threads, ..DiskOptions::default() }, &path());
        assert!(message.contains("1 to 256"), "{message}");
    }
    assert!(refused(DiskOptions::default(), &[]).contains("number of paths"));
}

#[test]
fn the_engine_that_is_wanted_is_taken() {
    let directory = directory();
    let path = directory.path().join("flash");
    let options = DiskOptions { engine: Some(Engine::Pool), pool_threads: 3, ..DiskOptions::default() };
    let opened = Disk::open(&[(path, MIN_STRIPED_PATH_BYTES)], &options).unwrap();
    assert_eq!((opened.disk.engine(), opened.disk.threads()), (Engine::Pool, 3));
}
