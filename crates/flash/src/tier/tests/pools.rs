//! Pools: their isolation over flushes, removals, stops and kills; shares of flash.

use super::{stamped, tier_on};
use crate::device::{Delivery, Device, FaultyDevice, MemoryDevice};
use crate::pools::{FlashPool, NO_POOL};
use crate::{FlashHit, FlashLookup, Object, Tier, TierOptions};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["default", "a", "b"];
const NOW: u32 = 1000;
/// A time at which regions that were open at [`NOW`] have been written. The clock may go back from it to [`NOW`].
const LATER: u32 = NOW + 500;

fn put(tier: &Tier, pool: &FlashPool, key: u64, value: &[u8]) -> bool {
    let bytes = key.to_le_bytes();
    let object =
        Object { key: tier.key(pool, &bytes), value: &[value], client_flags: 0, is_annotated: false, expiry: 0 };
    tier.insert(&object, NOW).is_some()
}

fn get(tier: &Tier, pool: &FlashPool, key: u64) -> Option<FlashHit> {
    let (sender, receiver) = mpsc::channel();
    let bytes = key.to_le_bytes();
    match tier.lookup(tier.key(pool, &bytes), NOW, Box::new(move |found| sender.send(found).unwrap())) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv().unwrap(),
    }
}

/// Which of its values a pool has for a key: one is small, one large, one in several regions.
fn value(pool: usize, version: u64, key: u64) -> Vec<u8> {
    stamped(key << 8 | pool as u64, version, [100, 5000, 200_000][key as usize % 3])
}

/// A device and its deletion log, from one life to the next.
struct World {
    device: Arc<FaultyDevice>,
    folder: TempDir,
    life: u32,
}

impl World {
    fn new() -> Self {
        let device = Arc::new(FaultyDevice::new(16 << 20, 7, Delivery::AtOnce));
        Self { device, folder: tempfile::tempdir().unwrap(), life: 0 }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join(format!("removals{}", self.life))
    }

    fn options(&self) -> TierOptions {
        let deletion_log = Some(self.log());
        TierOptions { small_share: Some(0.5), seal_seconds: 100, deletion_log, ..TierOptions::default() }
    }

    fn start(&self) -> (Arc<Tier>, Vec<Arc<FlashPool>>, String) {
        let options = self.options();
        let opening = Tier::open_on(Arc::clone(&self.device) as Arc<dyn Device>, 1, &options).unwrap();
        let (tier, notices) = opening.start(NOW).unwrap();
        let pools = tier.open_pools(&NAMES).unwrap();
        (tier, pools, notices.join(", "))
    }

    /// A new process has the writes of the killed one.
    fn kill(&mut self) {
        let (before, device) = (self.log(), self.device.killed(self.life.into()));
        self.life += 1;
        std::fs::copy(before, self.log()).unwrap();
        self.device = Arc::new(device);
    }
}

fn found(tier: &Tier, pools: &[Arc<FlashPool>], pool: usize, version: u64) -> u64 {
    let is_found = |key: &u64| {
        let found = get(tier, &pools[pool], *key);
        found.inspect(|found| assert_eq!(found.value(), value(pool, version, *key), "pool {pool}, key {key}")).is_some()
    };
    (0..12).filter(is_found).count() as u64
}

fn fill(tier: &Tier, pools: &[Arc<FlashPool>], pool: usize, version: u64) {
    (0..12).for_each(|key| assert!(put(tier, &pools[pool], key, &value(pool, version, key))));
}

/// How many of these objects a pool has.
fn hits(tier: &Tier, pool: &FlashPool, keys: std::ops::Range<u64>) -> usize {
    keys.filter(|&key| get(tier, pool, key).is_some()).count()
}

