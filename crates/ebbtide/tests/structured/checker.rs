//! Edits by several threads beside evictions, compaction, demotion, promotion and restarts: none is lost or torn.
//!
//! All threads edit all values. Each thread has a part of each value that only it writes, with a token that it draws
//! when it finds the part absent, and a count. An edit must find the part as the thread left it, or absent: a cache may
//! lose a whole value, and then the token is another one. So an older state of the value is found out. Words carry the
//! sum of all others in the last one, so that a torn read is found out, too. In a buffer the part of a thread is its
//! last record; the records before it that are left have the counts before.
//!
//! `EBBTIDE_STRUCTURED_OPERATIONS` makes the run longer, `EBBTIDE_STRUCTURED_SEED` repeats it.

use ebbtide::{ByteSize, Cache, InsertOptions, Policy, Pool, PoolOptions};
use ebbtide_testkit::Random;
use std::path::Path;

const THREADS: usize = 4;
const KEYS: usize = 300;
const POOLS: [&str; 2] = ["default", "other"];
const STRUCTURES: [&str; 5] = ["words", "map", "range", "array", "buffer"];
/// A longer buffer is trimmed to half of this.
const RECORDS_MAX: usize = 64;
/// Operations by default, of all threads and rounds.
const OPERATIONS: u64 = 60_000;
const ROUNDS: u64 = 3;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// A token and a count.
type Part = [u64; 2];

/// State of one thread.
struct Editor {
    thread: usize,
    random: Random,
    /// By pool, structure and key: the part as this thread left it.
    parts: Vec<Option<Part>>,
    edits: u64,
    losses: u64,
}

impl Editor {
    fn new(thread: usize, seed: u64) -> Self {
        let random = Random::new(seed << 8 | thread as u64);
        Self { thread, random, parts: vec![None; POOLS.len() * STRUCTURES.len() * KEYS], edits: 0, losses: 0 }
    }

    /// The next part, and whether the former one was lost.
    fn next(&self, known: Option<Part>, found: Option<Part>, token: u64, what: &str) -> (Part, bool) {
        match (known, found) {
            (Some(known), Some(found)) => {
                assert_eq!(found, known, "{what}: an edit of thread {} was lost", self.thread);
                ([found[0], found[1] + 1], false)
            }
            (None, Some(found)) => panic!("{what}: thread {} finds {found:?}, and has written nothing", self.thread),
            (known, None) => ([token, 1], known.is_some()),
        }
    }

    fn step(&mut self, pools: &[Pool]) {
        let (pool, key) = (self.random.uniform(2) as usize, self.random.uniform(KEYS as u64) as usize);
        let (structure, token) = (self.random.uniform(STRUCTURES.len() as u64) as usize, self.random.number());
        let place = (pool * STRUCTURES.len() + structure) * KEYS + key;
        let pool = &pools[pool];
        let known = self.parts[place];
        let name = format!("{}:{key}", STRUCTURES[structure]);
        match self.random.uniform(100) {
            0..10 => {
                let filler = self.random.uniform(20_000).to_le_bytes();
                for i in 0..8_u8 {
                    pool.insert([&filler[..], &[i]].concat(), vec![i; 400 + 100 * usize::from(i)]).unwrap();
                }
                return;
            }
            10 => {
                pool.touch(&name, std::time::Duration::from_secs(100_000)).unwrap();
                return;
            }
            11..20 => {
                self.read(pool, structure, &name, known);
                return;
            }
            _ => {}
        }
        let (part, is_lost) = match structure {
            0 => self.edit_words(pool, &name, known, token),
            1 => {
                let map = pool.map::<u64, Part>(&name);
                self.edit_map(known, token, &name, |next| {
                    // An absent map is created; another thread may do so first.
                    loop {
                        if let Some(next) = map.update(&(self.thread as u64), |old| {
                            let next = next(old);
                            (Some(next.0), next)
                        })? {
                            return Ok(next);
                        }
                        map.create(InsertOptions::new())?;
                    }
                })
            }
            3 => self.edit_array(pool, &name, known, token),
            4 => self.append(pool, &name, known, token),
            _ => {
                let map = pool.range_map::<u64, Part>(&name);
                self.edit_map(known, token, &name, |next| {
                    loop {
                        if let Some(next) = map.update(&(self.thread as u64), |old| {
                            let next = next(old);
                            (Some(next.0), next)
                        })? {
                            return Ok(next);
                        }
                        map.create(InsertOptions::new())?;
                    }
                })
            }
        };
        self.parts[place] = Some(part);
        self.edits += 1;
        self.losses += u64::from(is_lost);
    }

    fn edit_words(&self, pool: &Pool, name: &str, known: Option<Part>, token: u64) -> (Part, bool) {
        let edited = pool.words(name).edit_or_create(&[0; 2 * THREADS + 1], InsertOptions::new(), |words| {
            check_words(words, name);
            let mine = &mut words[2 * self.thread..][..2];
            let found = (mine[0] != 0).then(|| [mine[0], mine[1]]);
            let (part, is_lost) = self.next(known, found, token | 1, name);
            mine.copy_from_slice(&part);
            words[2 * THREADS] = sum(words);
            (part, is_lost)
        });
        edited.unwrap()
    }

    fn edit_array(&self, pool: &Pool, name: &str, known: Option<Part>, token: u64) -> (Part, bool) {
        let array = pool.fixed_array::<Part>(name);
        let mut lost = false;
        // An absent array is created; another thread may do so first.
        loop {
            let edited = array.update(self.thread, |old| {
                let (part, is_lost) = self.next(known, (old[0] != 0).then_some(old), token | 1, name);
                lost = is_lost;
                part
            });
            if let Some(part) = edited.unwrap() {
                return (part, lost);
            }
            array.create(&[[0; 2]; THREADS], InsertOptions::new()).unwrap();
        }
    }

