//! Writes that wait until another thread frees memory: their connections are parked, and the worker serves the others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::packet::{self, ADD, APPEND, INCREMENT, Packet, SET};
use crate::common::{PATIENCE, TestServer, assert_bytes, hit, options, read_exactly, set, value};
use ebbtide::flash::{Delivery, FaultyDevice};
use ebbtide::memcached::{ByteSize, Cache, Error, PausePoint, WaitReason, set_pauses};
use ebbtide_server::ServerOptions;
use ebbtide_testkit::{StoppedThreads, repeat_after_stalls};

const TOUCH: u8 = 0x1C;
const FILLERS: u32 = 1_000_000;
const SETS: usize = 100;
/// Shorter than the two seconds that a write waits for a reader.
const MAX_ATTEMPT: Duration = Duration::from_millis(1500);
/// The time between two looks for an answer. The looks are counted: a machine that stalls makes fewer in the same time,
/// so that their number is an upper bound under any load.
const LOOK: Duration = Duration::from_millis(50);
/// The looks of four times the two seconds that a write waits for a reader.
const MAX_LOOKS: u32 = 160;
/// The looks of ten times the tenth of a second that a write waits for handles.
const MAX_HELD_LOOKS: u32 = 20;

/// A server of one worker over a full cache that evicts nothing.
struct Full {
    server: TestServer,
    fillers: u32,
}

impl Full {
    /// With these keys besides.
    fn with(kept: &[(&str, &[u8])]) -> Self {
        Self::of_segments(ByteSize::kib(16), kept)
    }

