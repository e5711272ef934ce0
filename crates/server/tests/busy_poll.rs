//! Workers that poll instead of sleeping: when they poll, and that they miss no event.

mod common;

use common::flash_server::{FlashServer, objects};
use common::{PATIENCE, TestServer, assert_bytes, hit, options, read_exactly};
use ebbtide::memcached::FlashPromotion;
use ebbtide_server::{Admin, BusyPoll, ServerOptions};
use std::fs;
use std::io::{PipeWriter, Write, pipe, stderr};
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const ASKED: &str = "ebbtide_busy_poll_seconds_total";

fn polling(busy_poll: BusyPoll) -> ServerOptions {
    let admin = Admin { address: (Ipv4Addr::LOCALHOST, 0).into(), required: true };
    ServerOptions { busy_poll, admin: Some(admin), threads: 1, ..options() }
}

/// Serializes the tests: each measures the time that its worker loses to other threads.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `rounds` of gets of all objects by `clients` clients, each with one request at a time.
fn get_all(server: &TestServer, objects: &[(String, Vec<u8>)], clients: usize, rounds: usize) {
    thread::scope(|scope| {
        for client in 0..clients {
            let mut stream = server.connect();
            scope.spawn(move || {
                for number in 0..rounds * objects.len() / clients {
                    let (key, value) = &objects[(client + number * 7) % objects.len()];
                    stream.write_all(format!("get {key}\r\n").as_bytes()).expect("a write");
                    let expected = [hit(key, value), b"END\r\n".to_vec()].concat();
                    assert_bytes(&read_exactly(&mut stream, expected.len()), &expected);
                }
            });
        }
    });
}

#[test]
fn reads_of_many_clients_are_answered() {
    let _alone = alone();
    let flash_objects = objects("key", 300, 4000);
    let FlashServer { server, folder: _folder } =
        FlashServer::with(&flash_objects, FlashPromotion::Never, polling(BusyPoll::Always));
    for clients in [16, 2, 1, 5] {
        get_all(&server, &flash_objects, clients, 20);
    }
    let flash = server.cache.flash_stats().expect("flash");
    assert_eq!(flash.served, 4 * 20 * 300);
}

#[test]
fn auto_asks_while_it_reads_flash() {
    let _alone = alone();
    let flash_objects = objects("key", 50, 4000);
    let FlashServer { server, folder: _folder } =
        FlashServer::with(&flash_objects, FlashPromotion::Never, polling(BusyPoll::Auto));
    if server.cache.thread_ring().is_none() {
        return tell("a worker has no ring here");
    }
    if !comes_to_ask(&server, || get_all(&server, &flash_objects, 1, 10)) {
        return;
    }
    // An idle worker sleeps.
    thread::sleep(Duration::from_millis(50));
    let before = server.metric(ASKED);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(server.metric(ASKED), before);
    // So does a worker with only requests for memory.
    server.cache.insert(b"near", b"here").apply().expect("stored");
    let near = [("near".to_owned(), b"here".to_vec())];
    get_all(&server, &near, 1, 100);
    let before = server.metric(ASKED);
    get_all(&server, &near, 1, 2000);
    assert_eq!(server.metric(ASKED), before);
}

#[test]
fn memory_requests_are_polled_only_with_always() {
    let _alone = alone();
    for busy_poll in [BusyPoll::Auto, BusyPoll::Never, BusyPoll::Always] {
        let server = TestServer::with(polling(busy_poll));
        let near = objects("near", 10, 100);
        for (key, value) in &near {
            server.cache.insert(key.as_bytes(), value).apply().expect("stored");
        }
        get_all(&server, &near, 1, 2000);
        if busy_poll == BusyPoll::Always {
            comes_to_ask(&server, || get_all(&server, &near, 1, 200));
        } else {
            assert_eq!(server.metric(ASKED), 0.0, "{busy_poll:?}");
        }
    }
}

#[test]
fn a_read_that_hangs_is_not_asked_for() {
    let _alone = alone();
    let flash_objects = objects("key", 20, 4000);
    let FlashServer { server, folder } =
        FlashServer::with(&flash_objects, FlashPromotion::Never, polling(BusyPoll::Auto));
    server.cache.insert(b"near", b"here").apply().expect("stored");
    let near = [("near".to_owned(), b"here".to_vec())];
    if server.cache.thread_ring().is_none() {
        return tell("a worker has no ring here");
    }
    if !comes_to_ask(&server, || get_all(&server, &flash_objects, 1, 10)) {
        return;
    }
    let hung = hang(&folder.path().canonicalize().expect("a path").join("flash"));
    let mut waiting = server.connect();
    waiting.write_all(b"get key0\r\n").expect("a write");
    server.wait_for("a read", || server.cache.flash_stats().expect("flash").tier.device.under_way > 0);
    // Moves reads that ended earlier out of the recent waits.
    get_all(&server, &near, 1, 100);
    let before = server.metric(ASKED);
    get_all(&server, &near, 1, 20_000);
    assert_eq!(server.metric(ASKED), before);
    drop(hung);
}

#[test]
fn more_workers_than_processors_sleep() {
    let _alone = alone();
    let processors = thread::available_parallelism().expect("a count").get();
    let server = TestServer::with(ServerOptions { threads: processors + 1, ..polling(BusyPoll::Always) });
    let near = objects("near", 10, 100);
    for (key, value) in &near {
        server.cache.insert(key.as_bytes(), value).apply().expect("stored");
    }
    // Long enough for a worker to know that it is alone.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        get_all(&server, &near, 1, 200);
    }
    assert_eq!(server.metric(ASKED), 0.0);
}

/// Makes reads of an open file of this process wait until the returned pipe is dropped.
fn hang(path: &Path) -> PipeWriter {
    let (hung, never_written) = pipe().expect("a pipe");
    let open = fs::read_dir("/proc/self/fd").expect("a folder").map(|entry| entry.expect("a file").path());
    let ours =
        open.into_iter().find(|file| fs::read_link(file).is_ok_and(|target| target == path)).expect("it is open");
    let number = ours.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
    // SAFETY: the cache keeps it open until its end, and it is not closed here.
    let mut file = unsafe { OwnedFd::from_raw_fd(number) };
    nix::unistd::dup2(&hung, &mut file).expect("a copy");
    mem::forget(file);
    never_written
}

/// Repeats this until the server polls. Returns false, with a message, if polling is not allowed here.
fn comes_to_ask(server: &TestServer, mut work: impl FnMut()) -> bool {
    if BusyPoll::Always.with_processors_for(1) == BusyPoll::Never {
        tell("there is no processor for a worker");
        return false;
    }
    let (started, lost_before) = (Instant::now(), lost());
    while server.metric(ASKED) == 0.0 {
        if started.elapsed() > PATIENCE {
            let share = (lost() - lost_before) as f64 / started.elapsed().as_nanos() as f64;
            assert!(share > 0.05, "it does not ask, and lost only {share}");
            tell("other threads want the processors");
            return false;
        }
        work();
    }
    true
}

/// Nanoseconds in which the workers of this process were ready and did not run.
fn lost() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("a folder").map(|task| task.expect("a thread").path());
    let second = |text: String| text.split(' ').nth(1).and_then(|number| number.parse::<u64>().ok());
    let of_worker = |task: std::path::PathBuf| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        if name.starts_with("worker") { second(fs::read_to_string(task.join("schedstat")).ok()?) } else { None }
    };
    tasks.filter_map(of_worker).sum()
}

fn tell(what: &str) {
    // Not by `eprintln`, which is shown for tests that fail.
    let _ = writeln!(stderr(), "not tested: {what}");
}