    /// Only this thread appends its records: between the look and the append the whole buffer may get lost.
    fn append(&self, pool: &Pool, name: &str, known: Option<Part>, token: u64) -> (Part, bool) {
        let buffer = pool.append_buffer(name);
        let (found, records) = self.last_record(pool, name);
        if records > RECORDS_MAX {
            buffer.retain_last(RECORDS_MAX / 2).unwrap();
        }
        let (part, is_lost) = self.next(known, found, token, name);
        let words = [self.thread as u64, part[0], part[1]];
        buffer.append(words.map(u64::to_le_bytes).concat()).unwrap();
        (part, is_lost)
    }

    /// The last record of this thread in a buffer, and the number of all records.
    fn last_record(&self, pool: &Pool, name: &str) -> (Option<Part>, usize) {
        let Some(records) = pool.append_buffer(name).records().unwrap() else { return (None, 0) };
        let (mut last, mut count) = (None::<Part>, 0);
        for record in records.iter() {
            let (words, rest) = record.as_chunks::<8>();
            assert!(words.len() == 3 && rest.is_empty(), "{name} is torn: {record:?}");
            let [thread, token, number] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
            assert!(thread < THREADS as u64, "{name} is torn: {record:?}");
            count += 1;
            if thread != self.thread as u64 {
                continue;
            }
            let follows = last.is_none_or(|last| [token, number] == [last[0], last[1] + 1]);
            assert!(follows, "{name}: thread {thread} finds {number} behind {last:?}: an append was lost");
            last = Some([token, number]);
        }
        (last, count)
    }

    fn edit_map(
        &self,
        known: Option<Part>,
        token: u64,
        name: &str,
        edit: impl FnOnce(&dyn Fn(Option<Part>) -> (Part, bool)) -> Result<(Part, bool), ebbtide::Error>,
    ) -> (Part, bool) {
        edit(&|old| self.next(known, old, token, name)).unwrap()
    }

    fn read(&self, pool: &Pool, structure: usize, name: &str, known: Option<Part>) {
        let me = self.thread as u64;
        let found = match structure {
            0 => pool.words(name).get().unwrap().and_then(|words| {
                check_words(&words, name);
                let mine = &words[2 * self.thread..];
                (mine[0] != 0).then(|| [mine[0], mine[1]])
            }),
            3 => {
                let part = pool.fixed_array::<Part>(name).get(self.thread).unwrap();
                part.filter(|part| part[0] != 0)
            }
            4 => self.last_record(pool, name).0,
            1 => pool.map::<u64, Part>(name).snapshot().unwrap().and_then(|map| map.get(&me).unwrap()),
            _ => pool.range_map::<u64, Part>(name).range(me..=me).unwrap().first().map(|(_, part)| *part),
        };
        if let Some(found) = found {
            assert_eq!(Some(found), known, "{name}: thread {} reads another state than it left", self.thread);
        }
    }
}

fn sum(words: &[u64]) -> u64 {
    words[..2 * THREADS].iter().fold(0, |sum: u64, word| sum.wrapping_add(*word))
}

fn check_words(words: &[u64], name: &str) {
    assert_eq!(words.len(), 2 * THREADS + 1);
    assert_eq!(sum(words), words[2 * THREADS], "{name} is torn: {words:?}");
}

fn open(folder: &Path, flash: bool) -> Cache {
    let builder = Cache::builder().memory(ByteSize::mib(12)).memory_file(folder.join("memory"));
    let builder = builder.pool(PoolOptions::named("other"));
    match flash {
        // Evicts by age, so that values go to flash however often they are edited.
        true => builder.policy(Policy::Fifo).flash(folder.join("flash"), ByteSize::mib(64)).build().unwrap(),
        false => builder.build().unwrap(),
    }
}

fn run(flash: bool) {
    let operations = setting("EBBTIDE_STRUCTURED_OPERATIONS", OPERATIONS) / ROUNDS / THREADS as u64;
    let seed = setting("EBBTIDE_STRUCTURED_SEED", 40);
    println!("EBBTIDE_STRUCTURED_SEED={seed}, flash: {flash}");
    let folder = tempfile::tempdir().unwrap();
    let mut editors: Vec<Editor> = (0..THREADS).map(|thread| Editor::new(thread, seed)).collect();
    let (mut evictions, mut promoted) = (0, 0);
    for _ in 0..ROUNDS {
        let cache = open(folder.path(), flash);
        let pools = POOLS.map(|name| cache.pool(name).unwrap());
        std::thread::scope(|scope| {
            for editor in &mut editors {
                let pools = &pools;
                scope.spawn(move || (0..operations).for_each(|_| editor.step(pools)));
            }
        });
        cache.verify();
        evictions += cache.stats().evictions;
        promoted += cache.memcached().flash_stats().map_or(0, |flash| flash.promoted);
        cache.close().unwrap();
    }
    let edits: u64 = editors.iter().map(|editor| editor.edits).sum();
    let losses: u64 = editors.iter().map(|editor| editor.losses).sum();
    println!("{edits} edits, {losses} parts of values that the cache lost, {evictions} evictions, {promoted} promoted");
    assert!(edits > operations * THREADS as u64 && evictions > 1000, "{edits} edits, {evictions} evictions");
    assert!(losses < edits, "values live: {losses} of {edits}");
    assert!(!flash || losses + promoted > 100, "values leave the memory: {losses} lost, {promoted} promoted");
}

#[test]
fn no_edit_is_lost_beside_evictions() {
    run(false);
}

#[test]
fn no_edit_is_lost_over_flash() {
    run(true);
}
