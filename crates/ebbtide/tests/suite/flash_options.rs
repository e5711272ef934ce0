//! Options of flash in the library's interface: each changes something.

use ebbtide::flash::{AdmissionPolicy, FlashPromotion, Options, Reclaim, Reinsertion, WriteBudget};
use ebbtide::memcached::FlashStats;
use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions};
use std::time::Duration;
use tempfile::TempDir;

const VALUE: [u8; 3000] = [7; 3000];
/// Of 3 KiB each: three times the memory.
const ENTRIES: u32 = 6000;

struct Load {
    folder: TempDir,
    cache: Cache,
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

impl Load {
    fn new(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_options(options);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(32)).build().unwrap();
        Self { folder, cache }
    }

    /// A cache that has been written to.
    fn filled(options: Options) -> Self {
        let load = Self::new(options);
        load.insert(0..ENTRIES);
        load
    }

    fn insert(&self, numbers: std::ops::Range<u32>) {
        numbers.for_each(|number| self.cache.insert(key(number), VALUE).unwrap());
    }

    fn flash(&self) -> FlashStats {
        self.cache.memcached().flash_stats().expect("there is flash")
    }

    fn found(&self, numbers: std::ops::Range<u32>) -> usize {
        numbers.filter(|number| self.cache.get(key(*number)).is_some()).count()
    }
}

#[test]
fn admission_decides_what_is_written() {
    let admitted = |policy| {
        let stats = Load::filled(Options::new().admission(policy)).flash().tier.admission;
        (stats.admitted, stats.refused_by_policy)
    };
    let (all, refused) = admitted(AdmissionPolicy::All);
    assert!(all > 2000 && refused == 0, "{all} {refused}");
    let (some, refused) = admitted(AdmissionPolicy::Probability(0.25));
    assert!(some > all / 8 && some < all / 2 && refused > all / 2, "{some} {refused}");
    // Each key is evicted for the first time, and none has been missed.
    let policies = [
        AdmissionPolicy::RejectFirst { times: 1, keys: 20_000 },
        AdmissionPolicy::History { keys_per_hour: 20_000, min_reads: 1.0 },
    ];
    for (few, refused) in policies.map(admitted) {
        assert!(few < all / 50 && refused > all / 2, "{few} {refused}");
    }
}

#[test]
fn a_write_budget_refuses_entries() {
    let refused = |options: Options| {
        let load = Load::new(options);
        for second in (10..=60).step_by(10) {
            load.insert(second * ENTRIES..(second + 1) * ENTRIES);
            load.cache.maintain(Duration::from_secs(second.into()));
        }
        load.flash().tier.admission.refused_by_budget
    };
    assert_eq!(refused(Options::new()), 0);
    let (rated, life) = (ByteSize::mib(1000), Duration::from_secs(1000));
    for options in [
        Options::new().write_budget(WriteBudget::BytesPerSecond(1 << 20)),
        Options::new().write_budget(WriteBudget::DriveWritesPerDay(1.0)),
        Options::new().write_budget_for_life(rated, life),
    ] {
        let refused = refused(options.clone());
        assert!(refused > u64::from(ENTRIES), "{options:?}: {refused}");
    }
}

#[test]
fn short_and_short_lived_entries_stay_off_flash() {
    let load = |options: Options| {
        let load = Load::new(options);
        let a_minute = InsertOptions::new().ttl(Duration::from_secs(60));
        (0..ENTRIES).for_each(|number| load.cache.insert_with(key(number), VALUE, a_minute).unwrap());
        let stats = load.flash().tier.admission;
        (stats.admitted > 0, stats.refused_expires_soon > 0, stats.refused_too_small > 0)
    };
    assert_eq!(load(Options::new()), (true, false, false));
    // Half a second over a whole one is rounded up.
    assert_eq!(load(Options::new().min_ttl(Duration::from_millis(60_500))), (false, true, false));
    assert_eq!(load(Options::new().min_value(ByteSize::bytes(3001))), (false, false, true));
}

#[test]
fn idle_entries_are_written_before_memory_is_full() {
    let demoted = |options: Options| {
        let load = Load::new(options);
        load.insert(0..1000);
        (0..60).for_each(|step| load.cache.maintain(Duration::from_secs(step * 10)));
        load.flash().idle
    };
    assert_eq!(demoted(Options::new()), 0);
    assert!(demoted(Options::new().max_idle(Duration::from_secs(100))) > 500);
}

#[test]
fn promotion_decides_which_hits_return_to_memory() {
    let promoted = |promotion| {
        let load = Load::filled(Options::new().promotion(promotion));
        load.found(0..1000);
        let stats = load.flash();
        (stats.promoted > 0, stats.served > 0)
    };
    assert_eq!(promoted(FlashPromotion::Never), (false, true));
    assert!(promoted(FlashPromotion::Always).0);
}

/// How many of the oldest entries, which are read again and again, are left when flash was filled twice.
fn oldest_left(options: Options) -> usize {
    const OLDEST: u32 = 300;
    let load = Load::filled(options.promotion(FlashPromotion::Never));
    for round in 1..5 {
        load.found(0..OLDEST);
        load.insert(round * ENTRIES..(round + 1) * ENTRIES);
        load.cache.maintain(Duration::from_secs(u64::from(round) * 10));
    }
    load.found(0..OLDEST)
}

#[test]
fn reclaim_and_reinsertion_decide_what_leaves_flash() {
    let queue = Options::new().reclaim(Reclaim::Fifo).reinsertion(Reinsertion::Never);
    let recent = Options::new().reclaim(Reclaim::Lru).reinsertion(Reinsertion::Never);
    let again = Options::new().reclaim(Reclaim::Fifo).reinsertion(Reinsertion::Auto);
    let left = [queue, recent, again].map(oldest_left);
    assert!(left[0] < 30 && left[1] > 200 && left[2] > 100, "{left:?}");
}

#[test]
fn the_deletion_log_lies_where_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let load = Load::new(Options::new().deletion_log(&log));
    assert!(log.exists() && !load.folder.path().join("flash.removals").exists());
}

#[test]
fn options_without_a_meaning_are_refused_by_name() {
    let build = |options: Options| {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(6)).flash_options(options);
        match builder.flash(folder.path().join("flash"), ByteSize::mib(32)).build() {
            Err(Error::Configuration { option: "flash", reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let refusal = build(Options::new().admission(AdmissionPolicy::Probability(1.5)));
    assert!(refusal.contains("probability is 1.5"), "{refusal}");
    let refusal = build(Options::new().write_budget_for_life(ByteSize::bytes(0), Duration::ZERO));
    assert!(refusal.contains("budget is 0 bytes per second"), "{refusal}");
}