#[test]
fn pools_keep_their_objects_over_stops_and_kills() {
    let mut world = World::new();
    let (tier, pools, _) = world.start();
    (0..3).for_each(|pool| fill(&tier, &pools, pool, 1));
    assert!((0..3).all(|pool| found(&tier, &pools, pool, 1) == 12), "equal keys are apart");
    tier.settle(LATER);
    tier.settle(LATER);
    world.kill();
    drop(tier);
    let (tier, pools, notices) = world.start();
    assert!(notices.contains("warm after a crash"), "{notices}");
    assert!((0..3).all(|pool| found(&tier, &pools, pool, 1) >= 8), "what was written is there");
    let before: Vec<u64> = pools.iter().map(|pool| pool.bytes()).collect();
    tier.close(LATER).unwrap();
    world.kill();
    drop(tier);
    let (tier, pools, notices) = world.start();
    assert!(notices.contains("warm after a stop"), "{notices}");
    assert!((0..3).all(|pool| found(&tier, &pools, pool, 1) >= 8));
    assert_eq!(pools.iter().map(|pool| pool.bytes()).collect::<Vec<_>>(), before, "occupancy");
    tier.verify();
}

#[test]
fn flushes_of_one_pool_survive_a_kill() {
    for (is_written, removes) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new();
        let (tier, pools, _) = world.start();
        (0..3).for_each(|pool| fill(&tier, &pools, pool, 1));
        tier.settle(LATER);
        tier.settle(LATER);
        let pools = if removes {
            tier.remove_pool(&pools[1]);
            assert_eq!((found(&tier, &pools, 1, 1), put(&tier, &pools[1], 0, b"late")), (0, false));
            vec![Arc::clone(&pools[0]), tier.open_pool("a"), Arc::clone(&pools[2])]
        } else {
            tier.flush_pool(&pools[1]);
            pools
        };
        assert_eq!(found(&tier, &pools, 1, 2), 0, "nothing of the old incarnation");
        assert_eq!(found(&tier, &pools, 2, 1), 12);
        if is_written {
            fill(&tier, &pools, 1, 2);
            tier.settle(LATER + 100);
            tier.settle(LATER + 100);
        }
        world.kill();
        drop(tier);
        let (tier, pools, notices) = world.start();
        assert!(notices.contains("warm after a crash"), "{notices}");
        let again = found(&tier, &pools, 1, 2);
        assert!(if is_written { again >= 8 } else { again == 0 }, "{again}");
        assert!(found(&tier, &pools, 2, 1) >= 8 && found(&tier, &pools, 0, 1) >= 8);
        tier.verify();
    }
}

#[test]
fn a_start_without_a_pool_drops_its_objects() {
    let mut world = World::new();
    let (tier, pools, _) = world.start();
    (0..3).for_each(|pool| fill(&tier, &pools, pool, 1));
    tier.close(LATER).unwrap();
    world.kill();
    drop(tier);
    let opening = Tier::open_on(Arc::clone(&world.device) as Arc<dyn Device>, 1, &world.options()).unwrap();
    let (tier, _) = opening.start(NOW).unwrap();
    let number = pools[1].number();
    assert!(tier.pools.live.is_live(number), "until the pools are named");
    tier.open_pools(&["default", "b"]).unwrap();
    // No scan visits its objects, and no reclaim reinserts one.
    assert!(!tier.pools.live.is_live(number));
    world.kill();
    drop(tier);
    let (tier, pools, _) = world.start();
    let counts: Vec<u64> = (0..3).map(|pool| found(&tier, &pools, pool, 1)).collect();
    assert_eq!((counts[0], counts[1], counts[2]), (12, 0, 12));
}

#[test]
fn numbers_are_drawn_once_also_over_kills() {
    let mut world = World::new();
    let mut drawn = HashSet::from([0]);
    for life in 0..3 {
        let (tier, pools, _) = world.start();
        drawn.extend([pools[1].number(), pools[2].number()]);
        for _ in 0..400 {
            tier.flush_pool(&pools[1]);
            if pools[1].number() == NO_POOL {
                assert!(!put(&tier, &pools[1], 1, b"value"), "without a number nothing is written");
                tier.settle(NOW);
            }
            assert!(drawn.insert(pools[1].number()), "{} twice, life {life}", pools[1].number());
        }
        assert_eq!(pools[0].number(), 0);
        world.kill();
    }
}

