//! The process ends, or the device fails, while the boundary is set.

use super::*;
use crate::device::{Buffer, Faults, read};
use crate::tier::superblock::Superblock;

impl World {
    fn put(&mut self, key: u64, bytes: u64) {
        self.change(key);
        self.versions += 1;
        let value = stamped(key, self.versions, bytes);
        assert!(put_until(&self.tier, &key.to_le_bytes(), &value, 0, self.now).is_some());
        self.current.insert(key, (self.versions, 0));
    }

    /// Number of keys that are found.
    fn found(&self) -> usize {
        (0..KEYS).filter(|key| get(&self.tier, &key.to_le_bytes(), self.now).is_some()).count()
    }

    /// Whether the superblock on the device has a boundary.
    fn has_boundary(&self) -> bool {
        let block = read(&*self.device, 0, Buffer::zeroed(BLOCK)).unwrap();
        Superblock::decode(&block).unwrap().shape.segment_bytes != 0
    }
}

fn unsplit() -> TierOptions {
    TierOptions { small_share: None, ..options() }
}

/// A world whose device has a superblock with a boundary although it reported an error for that write.
fn in_doubt() -> World {
    let mut world = World::with(3, unsplit());
    for _ in 0..20_000 {
        let key = world.random.uniform(KEYS);
        world.put(key, 300 + 5000 * (key % 2));
        world.device.set(Faults { sync_errors: 1, write_errors: 2, ..Faults::default() });
        world.tier.update_split();
        world.device.set(Faults::default());
        if world.has_boundary() {
            assert!(!world.tier.small.is_there());
            return world;
        }
        world.tier.update_split();
    }
    panic!("no superblock with a boundary was written");
}

#[test]
fn removals_below_a_doubtful_boundary_hold() {
    let mut world = in_doubt();
    for key in (0..KEYS).cycle().take(4 * KEYS as usize) {
        // Without the maintenance that sets the boundary.
        world.put(key, 5000);
        world.tier.large.maintain(world.now);
    }
    world.end(End::Kill, None);
    assert!(world.is_warm() && world.tier.small.is_there(), "{:?}", world.notices);
    (0..KEYS).for_each(|key| world.change(key));
    world.end(End::Kill, None);
    assert!(world.is_warm(), "{:?}", world.notices);
    assert_eq!(world.found(), 0, "they were removed");
}

#[test]
fn a_doubtful_boundary_ends_when_writes_succeed() {
    let world = in_doubt();
    let bytes = world.tier.large.unused_bytes();
    world.tier.update_split();
    assert!(!world.has_boundary() && !world.tier.small.is_there());
    assert!(world.tier.large.unused_bytes() > bytes, "all is for large objects again");
    world.tier.verify();
}

#[test]
fn a_kill_while_dropping_small_objects_keeps_large() {
    let mut world = World::with(20, TierOptions { scan_bytes: 1 << 20, ..options() });
    (0..2000).for_each(|_| world.step());
    world.end(End::Kill, None);
    // The superblock was written, but not the log.
    let files = world.files_at(|offset, _| offset == 0);
    world.start();
    assert!(world.notices.iter().any(|notice| notice.contains("would have to be read")), "{:?}", world.notices);
    let large = world.tier.stats().large.objects;
    world.put_back(files.lock().unwrap().take().unwrap());
    world.start();
    assert!(world.is_warm(), "{:?}", world.notices);
    assert!(world.notices.iter().any(|notice| notice.contains("what was removed is not known")), "{:?}", world.notices);
    assert!(large > 10 && world.tier.stats().large.objects == large);
    world.look_at_all();
    world.tier.verify();
}
