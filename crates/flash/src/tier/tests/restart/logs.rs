//! Restarts with a deletion log that is intact, broken, overwritten, missing, or of another tier.

use super::*;
use crate::ScanContent;
use crate::deletion_log::StoreKind;
use crate::device::Direction;
use crate::large::part_hash;

#[test]
fn only_stops_are_accepted_without_a_log() {
    let mut world = World::new(5);
    (0..1000).for_each(|_| world.step());
    world.tier.close(world.now).unwrap();
    let kept = world.look_at_all();
    fs::remove_file(world.log()).unwrap();
    world.start();
    assert!(world.is_warm() && world.look_at_all() == kept);
    (0..300).for_each(|_| world.step());
    // The new log has no removal of the earlier run.
    world.end(End::Kill, None);
    assert!(world.is_warm());
    world.look_at_all();
    world.tier.close(world.now).unwrap();
    fs::write(world.log(), "Dear reader").unwrap();
    world.start();
    assert!(world.notices.iter().any(|notice| notice.contains("something else")), "{:?}", world.notices);
    // The process has overwritten the log, which may have had removals.
    assert!(world.is_cold_because("its deletion log is damaged, or of another time"), "{:?}", world.notices);
    (0..300).for_each(|_| world.step());
    world.end(End::Kill, None);
    assert!(world.is_cold_because("it was not stopped"), "{:?}", world.notices);
    assert_eq!(fs::read(world.log()).unwrap(), b"Dear reader");
}

#[test]
fn only_logs_broken_before_a_stop_are_accepted() {
    for (breaks_before, breaks_after) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new(5);
        let break_if =
            |world: &World, breaks: bool| breaks.then(|| world.tier.deletion_log.as_ref().unwrap().abandon());
        (0..1000).for_each(|_| world.step());
        break_if(&world, breaks_before);
        world.tier.close(world.now).unwrap();
        let kept = world.look_at_all();
        break_if(&world, breaks_after);
        if !breaks_before {
            (0..KEYS).for_each(|key| world.change(key));
        }
        world.end(End::Power, None);
        assert_eq!(world.is_cold_because("its deletion log is damaged"), breaks_after, "{:?}", world.notices);
        let found = world.look_at_all();
        // Some have expired.
        assert!(if breaks_before { found > kept / 2 } else { found == 0 }, "{found} of {kept}: {:?}", world.notices);
        world.step();
        world.end(End::Kill, None);
        assert!(world.is_warm(), "the next log is whole: {:?}", world.notices);
    }
}

#[test]
fn the_superblock_records_a_log_without_mark() {
    let mut world = World::new(5);
    (0..1000).for_each(|_| world.step());
    world.tier.deletion_log.as_ref().unwrap().break_without_mark();
    world.tier.maintain(world.now);
    (0..KEYS).for_each(|key| world.change(key));
    world.end(End::Kill, None);
    assert!(world.is_cold_because("it had no deletion log that has everything"), "{:?}", world.notices);
    assert_eq!(world.look_at_all(), 0);
}