#[test]
fn pools_above_their_share_displace_own_objects() {
    for bytes in [200, 6000] {
        let tier = tier_on(Arc::new(MemoryDevice::new(16 << 20)));
        let pools = tier.open_pools(&NAMES).unwrap();
        let (quiet, loud) = (&pools[1], &pools[2]);
        let keys = (2 << 20) / bytes;
        let flood = |from: u64, count: u64| {
            for key in from..from + count {
                put(&tier, loud, key, &stamped(key, 1, bytes));
                if key.is_multiple_of(16) {
                    tier.settle(NOW);
                }
            }
        };
        (0..keys).for_each(|key| {
            put(&tier, quiet, key, &stamped(key, 1, bytes));
            tier.settle(NOW);
        });
        quiet.set_share_bytes(5 << 20);
        loud.set_share_bytes(2 << 20);
        let before = hits(&tier, quiet, 0..keys);
        assert!(before as u64 > keys / 2, "{before} of {keys}");
        flood(0, 20 * keys);
        let after = hits(&tier, quiet, 0..keys);
        assert!(after * 50 >= before * 49, "{after} of {before} objects of {bytes} bytes are left");
        assert!(tier.pool_stats(loud).refused_by_share > 0, "{:?}", tier.pool_stats(loud));
        let newest = hits(&tier, loud, 19 * keys..20 * keys);
        assert!(newest > 0, "what it has turns over: {:?}", tier.pool_stats(loud));
        tier.verify();
    }
}

#[test]
fn pools_above_their_share_turn_over() {
    let tier = tier_on(Arc::new(MemoryDevice::new(16 << 20)));
    let pools = tier.open_pools(&NAMES).unwrap();
    let put = |pool: usize, key: u64| {
        let is_taken = put(&tier, &pools[pool], key, &stamped(key, 1, 6000));
        tier.settle(NOW);
        is_taken
    };
    (0..1800).for_each(|key| _ = put(key as usize % 3, key / 3));
    assert!((0..3).all(|pool| hits(&tier, &pools[pool], 0..600) > 300), "all regions have objects of all pools");
    for (pool, mebibytes) in pools.iter().zip([7, 7, 2]) {
        pool.set_share_bytes(mebibytes << 20);
    }
    let idle = || hits(&tier, &pools[0], 0..600) + hits(&tier, &pools[1], 0..600);
    let before = idle();
    let taken = (600..3600).filter(|&key| put(2, key)).count();
    assert!(taken > 300, "{taken} of 3000 objects were taken: {:?}", tier.pool_stats(&pools[2]));
    assert!(hits(&tier, &pools[2], 3000..3600) > 0, "the newest are there");
    let after = idle();
    assert!(after * 50 >= before * 49, "{after} of {before} objects of idle pools are left");
    tier.verify();
}

/// Its bytes grow between two comparisons with its share.
#[test]
fn full_flash_refuses_no_pool_alone() {
    let tier = tier_on(Arc::new(MemoryDevice::new(16 << 20)));
    let pools = tier.open_pools(&NAMES).unwrap();
    pools[0].set_share_bytes(1 << 20);
    let put = |key: u64| put(&tier, &pools[0], key, &stamped(key, 1, 6000));
    for key in 0..2000 {
        assert!(put(key), "{:?}", tier.pool_stats(&pools[0]));
        tier.settle(NOW);
    }
    assert!(hits(&tier, &pools[0], 0..2000) < 1900, "flash is full");
    assert!((2000..2010).all(put), "{:?}", tier.pool_stats(&pools[0]));
    tier.verify();
}

#[test]
fn flash_of_a_removed_pool_is_reused() {
    let tier = tier_on(Arc::new(MemoryDevice::new(16 << 20)));
    let pools = tier.open_pools(&NAMES).unwrap();
    let (quiet, removed, loud) = (&pools[0], &pools[1], &pools[2]);
    let put = |pool: &FlashPool, key: u64| {
        let is_taken = put(&tier, pool, key, &stamped(key, 1, 6000));
        tier.settle(NOW);
        is_taken
    };
    (0..200).for_each(|key| assert!(put(quiet, key)));
    (0..250).for_each(|key| assert!(put(loud, key)));
    (0..700).for_each(|key| _ = put(removed, key));
    let before = hits(&tier, quiet, 0..200);
    assert!(before > 190 && hits(&tier, loud, 0..250) > 240, "{before}");
    tier.remove_pool(removed);
    pools.iter().for_each(|pool| pool.set_share_bytes(4 << 20));
    (1000..4000).for_each(|key| _ = put(loud, key));
    let has = hits(&tier, loud, 1000..4000);
    assert!(has > 700, "{has} objects: {:?}", tier.pool_stats(loud));
    let after = hits(&tier, quiet, 0..200);
    assert!(after * 50 >= before * 49, "{after} of {before} objects of the other pool are left");
    tier.verify();
}

