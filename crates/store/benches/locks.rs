//! Locks and transfers of cache lines per request: `cargo bench -p ebbtide-store --features coherence --bench locks`.
//!
//! Look-aside requests of Zipf 1.0 to a full store, with 10 % and with 50 % of sets, by 1 and by 16 threads. First the
//! threads run side by side, which shows failed tries and lets hot TTL buckets get their stripes. Then one thread makes
//! the requests of all of them in turn, one each, so that the counts of the model of caches (`coherence`) depend on no
//! scheduler. Arguments: `KEYS REQUESTS`, 300,000 and 600,000 by default; `--lines` prints every line of code.
//!
//! Not counted: bytes of items. Failed tries depend on the machine and on how often it preempts a thread.

use std::collections::BTreeMap;

use ebbtide_store::coherence::{self, Access, Recording, SiteCounts};
use ebbtide_store::{Mode, Options, Participant, Progress, Store, Ttl, Write};
use ebbtide_testkit::Random;

const VALUE_BYTES: usize = 230;
/// Half of the keys fit.
const BYTES_PER_KEY: u64 = 130;
const REQUESTS_PER_MS: u64 = 1000;

struct Client<'s> {
    store: &'s Store,
    participant: Participant,
    random: Random,
    keys: u64,
    set_percent: u64,
    /// Gets and sets.
    commands: u64,
    sets: u64,
}

impl<'s> Client<'s> {
    fn new(store: &'s Store, keys: u64, set_percent: u64, seed: u64) -> Self {
        let participant = store.participate();
        Self { store, participant, random: Random::new(seed), keys, set_percent, commands: 0, sets: 0 }
    }

    /// A key by Zipf 1.0, in a scattered order.
    fn draw(&mut self) -> u64 {
        let unit = self.random.uniform(1 << 53) as f64 / (1_u64 << 53) as f64;
        ((self.keys as f64).powf(unit) as u64 - 1).wrapping_mul(0x9E37_79B1) % self.keys
    }