#[test]
fn a_log_damaged_after_a_stop_is_refused() {
    type Spoil = fn(&Path, Vec<u8>);
    let spoils: [(&str, Spoil); 5] = [
        ("cut to nothing", |path, _| fs::write(path, []).unwrap()),
        ("without a head", |path, log| fs::write(path, [&[0; BLOCK], &log[BLOCK..]].concat()).unwrap()),
        ("without records", |path, log| {
            fs::write(path, [&log[..BLOCK], &vec![0; log.len() - BLOCK]].concat()).unwrap()
        }),
        ("with a wrong bit", |path, mut log| {
            log[2] ^= 1;
            fs::write(path, log).unwrap();
        }),
        ("under a folder", |path, _| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (what, spoil) in spoils {
        let mut world = World::new(5);
        (0..1000).for_each(|_| world.step());
        world.tier.close(world.now).unwrap();
        (0..KEYS).for_each(|key| world.change(key));
        let log = fs::read(world.log()).unwrap();
        spoil(&world.log(), log);
        world.start();
        assert!(world.is_cold_because("its deletion log is damaged"), "{what}: {:?}", world.notices);
        assert_eq!(world.look_at_all(), 0);
    }
}

#[test]
fn two_tiers_have_no_deletion_log_in_common() {
    let world = World::new(7);
    let other = Arc::new(FaultyDevice::new(CAPACITY, 1, Delivery::AtOnce));
    let start = || opening(&other, world.log(), &world.options, 1, false).start(10_000);
    assert!(matches!(start(), Err(Error::Refused { path, reason: OpenError::InUse }) if path == world.log()));
    world.release();
    assert!(start().is_ok());
}

#[test]
fn a_log_of_an_earlier_run_is_refused() {
    let mut world = World::new(6);
    let [first, other] = ["log", "other"].map(|name| world.folder.path().join(name));
    (0..1000).for_each(|_| world.step());
    world.tier.close(world.now).unwrap();
    let start = |world: &mut World, log: &PathBuf| {
        world.release();
        let opening = opening(&world.device, log.clone(), &world.options, world.boot, false);
        (world.tier, world.notices) = opening.start(world.now).unwrap();
    };
    start(&mut world, &other);
    assert!(world.is_warm() && world.look_at_all() > 50);
    (0..KEYS).step_by(2).for_each(|key| world.change(key));
    start(&mut world, &first);
    assert!(world.is_cold_because("its deletion log belongs to another run"), "{:?}", world.notices);
    assert_eq!(world.look_at_all(), 0);
}

#[test]
fn naming_the_log_recovers_a_wal_buffer() {
    let mut world = World::started(9, TierOptions { small_share: Some(0.5), ..options() }, true);
    (0..1000).for_each(|_| world.step());
    world.device.sync().unwrap();
    world.release();
    let mut named = opening(&world.device, world.log(), &world.options, world.boot, true);
    named.uses_wal_buffer = false;
    (world.tier, world.notices) = named.start(world.now).unwrap();
    assert!(world.is_warm() && world.look_at_all() > 50, "{:?}", world.notices);
    assert_eq!(world.logged().len(), 1, "its records go to the file");
}

/// Its first part would be found again; and as long as it could be, removals of all keys would be recorded.
#[test]
fn a_removed_incomplete_value_is_recorded_once() {
    let folder = tempfile::tempdir().unwrap();
    let device = Arc::new(FaultyDevice::new(CAPACITY, 1, Delivery::AtOnce));
    let start = |device: &Arc<FaultyDevice>| {
        let opening = opening(device, folder.path().join("log"), &options(), 1, false);
        opening.start(1).unwrap().0
    };
    let tier = start(&device);
    let (long, order) = (FlashHash::of(b"long"), tier.next_order(StoreKind::Large));
    put_until(&tier, b"long", &[1; 150_000], 0, 1).unwrap();
    put_until(&tier, b"long too", &[2; 150_000], 0, 1).unwrap();
    tier.large.seal_all(1);
    assert!(tier.large.remove(part_hash(long, order, 1)), "the part was found");
    assert!(get(&tier, b"long", 1).is_none() && !tier.hides_objects());
    assert_eq!(tier.stats().deletions_logged, 1);
    // Flash has never had these.
    (0..100_u32).for_each(|number| assert!(!tier.remove(FlashHash::of(&number.to_le_bytes()))));
    assert_eq!(tier.stats().deletions_logged, 1);
    drop(tier);
    let tier = start(&Arc::new(device.killed(2)));
    assert!(!tier.could_exist(long), "its first part");
    assert!(get(&tier, b"long too", 1).is_some());
    tier.verify();
}

/// A start reads what a walk could not, but finds none of it once maintenance has marked it.
#[test]
fn what_a_walk_gave_up_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let device = Arc::new(FaultyDevice::new(CAPACITY, 1, Delivery::AtOnce));
    let start = |device: &Arc<FaultyDevice>| {
        opening(device, folder.path().join("log"), &options(), 1, false).start(1).unwrap().0
    };
    let tier = start(&device);
    let key = |number: u32| number.to_le_bytes();
    for number in 0..600 {
        put_until(&tier, &key(number), &vec![7; if number % 30 == 0 { 5000 } else { 300 }], 0, 1);
        tier.maintain(1);
    }
    tier.large.seal_all(1);
    let found =
        |tier: &Arc<Tier>| -> Vec<u32> { (0..600).filter(|number| get(tier, &key(*number), 1).is_some()).collect() };
    let before = found(&tier);
    let broken = (0..CAPACITY as u64).step_by(32 << 10);
    broken.for_each(|at| device.break_range(Direction::Read, at..at + BLOCK as u64));
    let mut scan = tier.scan(ScanContent::Keys).giving_up_unread();
    while scan.advance(1, |_| ()) {}
    assert!(scan.is_complete() && tier.hides_objects());
    drop(scan);
    (0..100).for_each(|_| tier.maintain(1));
    assert!(!tier.hides_objects());
    let left = found(&tier);
    assert!(!left.is_empty() && left.len() < before.len(), "{} of {}", left.len(), before.len());
    drop(tier);
    let tier = start(&Arc::new(device.killed(2)));
    let after = found(&tier);
    assert!(!after.is_empty() && after.iter().all(|number| left.contains(number)), "{after:?} and {left:?}");
    tier.verify();
}