    fn of_segments(segment_size: ByteSize, kept: &[(&str, &[u8])]) -> Self {
        let builder = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::mib(1)).evict(false);
        // No key that is compared shares its buckets with one that changes.
        let cache = builder.seed(1).segment_size(segment_size).build().expect("a cache");
        let server = TestServer::around(cache, ServerOptions { threads: 1, ..options() });
        for (key, value) in kept {
            server.cache.insert(key.as_bytes(), value).apply().expect("stored");
        }
        let mut fillers = 0;
        for bytes in [900, 0] {
            let insert = |number: u32| server.cache.insert(&number.to_be_bytes(), &vec![7; bytes]).apply().is_ok();
            fillers += (fillers..FILLERS).take_while(|number| insert(*number)).count() as u32;
        }
        Self { server, fillers }
    }

    /// The index contracts then, which changes CAS tokens: this waits until it has.
    fn delete_fillers(&self) {
        (0..self.fillers).for_each(|number| assert!(self.server.cache.delete(&number.to_be_bytes())));
        let (mut load, mut since) = (0.0, Instant::now());
        self.server.wait_for("an index that stays as it is", || {
            let now = self.server.cache.stats().index_load;
            if now != load {
                (load, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(300)
        });
    }

    fn wait_until_waiting(&self, count: usize) {
        self.server.wait_for("the wait for memory", || waiting(&self.server) == count);
    }
}

/// How many connections wait for memory, asked on a connection of its own.
fn waiting(server: &TestServer) -> usize {
    let conns = server.talk(b"stats conns\r\n");
    String::from_utf8_lossy(&conns).matches("state conn_io_pending").count()
}

/// A connection after sending `input`, with the expected answer.
fn asked(server: &TestServer, input: &[u8], answer: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut stream = server.connect();
    stream.write_all(input).expect("a write");
    (stream, answer.to_vec())
}

fn answered(mut asked: Vec<(TcpStream, Vec<u8>)>) {
    for (stream, answer) in &mut asked {
        assert_bytes(&read_exactly(stream, answer.len()), answer);
    }
}

#[test]
fn every_write_that_waits_parks_its_connection_alone() {
    repeat_after_stalls(MAX_ATTEMPT, park_each_write_that_waits);
}

fn park_each_write_that_waits() {
    let kept: &[(&str, &[u8])] = &[
        ("held", b"h"),
        ("replaced", b"old"),
        ("appended", b"b"),
        ("prepended", b"b"),
        ("compared", b"old"),
        ("up", b"7"),
        ("down", b"7"),
        ("touched", b"t"),
        ("got", b"g"),
        ("binary", b"b"),
        ("counted", b"1"),
        ("btouched", b"t"),
        ("mtouched", b"t"),
        ("stale", b"s"),
    ];
    let full = Full::with(kept);
    let server = &full.server;
    let held = server.cache.get(b"held").hit().expect("it was set");
    full.delete_fillers();
    let gets = server.talk(b"gets compared\r\n");
    let token =
        String::from_utf8_lossy(&gets).split(' ').nth(4).expect("a token").split('\r').next().unwrap().to_owned();
    let long = value(100_000);
    let text: &[(&[u8], &[u8])] = &[
        (b"set new 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"add added 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"replace replaced 0 0 3\r\nnew\r\n", b"STORED\r\n"),
        (b"append appended 0 0 1\r\nc\r\n", b"STORED\r\n"),
        (b"prepend prepended 0 0 1\r\na\r\n", b"STORED\r\n"),
        (&[b"cas compared 0 0 3 ", token.as_bytes(), b"\r\nnew\r\n"].concat(), b"STORED\r\n"),
        (b"incr up 1\r\n", b"8\r\n"),
        (b"decr down 1\r\n", b"6\r\n"),
        (b"touch touched 1000\r\n", b"TOUCHED\r\n"),
        (b"gat 2000 got\r\n", b"VALUE got 0 1\r\ng\r\nEND\r\n"),
        (b"ms meta 1\r\nx\r\n", b"HD\r\n"),
        (b"ma made N0 J5 v\r\n", b"VA 1\r\n5\r\n"),
        (b"mg mtouched T3000 v\r\n", b"VA 1\r\nt\r\n"),
        (b"md stale I\r\n", b"HD\r\n"),
        (&set("long", &long), b"STORED\r\n"),
        // A command behind a waiting command is executed after it.
        (b"set first 0 0 1\r\nx\r\nget first\r\n", b"STORED\r\nVALUE first 0 1\r\nx\r\nEND\r\n"),
    ];
    let count_extras = [&2_u64.to_be_bytes()[..], &5_u64.to_be_bytes(), &0_u32.to_be_bytes()].concat();
    let binary = [
        request(SET, &[0; 8], b"bset", b"x"),
        request(ADD, &[0; 8], b"badd", &long),
        request(APPEND, &[], b"binary", b"c"),
        request(INCREMENT, &count_extras, b"counted", b""),
        request(INCREMENT, &count_extras, b"bmade", b""),
        request(TOUCH, &4000_u32.to_be_bytes(), b"btouched", b""),
    ];
    let parked: Vec<_> = text.iter().map(|(input, answer)| asked(server, input, answer)).collect();
    let mut packets: Vec<_> = binary.iter().map(|input| asked(server, input, b"").0).collect();
    full.wait_until_waiting(text.len() + binary.len());
    assert_bytes(&server.talk(b"get held new\r\n"), b"VALUE held 0 1\r\nh\r\nEND\r\n");
    drop(held);
    answered(parked);
    for stream in &mut packets {
        assert_eq!(packet::read(stream).status, packet::OK);
    }
    full.wait_until_waiting(0);
    assert_bytes(
        &server.talk(b"get appended prepended made up\r\n"),
        b"VALUE appended 0 2\r\nbc\r\nVALUE prepended 0 2\r\nab\r\nVALUE made 0 1\r\n5\r\nVALUE up 0 1\r\n8\r\nEND\r\n",
    );
    assert_bytes(&server.talk(b"get long\r\n"), &[hit("long", &long), b"END\r\n".to_vec()].concat());
}

#[test]
fn changes_wait_behind_a_value_in_pieces() {
    repeat_after_stalls(MAX_ATTEMPT, wait_behind_a_value_in_pieces);
}

fn wait_behind_a_value_in_pieces() {
    let full = Full::of_segments(ByteSize::kib(4), &[("held", b"h"), ("counted", b"1")]);
    let server = &full.server;
    let held = server.cache.get(b"held").hit().expect("it was set");
    full.delete_fillers();
    // Longer than a segment, and short enough to arrive with its command.
    let long = value(7000);
    let input = [b"incr counted 1\r\n", &set("long", &long)[..], b"touch long 100\r\nincr counted 1\r\n"].concat();
    let (mut stream, _) = asked(server, &input, b"");
    full.wait_until_waiting(1);
    assert_bytes(&server.talk(b"get long\r\n"), b"END\r\n");
    drop(held);
    let answer = b"2\r\nSTORED\r\nTOUCHED\r\n3\r\n";
    assert_bytes(&read_exactly(&mut stream, answer.len()), answer);
    assert_bytes(&server.talk(b"get long\r\n"), &[hit("long", &long), b"END\r\n".to_vec()].concat());
}

#[test]
fn a_wait_behind_a_refused_value_executes_none() {
    repeat_after_stalls(MAX_ATTEMPT, wait_behind_a_refused_value);
}

fn wait_behind_a_refused_value() {
    let full = Full::with(&[("held", b"h"), ("kept", b"k")]);
    let server = &full.server;
    let held = server.cache.get(b"held").hit().expect("it was set");
    full.delete_fillers();
    let input = b"set refused x 0 13\r\ndelete kept\r\n\r\nset made 0 0 1\r\nx\r\n";
    let (mut stream, _) = asked(server, input, b"");
    full.wait_until_waiting(1);
    drop(held);
    let answer = b"CLIENT_ERROR bad command line format\r\nSTORED\r\n";
    assert_bytes(&read_exactly(&mut stream, answer.len()), answer);
    assert_bytes(&server.talk(b"get kept\r\n"), b"VALUE kept 0 1\r\nk\r\nEND\r\n");
}

fn request(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    Packet { opcode, extras, key, value, ..Packet::default() }.bytes()
}

#[test]
fn a_write_that_waits_too_long_is_refused() {
    let mut looks = 0;
    repeat_after_stalls(2 * MAX_ATTEMPT, || looks = refuse_a_write_that_waits_for_too_long());
    assert!(looks <= MAX_LOOKS, "refused after {looks} looks");
}

/// Handles may hold up to half of this memory, so a write of as much again waits for them, for a tenth of a second.
#[test]
fn a_write_beside_handles_is_refused_in_time() {
    let builder = Cache::builder().memory(ByteSize::mib(1)).max_value(ByteSize::kib(512));
    let cache = builder.segment_size(ByteSize::kib(16)).build().expect("a cache");
    let server = TestServer::around(cache, ServerOptions { threads: 1, ..options() });
    let long = value(500_000);
    server.cache.insert(b"held", &long).apply().expect("space");
    let held = server.cache.get(b"held").hit().expect("it was set").to_handle().expect("it may be held");
    let (mut stream, started) = (server.connect(), Instant::now());
    stream.write_all(&set("new", &long)).expect("a write");
    let looks = looks_for_answer(&stream);
    let answer = b"SERVER_ERROR Out of memory during read\r\n";
    assert_bytes(&read_exactly(&mut stream, answer.len()), answer);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(100) && looks <= MAX_HELD_LOOKS, "{waited:?}, {looks} looks");
    drop(held);
    stream.write_all(&set("new", &long)).expect("a write");
    assert_bytes(&read_exactly(&mut stream, 8), b"STORED\r\n");
}