    fn set(&mut self, number: u64, now_ms: u64) {
        let key = number.to_le_bytes();
        let (hash, value) = (self.store.hash(&key), [number as u8; VALUE_BYTES]);
        let write =
            Write { key: &key, hash, value: &value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
        self.sets += 1;
        self.commands += 1;
        // Ends: an eviction frees a segment, or another thread is about to.
        while self.store.write(&self.participant, &write, now_ms).is_err() {
            if self.store.evict(&self.participant, now_ms) != Progress::Working {
                std::thread::yield_now();
            }
        }
        if self.store.needs_shrink() {
            self.store.maintain(&self.participant, now_ms);
        }
    }

    fn request(&mut self, now_ms: u64) {
        let number = self.draw();
        if self.random.uniform(100) < self.set_percent {
            return self.set(number, now_ms);
        }
        self.commands += 1;
        let key = number.to_le_bytes();
        if self.store.get(&self.participant, &key, self.store.hash(&key), now_ms).is_none() {
            self.set(number, now_ms);
        }
    }
}

/// Recordings of the threads side by side, and of the same work in turn.
struct Outcome {
    side_by_side: Recording,
    in_turn: Recording,
    commands: u64,
    sets: u64,
    segments: u64,
}

fn run(keys: u64, requests: u64, set_percent: u64, threads: u64) -> Outcome {
    let options = Options { memory_bytes: keys * BYTES_PER_KEY, writers: threads as usize, ..Options::default() };
    let store = Store::new(options).expect("the machine has the memory");
    let share = requests / threads;
    let mut side_by_side = Recording::default();
    std::thread::scope(|scope| {
        let spawn = |thread: u64| {
            let store = &store;
            scope.spawn(move || {
                let mut client = Client::new(store, keys, set_percent, thread + 1);
                (thread..keys).step_by(threads as usize).for_each(|number| client.set(number, 1));
                (0..share).for_each(|_| client.request(1));
                coherence::start();
                (0..share).for_each(|_| client.request(1));
                coherence::stop()
            })
        };
        let all: Vec<_> = (0..threads).map(spawn).collect();
        all.into_iter().for_each(|thread| side_by_side.merge(&thread.join().expect("no client panics")));
    });
    let mut clients: Vec<_> = (0..threads).map(|n| Client::new(&store, keys, set_percent, 100 + n)).collect();
    coherence::start();
    let step = |clients: &mut [Client<'_>], number: u64| {
        let turn = number % threads;
        coherence::act_as(turn as u32);
        clients[turn as usize].request(1 + number / REQUESTS_PER_MS);
    };
    // Until the model knows who has which line.
    (0..requests).for_each(|number| step(&mut clients, number));
    let freed = |store: &Store| {
        let stats = store.stats();
        stats.segments_evicted + stats.segments_compacted + stats.segments_expired
    };
    let before = freed(&store);
    clients.iter_mut().for_each(|client| (client.commands, client.sets) = (0, 0));
    coherence::clear();
    (requests..2 * requests).for_each(|number| step(&mut clients, number));
    let in_turn = coherence::stop();
    let segments = freed(&store) - before;
    let sum = |part: fn(&Client<'_>) -> u64| clients.iter().map(part).sum::<u64>();
    let (commands, sets) = (sum(|client| client.commands), sum(|client| client.sets));
    store.verify(&clients[0].participant, 1 << 20);
    Outcome { side_by_side, in_turn, commands, sets, segments }
}

/// Files of the source, read once.
#[derive(Default)]
struct Sources(BTreeMap<&'static str, Vec<String>>);

impl Sources {
    /// The text of a line of code.
    fn text(&mut self, file: &'static str, line: u32) -> &str {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        let read = || std::fs::read_to_string(format!("{root}{file}")).unwrap_or_default();
        let lines = self.0.entry(file).or_insert_with(|| read().lines().map(str::to_owned).collect());
        lines.get(line as usize - 1).map_or("", |text| text.trim())
    }
}

/// Locks by what they guard: those of each set, and the others, which are taken once in a while.
#[derive(Default)]
struct Locks {
    stripes: SiteCounts,
    buckets: SiteCounts,
    others: SiteCounts,
}

impl Locks {
    fn of(recording: &Recording, sources: &mut Sources) -> Self {
        let mut locks = Self::default();
        for (site, counts) in recording.0.iter().filter(|(site, _)| site.access == Access::Lock) {
            let is_stripe = site.file.ends_with("chains.rs") && sources.text(site.file, site.line).contains("stripe");
            let sum = match site.file {
                _ if is_stripe => &mut locks.stripes,
                file if file.ends_with("index/locked.rs") => &mut locks.buckets,
                _ => &mut locks.others,
            };
            sum.count += counts.count;
            sum.failed += counts.failed;
            sum.transfers += counts.transfers;
        }
        locks
    }
}

fn main() {
    let words: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (keys, requests) = (words.first().copied().unwrap_or(300_000), words.get(1).copied().unwrap_or(600_000));
    let is_detailed = std::env::args().any(|word| word == "--lines");
    println!("{keys} keys, {requests} requests; per command (get or set), but the columns of segments");
    println!(
        "| sets | threads | sets per command | stripes | buckets | other locks | failed | transfers: writes | reads \
         | commands per segment | other locks per segment |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut sources = Sources::default();
    for (set_percent, threads) in [(10, 1), (10, 16), (50, 1), (50, 16)] {
        let outcome = run(keys, requests, set_percent, threads);
        let per_command = |count: u64| count as f64 / outcome.commands as f64;
        let per_segment = |count: u64| count as f64 / outcome.segments as f64;
        let locks = Locks::of(&outcome.in_turn, &mut sources);
        let beside = Locks::of(&outcome.side_by_side, &mut sources);
        let failed = beside.stripes.failed + beside.buckets.failed + beside.others.failed;
        let transfers = |is_read: bool| {
            let sites = outcome.in_turn.0.iter().filter(|(site, _)| (site.access == Access::Load) == is_read);
            per_command(sites.map(|(_, counts)| counts.transfers).sum())
        };
        println!(
            "| {set_percent} % | {threads} | {:.3} | {:.3} | {:.3} | {:.5} | {:.6} | {:.2} | {:.2} | {:.0} | {:.1} |",
            per_command(outcome.sets),
            per_command(locks.stripes.count),
            per_command(locks.buckets.count),
            per_command(locks.others.count),
            per_command(failed),
            transfers(false),
            transfers(true),
            per_segment(outcome.commands),
            per_segment(locks.others.count),
        );
        if is_detailed {
            let mut sites: Vec<_> = outcome.in_turn.0.iter().collect();
            sites.sort_by_key(|(_, counts)| std::cmp::Reverse((counts.transfers, counts.count)));
            for (site, counts) in sites {
                let text = sources.text(site.file, site.line);
                println!(
                    "    {:.4} transfers, {:.4} times: {:?} {}:{} {text}",
                    per_command(counts.transfers),
                    per_command(counts.count),
                    site.access,
                    site.file,
                    site.line,
                );
            }
        }
    }
}