/// Twelve pools have a twelfth of each region.
#[test]
fn a_pool_with_little_of_regions_turns_over() {
    let tier = tier_on(Arc::new(MemoryDevice::new(16 << 20)));
    let names: Vec<String> = (0..12).map(|number| format!("pool{number}")).collect();
    let pools = tier.open_pools(&names.iter().map(|name| &**name).collect::<Vec<_>>()).unwrap();
    let put = |pool: usize, key: u64| {
        let is_taken = put(&tier, &pools[pool], key, &stamped(key, 1, 2100));
        tier.settle(NOW);
        is_taken
    };
    (0..4800).for_each(|key| _ = put(key as usize % 12, key / 12));
    for (number, pool) in pools.iter().enumerate() {
        pool.set_share_bytes(if number == 11 { 350 << 10 } else { 700 << 10 });
    }
    let idle = || (0..11).map(|pool| hits(&tier, &pools[pool], 0..400)).sum::<usize>();
    let before = idle();
    assert!(before > 2500, "{before}");
    let written = || tier.stats().written.large_again;
    let (refused_before, again_before) = (tier.pool_stats(&pools[11]).refused_by_share, written());
    let taken = (400..20_400).filter(|&key| put(11, key)).count();
    let stats = tier.pool_stats(&pools[11]);
    assert!(taken > 200, "{taken} of 20000 objects were taken: {stats:?}");
    let after = idle();
    assert!(after * 50 >= before * 49, "{after} of {before} objects of idle pools are left");
    let (refused, again) = ((stats.refused_by_share - refused_before) * 2100, written() - again_before);
    assert!(again < refused, "{again} bytes of others were written again for {refused} refused ones");
    tier.verify();
}

#[test]
fn small_objects_above_share_leave_large_ones_space() {
    let tier = tier_on(Arc::new(MemoryDevice::new(16 << 20)));
    let pools = tier.open_pools(&NAMES).unwrap();
    for (pool, mebibytes) in pools.iter().zip([6, 6, 4]) {
        pool.set_share_bytes(mebibytes << 20);
    }
    (0..40_000).for_each(|key| {
        put(&tier, &pools[2], key, &stamped(key, 1, 200));
        if key % 16 == 0 {
            tier.settle(NOW);
        }
    });
    (0..3000).for_each(|key| {
        put(&tier, &pools[1], key, &stamped(key, 1, 6000));
        tier.settle(NOW);
    });
    assert!(pools[2].bytes() > 4 << 20, "{:?}", tier.pool_stats(&pools[2]));
    (50_000..52_000).for_each(|key| {
        put(&tier, &pools[2], key, &stamped(key, 1, 6000));
        tier.settle(NOW);
    });
    let (has, large) = (hits(&tier, &pools[2], 50_000..52_000), hits(&tier, &pools[1], 0..3000));
    assert!(5 * has > large, "{has} large objects beside {large} of a pool with one and a half times the share");
    tier.verify();
}

#[test]
fn a_damaged_pool_table_is_a_cold_start() {
    let mut world = World::new();
    let (tier, pools, _) = world.start();
    fill(&tier, &pools, 1, 1);
    tier.close(LATER).unwrap();
    world.kill();
    drop(tier);
    let end = world.device.capacity();
    let zeros = crate::device::Buffer::zeroed(crate::tier::pool_table::BYTES as usize);
    crate::device::write(&*world.device, end - crate::tier::pool_table::BYTES, zeros).unwrap();
    let (_, _, notices) = world.start();
    assert!(notices.contains("flash starts empty: its table of pools is damaged"), "{notices}");
}
