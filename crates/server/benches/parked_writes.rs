//! Latency of gets on a worker that has parked writes, beside the same without them.
//!
//! ```text
//! cargo bench --locked -p ebbtide-server --bench parked_writes -- [ROUNDS]
//! ```
//! One worker serves a closed-loop client that gets, over loopback TCP, and connections whose set of a new key waits:
//! for a reader that stays pinned, or for threads that stop in jobs. After two seconds a set is refused, and the
//! connection sends it again. Windows of two seconds with and without these sets alternate. Not measured: what a worker
//! does for clients beside one, and waits for flash.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::memcached::{ByteSize, Cache, Error, PausePoint, WaitReason, set_pauses};
use ebbtide_server::{Listen, Running, Server, ServerOptions};
use ebbtide_testkit::StoppedThreads;

const VALUE: [u8; 900] = [7; 900];
const WINDOW: Duration = Duration::from_secs(2);
/// Longer than a set waits.
const PAUSE: Duration = Duration::from_millis(2200);
/// Answers in a row that say that a set waits.
const ANSWERS: usize = 100;

struct Bench {
    cache: Cache,
    address: SocketAddr,
    /// Keys that were set; one in ten is deleted.
    keys: u32,
    next: AtomicU32,
    _running: Running,
}

impl Bench {
    fn new() -> Self {
        let builder = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::kib(4)).evict(false);
        let cache = builder.build().expect("a cache");
        let listeners = vec![Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())];
        let server = Server::bind(ServerOptions { listeners, threads: 1, ..ServerOptions::default() }, cache.clone());
        let running = server.expect("a port").start().expect("threads");
        let insert = |number: &u32| cache.insert(key(*number).as_bytes(), &VALUE).apply().is_ok();
        let keys = (0..).take_while(insert).count() as u32;
        (0..keys).step_by(10).for_each(|number| assert!(cache.delete(key(number).as_bytes())));
        Self { address: running.local_addrs()[0], cache, keys, next: AtomicU32::new(0), _running: running }
    }

    /// Overwrites one of the keys, so that segments have dead items.
    fn overwrite(&self, cache: &Cache) -> Result<(), Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut keys = (0..).map(|more| (number + more).wrapping_mul(7919) % self.keys);
        let number = keys.find(|key| key % 10 > 0).expect("one is not deleted");
        cache.insert(key(number).as_bytes(), &VALUE).apply().map(drop)
    }

    fn must_wait(&self, handle: &Cache, reason: WaitReason) -> bool {
        (0..ANSWERS).all(|_| self.overwrite(handle) == Err(Error::WouldWait { reason }))
    }

    fn hold_a_job(&self, stopped: &Arc<StoppedThreads>) {
        let (stopping, mut has_stopped) = (Arc::clone(stopped), false);
        set_pauses(move |point| {
            if point == PausePoint::Job && !std::mem::replace(&mut has_stopped, true) {
                stopping.stop();
            }
        });
        while !stopped.are_released() {
            drop(self.overwrite(&self.cache));
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream
    }

    /// A connection that sends sets of a new key while there are some to be parked.
    fn park(&self, number: usize, are_parked: &AtomicBool, is_over: &AtomicBool) {
        let mut stream = self.connect();
        let set = [format!("set parked{number} 0 0 {}\r\n", VALUE.len()).as_bytes(), &VALUE, b"\r\n"].concat();
        let mut answer = [0; 256];
        while !is_over.load(Ordering::Relaxed) {
            if !are_parked.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            stream.write_all(&set).expect("a write");
            let length = stream.read(&mut answer).expect("an answer");
            assert!(answer[..length].starts_with(b"SERVER_ERROR"), "a set that waits is refused in the end");
        }
    }

    /// Latencies of gets in a window, in nanoseconds.
    fn get(&self, stream: &mut TcpStream, latencies: &mut Vec<u64>) {
        let (started, mut answer) = (Instant::now(), vec![0; 2 * VALUE.len()]);
        let mut numbers = (3..self.keys).step_by(10).cycle();
        while started.elapsed() < WINDOW {
            let key = key(numbers.next().expect("it repeats"));
            let sent = Instant::now();
            stream.write_all(format!("get {key}\r\n").as_bytes()).expect("a write");
            let mut length = 0;
            while !answer[..length].ends_with(b"END\r\n") {
                length += stream.read(&mut answer[length..]).expect("an answer");
            }
            latencies.push(sent.elapsed().as_nanos() as u64);
            assert!(length > VALUE.len(), "each key is there");
        }
    }

    fn measure(&self, name: &str, parked: usize, rounds: u32) {
        let (are_parked, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut latencies = [Vec::new(), Vec::new()];
        thread::scope(|scope| {
            for number in 0..parked {
                let (are_parked, is_over) = (&are_parked, &is_over);
                scope.spawn(move || self.park(number, are_parked, is_over));
            }
            let mut stream = self.connect();
            for _ in 0..rounds {
                self.get(&mut stream, &mut latencies[0]);
                are_parked.store(true, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(100));
                self.get(&mut stream, &mut latencies[1]);
                are_parked.store(false, Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        latencies.iter_mut().for_each(|latencies| latencies.sort_unstable());
        let us = |which: usize, share: f64| {
            let latencies = &latencies[which];
            latencies[(latencies.len() as f64 * share) as usize] as f64 / 1000.0
        };
        let of = |share| format!("{:.1}, {:.1}, {:.2}", us(0, share), us(1, share), us(1, share) / us(0, share));
        println!(
            "| {name} | {parked} | {}, {} | {} | {} | {} |",
            latencies[0].len(),
            latencies[1].len(),
            of(0.5),
            of(0.99),
            of(0.999)
        );
    }
}

fn key(number: u32) -> String {
    format!("key{number}")
}

struct Release<'s>(&'s StoppedThreads);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(5);
    println!("| waits for | parked | gets | p50 us | p99 us | p99.9 us |\n|---|---|---|---|---|---|");
    let bench = Bench::new();
    let held = bench.cache.get(key(3).as_bytes()).hit().expect("it was set");
    // Memory of overwritten items waits for this reader.
    thread::scope(|scope| {
        let writer = || {
            let handle = bench.cache.without_waiting();
            while !bench.must_wait(&handle, WaitReason::Reader) {}
        };
        scope.spawn(writer);
    });
    [1, 64].into_iter().for_each(|parked| bench.measure("a reader", parked, rounds));
    drop(held);

    let (bench, stopped) = (Bench::new(), Arc::new(StoppedThreads::default()));
    thread::scope(|scope| {
        let _release = Release(&stopped);
        let (handle, mut started) = (bench.cache.without_waiting(), 0);
        while !bench.must_wait(&handle, WaitReason::Eviction) {
            if started == stopped.count() {
                started += 1;
                scope.spawn(|| bench.hold_a_job(&stopped));
            }
        }
        [1, 64].into_iter().for_each(|parked| bench.measure("a job", parked, rounds));
    });
}
