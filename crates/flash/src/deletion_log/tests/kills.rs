//! A process that logs removals is killed at random times, repeatedly: the next one reads every record whose append had
//! returned.

use super::*;
use std::env;
use std::process::{Child, Command, Stdio};

const FOLDER: &str = "EBBTIDE_KILLS_FOLDER";
const SEED: &str = "EBBTIDE_KILLS_SEED";
const STEP: &str = "EBBTIDE_KILLS_STEP";
/// Each of a thread, and one for the time.
const THREADS: u64 = 4;
const TIME: u64 = THREADS;
const RUN_PLACE: u64 = THREADS + 1;
const ROUNDS: u64 = 40;

/// Acknowledged records, in a file: the number of each thread's last record, and the last time.
struct Returned(File);

impl Returned {
    fn open(folder: &Path) -> Self {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(folder.join("returned"));
        let file = file.unwrap();
        file.set_len(8 * (THREADS + 2)).unwrap();
        Self(file)
    }

    fn get(&self, place: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 8 * place).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn set(&self, place: u64, number: u64) {
        self.0.write_all_at(&number.to_le_bytes(), 8 * place).unwrap();
    }

    /// Asserts that all of these records are read.
    fn check(&self, contents: &LogContents) {
        let small = contents.small.as_ref().unwrap();
        for thread in 0..THREADS {
            let known = if thread % 2 == 0 { small } else { &contents.large };
            let orders: std::collections::HashSet<u64> = known.deletions.iter().map(|removal| removal.order).collect();
            let last = self.get(thread);
            let is_known = |number: u64| {
                let order = number * THREADS + thread;
                order <= known.flushed || orders.contains(&order)
            };
            let lost = (1..=last).find(|&number| !is_known(number));
            assert_eq!(lost, None, "thread {thread} of {last} records, all before {} flushed", known.flushed);
        }
        assert!(u64::from(contents.latest) >= self.get(TIME));
    }
}

/// Logs until it is killed.
fn be_killed(folder: &Path) {
    let seed: u64 = env::var(SEED).unwrap().parse().unwrap();
    let returned = Returned::open(folder);
    let log = DeletionLog::open(&folder.join("log"), 16, Some(folder)).unwrap();
    let mut random = Random::new(seed);
    // In the place of a superblock.
    let before = returned.get(RUN_PLACE);
    let run = before + 1 + random.uniform(1 << 20);
    match log.read(LIVES, before) {
        Ok(contents) => {
            returned.check(&contents);
            log.announce_run(run).unwrap();
            returned.set(RUN_PLACE, run);
            log.set_run(run).unwrap();
        }
        Err(why) => {
            assert!((0..=TIME).all(|place| returned.get(place) == 0), "{why:?}");
            returned.set(RUN_PLACE, run);
            log.begin(LIVES, run, 0, 0, 1000).unwrap();
        }
    }
    log.begin_wal_buffer().unwrap();
    let rests = random.chance(50);
    log.log_file.test_faults.delay_ms.store(random.uniform(40), Relaxed);
    thread::scope(|scope| {
        for id in 0..THREADS {
            let (log, returned, mut random) = (&log, &returned, Random::new(seed << 8 | id));
            let store = if id % 2 == 0 { StoreKind::Small } else { StoreKind::Large };
            scope.spawn(move || {
                for number in returned.get(id) + 1.. {
                    log.log_deletion(store, hash(number), number * THREADS + id);
                    returned.set(id, number);
                    if id == 0 && number % 7 == 0 {
                        log.record_time(1000 + number as u32);
                        returned.set(TIME, 1000 + number);
                    }
                    if rests {
                        thread::sleep(Duration::from_micros(random.uniform(3000)));
                    }
                }
            });
        }
        if random.chance(30) {
            thread::sleep(Duration::from_millis(random.uniform(60)));
            assert!(log.stop().unwrap());
        }
    });
}

#[test]
fn a_kill_loses_no_acknowledged_removal() {
    if let Some(folder) = env::var_os(FOLDER) {
        // The process that is killed is this test, too.
        return be_killed(Path::new(&folder));
    }
    let folder = folder();
    let mut random = Random::new(1);
    let returned = Returned::open(folder.path());
    let has_enough = || (0..THREADS).all(|thread| returned.get(thread) > 1000);
    let deadline = Instant::now() + PATIENCE;
    // On a slow machine a process has logged little when it is killed: there are more rounds, and longer ones.
    for round in (0..).take_while(|round| *round < ROUNDS || !has_enough() && Instant::now() < deadline) {
        let test = "deletion_log::tests::kills::a_kill_loses_no_acknowledged_removal";
        let mut child = child(test, folder.path(), (SEED, random.uniform(1 << 40).to_string()));
        thread::sleep(Duration::from_micros(3000 + random.uniform(100_000 * (1 + round / ROUNDS))));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(ended.is_none(), "round {round}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let log = DeletionLog::open(&folder.path().join("log"), 16, Some(folder.path())).unwrap();
    returned.check(&log.read(LIVES, returned.get(RUN_PLACE)).unwrap());
    assert!(has_enough());
}

/// Runs this test's process again, with a variable that marks it.
fn child(test: &str, folder: &Path, (name, value): (&str, String)) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(FOLDER, folder).env(name, value);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Starts as a cache does, logs a removal, and ends before this step as if it were killed there.
fn end_in_a_start(folder: &Path, step: u64) -> ! {
    let returned = Returned::open(folder);
    let log = DeletionLog::open(&folder.join("log"), 16, Some(folder)).unwrap();
    let before = returned.get(RUN_PLACE);
    let end_before = |at: u64| {
        if step == at {
            std::process::exit(0)
        }
    };
    if before == 0 {
        log.begin(LIVES, 1, 0, 0, 1000).unwrap();
        returned.set(RUN_PLACE, 1);
    } else {
        returned.check(&log.read(LIVES, before).unwrap());
        end_before(0);
        log.announce_run(before + 1).unwrap();
        end_before(1);
        returned.set(RUN_PLACE, before + 1);
        end_before(2);
        log.set_run(before + 1).unwrap();
    }
    end_before(3);
    log.begin_wal_buffer().unwrap();
    let number = returned.get(0) + 1;
    log.log_deletion(StoreKind::Small, hash(number), number * THREADS);
    returned.set(0, number);
    std::process::exit(0)
}

#[test]
fn a_kill_during_a_start_loses_no_removal() {
    if let Some(folder) = env::var_os(FOLDER) {
        end_in_a_start(Path::new(&folder), env::var(STEP).unwrap().parse().unwrap());
    }
    let folder = folder();
    let mut random = Random::new(1);
    // Each step at least twice, then any.
    for round in 0..30 {
        let step = if round < 10 { (round + 4) % 5 } else { random.uniform(5) };
        let test = "deletion_log::tests::kills::a_kill_during_a_start_loses_no_removal";
        let output = child(test, folder.path(), (STEP, step.to_string())).wait_with_output().unwrap();
        assert!(output.status.success(), "round {round}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(Returned::open(folder.path()).get(0) > 2);
}