/// Looks until there is an answer.
fn looks_for_answer(stream: &TcpStream) -> u32 {
    stream.set_nonblocking(true).expect("an option of a socket");
    let looks = (1..).take_while(|_| stream.peek(&mut [0]).is_err()).inspect(|_| std::thread::sleep(LOOK)).count();
    stream.set_nonblocking(false).expect("an option of a socket");
    looks as u32
}

/// The looks until it is refused.
fn refuse_a_write_that_waits_for_too_long() -> u32 {
    let full = Full::with(&[("held", b"h"), ("old", b"o")]);
    let held = full.server.cache.get(b"held").hit().expect("it was set");
    full.delete_fillers();
    let mut stream = full.server.connect();
    stream.write_all(b"set old 0 0 1\r\nx\r\n").expect("a write");
    full.wait_until_waiting(1);
    assert_bytes(&full.server.talk(b"get old\r\n"), b"VALUE old 0 1\r\no\r\nEND\r\n");
    let looks = looks_for_answer(&stream);
    let answer = b"SERVER_ERROR out of memory storing object\r\n";
    assert_bytes(&read_exactly(&mut stream, answer.len()), answer);
    assert_bytes(&full.server.talk(b"get old\r\n"), b"END\r\n");
    drop(held);
    stream.write_all(b"set old 0 0 1\r\nx\r\n").expect("a write");
    assert_bytes(&read_exactly(&mut stream, 8), b"STORED\r\n");
    looks
}

#[test]
fn leaving_during_a_write_wait_frees_it() {
    repeat_after_stalls(MAX_ATTEMPT, leave_while_writes_wait);
}

fn leave_while_writes_wait() {
    let full = Full::with(&[("held", b"h")]);
    let held = full.server.cache.get(b"held").hit().expect("it was set");
    full.delete_fillers();
    let mut streams: Vec<_> = (0..40).map(|_| full.server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"set new 0 0 1\r\nx\r\n").expect("a write");
    }
    full.wait_until_waiting(streams.len());
    drop(streams);
    drop(held);
    full.wait_until_waiting(0);
    full.server.wait_for("their end", || full.server.stat("curr_connections") <= 2);
}

#[test]
fn a_server_that_stops_ends_what_waits() {
    repeat_after_stalls(MAX_ATTEMPT, stop_while_a_write_waits);
}

fn stop_while_a_write_waits() {
    let mut full = Full::with(&[("held", b"h")]);
    let cache = full.server.cache.clone();
    let held = cache.get(b"held").hit().expect("it was set");
    full.delete_fillers();
    let mut stream = full.server.connect();
    stream.write_all(b"set new 0 0 1\r\nx\r\n").expect("a write");
    full.wait_until_waiting(1);
    let running = full.server.running();
    std::thread::scope(|scope| {
        scope.spawn(|| running.stop().expect("a clean stop"));
        drop(held);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an end");
        assert_bytes(&answer, b"STORED\r\n");
    });
}

/// A server of one worker over a full cache whose flash completes nothing.
struct Stalled {
    server: TestServer,
    device: Arc<FaultyDevice>,
    /// The key that was set last.
    last: String,
}

impl Stalled {
    fn new(demotion_wait: Duration) -> Self {
        let device = Arc::new(FaultyDevice::new(64 << 20, 7, Delivery::Later { queue_depth: 64 }));
        let builder = Cache::builder().memory(ByteSize::mib(16)).flash_demotion_wait(demotion_wait);
        let cache = builder.flash_device(device.clone()).build().expect("a cache");
        let server = TestServer::around(cache, ServerOptions { threads: 1, ..options() });
        device.stall();
        let handle = server.cache.without_waiting();
        let is_set = |key: &String| {
            let set = handle.insert(key.as_bytes(), &[7; 1000]).apply();
            set != Err(Error::WouldWait { reason: WaitReason::Demotion })
        };
        let keys = || (0..FILLERS).map(|number| format!("fill{number}"));
        let count = keys().take_while(is_set).count();
        let last = keys().nth(count - 1).expect("flash takes a bounded number from a device that stalls");
        Self { server, device, last }
    }

    fn drops(&self) -> u64 {
        self.server.cache.flash_stats().expect("flash").tier.drops.total()
    }
}

/// Sets of new keys, more than fit a segment but few enough for the buffers of a socket, and the answers to all.
fn sets(server: &TestServer, round: usize) -> (TcpStream, Vec<u8>) {
    let (keys, value) = ((0..SETS).map(|number| format!("set{round}-{number}")), value(1000));
    asked(server, &keys.flat_map(|key| set(&key, &value)).collect::<Vec<_>>(), &b"STORED\r\n".repeat(SETS))
}

#[test]
fn a_flash_wait_parks_only_its_connection() {
    let Stalled { server, device, last } = Stalled::new(2 * PATIENCE);
    let parked = [sets(&server, 0), asked(&server, &set("other", &value(1000)), b"STORED\r\n")];
    server.wait_for("the wait for flash", || waiting(&server) == 2);
    for _ in 0..100 {
        let expected = [hit(&last, &[7; 1000]), b"END\r\nMN\r\n".to_vec()].concat();
        assert_bytes(&server.talk(format!("get {last}\r\nmn\r\n").as_bytes()), &expected);
    }
    assert_eq!(waiting(&server), 2, "the device has completed nothing");
    device.resume();
    answered(parked.into());
    assert_bytes(&server.talk(b"get other\r\n"), &[hit("other", &value(1000)), b"END\r\n".to_vec()].concat());
}

#[test]
fn flash_waits_are_bounded_and_drops_counted() {
    let stalled = Stalled::new(Duration::from_millis(200));
    let (before, mut rounds) = (stalled.drops(), 0..);
    let mut set = || answered(vec![sets(&stalled.server, rounds.next().expect("there are more"))]);
    // Flash takes some more: the waits begin before its buffers are full.
    stalled.server.wait_for("drops of what flash cannot take", || {
        set();
        stalled.drops() > before
    });
    assert!(stalled.device.pending() > 0, "the device has completed nothing");
    stalled.device.resume();
    set();
}

/// Answers in a row that say that no memory comes back while threads with jobs stop.
const ANSWERS: usize = 20;
/// More threads than a cache of this size has jobs.
const MAX_HOLDERS: usize = 200;

/// A server of one worker over a cache that keeps all, of which a tenth is deleted: a write needs a compaction.
struct Sparse {
    server: TestServer,
    keys: u32,
    next: AtomicU32,
}

impl Sparse {
    fn new() -> Self {
        let cache = Cache::builder().memory(ByteSize::mib(1)).max_value(ByteSize::kib(4)).evict(false);
        let server = TestServer::around(cache.build().expect("a cache"), ServerOptions { threads: 1, ..options() });
        let keys = (0..FILLERS).take_while(|number| Self::insert(&server.cache, *number).is_ok()).count() as u32;
        let deleted = (0..keys).filter(|number| number % 10 == 0);
        deleted.for_each(|number| assert!(server.cache.delete(format!("key{number}").as_bytes())));
        Self { server, keys, next: AtomicU32::new(0) }
    }

    fn insert(cache: &Cache, number: u32) -> Result<(), Error> {
        cache.insert(format!("key{number}").as_bytes(), &[7; 900]).apply().map(drop)
    }

    /// Overwrites one of the keys.
    fn overwrite(&self, cache: &Cache) -> Result<(), Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut keys = (0..).map(|more| (number + more).wrapping_mul(7919) % self.keys);
        Self::insert(cache, keys.find(|key| key % 10 > 0).expect("one is not deleted"))
    }

    fn must_wait(&self, handle: &Cache) -> bool {
        let waits = Err(Error::WouldWait { reason: WaitReason::Eviction });
        (0..ANSWERS).all(|_| self.overwrite(handle) == waits)
    }

    /// Writes until the thread has stopped in a job, or others have.
    fn hold_a_job(&self, holders: &Arc<StoppedThreads>) {
        let (stopping, mut has_stopped) = (Arc::clone(holders), false);
        set_pauses(move |point| {
            if point == PausePoint::Job && !std::mem::replace(&mut has_stopped, true) {
                stopping.stop();
            }
        });
        while !holders.are_released() {
            self.overwrite(&self.server.cache).expect("it waits as long as it must");
        }
    }
}

#[test]
fn a_job_wait_parks_only_its_connection() {
    repeat_after_stalls(MAX_ATTEMPT, park_beside_stopped_jobs);
}

fn park_beside_stopped_jobs() {
    let (sparse, holders) = (Sparse::new(), Arc::new(StoppedThreads::default()));
    let (server, handle) = (&sparse.server, sparse.server.cache.without_waiting());
    std::thread::scope(|scope| {
        // Also when an assertion fails: the scope waits for the threads.
        let release = Release(&holders);
        let mut started = 0;
        while !sparse.must_wait(&handle) {
            if started == holders.count() {
                started += 1;
                assert!(started <= MAX_HOLDERS, "there are more jobs than that");
                scope.spawn(|| sparse.hold_a_job(&holders));
            }
        }
        // More than the open segments have space for, of all segments: none becomes free as a whole.
        let keys = (0..sparse.keys / 10).step_by(2).map(|tens| format!("key{}", 10 * tens + 1));
        let overwrites: Vec<_> = keys.map(|key| set(&key, &[8; 900])).collect();
        let parked = asked(server, &overwrites.concat(), &b"STORED\r\n".repeat(overwrites.len()));
        server.wait_for("the wait for a job", || waiting(server) == 1);
        for number in (2..sparse.keys).step_by(10) {
            let expected = [hit(&format!("key{number}"), &[7; 900]), b"END\r\nMN\r\n".to_vec()].concat();
            assert_bytes(&server.talk(format!("get key{number}\r\nmn\r\n").as_bytes()), &expected);
        }
        assert_eq!(waiting(server), 1, "the jobs have not ended");
        drop(release);
        answered(vec![parked]);
    });
}

struct Release<'h>(&'h StoppedThreads);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
