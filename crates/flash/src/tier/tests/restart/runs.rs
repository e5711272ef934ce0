//! The run number: a flash and a deletion log from different runs, and kills between the writes of a start.

use super::*;

impl World {
    /// All durable state, as `cp` would copy it from a stopped server.
    fn copy(&self) -> Arc<FaultyDevice> {
        self.device.sync().unwrap();
        Arc::new(self.device.power_cut(1))
    }

    /// The process ends, by a stop or a kill.
    fn quit(&mut self, stops: bool) {
        if stops {
            self.tier.close(self.now).unwrap();
        }
        self.release();
        self.device.sync().unwrap();
    }

    /// Other keys replace all objects on flash, then each key gets another version: no removal is logged for a key that
    /// flash no longer has.
    fn turn_over(&mut self) {
        for number in 0..6000 {
            self.demote(KEYS + number % (10 * KEYS));
            if number % 4 == 0 {
                self.tier.maintain(self.now);
            }
        }
        (0..KEYS).for_each(|key| self.change(key));
        (0..KEYS).for_each(|key| self.demote(key));
        self.tier.maintain(self.now);
    }
}

/// A world that was stopped, and a copy of the flash and of the files beside it.
fn copied(seed: u64, has_wal_buffers: bool) -> (World, Arc<FaultyDevice>, Files) {
    let mut world = World::started(seed, TierOptions { small_share: Some(0.5), ..options() }, has_wal_buffers);
    (0..KEYS).for_each(|key| world.demote(key));
    world.tier.maintain(world.now);
    world.tier.close(world.now).unwrap();
    let (flash, files) = (world.copy(), world.logged());
    world.start();
    assert!(world.is_warm(), "{:?}", world.notices);
    world.turn_over();
    (world, flash, files)
}

#[test]
fn old_flash_with_the_current_log_starts_empty() {
    for (stops, has_wal_buffers) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut world, flash, _) = copied(40, has_wal_buffers);
        world.quit(stops);
        world.device = flash;
        world.start();
        assert_eq!(world.look_at_all(), 0, "stopped: {stops}");
        assert!(world.is_cold_because("belongs to another run"), "stopped: {stops}, {:?}", world.notices);
    }
}

#[test]
fn an_old_log_with_current_flash_starts_empty() {
    for (stops, has_wal_buffers) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut world, _, files) = copied(41, has_wal_buffers);
        world.quit(stops);
        let log = files.into_iter().filter(|(path, _)| *path == world.log()).collect::<Files>();
        log.into_iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        world.start();
        assert_eq!(world.look_at_all(), 0, "stopped: {stops}");
        assert!(world.is_cold_because("belongs to another run"), "stopped: {stops}, {:?}", world.notices);
    }
}

/// The limit that docs/flash.md states: if both files are restored together, a later run cannot be detected.
#[test]
fn old_flash_with_its_log_goes_undetected() {
    let (mut world, flash, files) = copied(42, false);
    world.quit(true);
    world.put_back(files);
    world.device = flash;
    world.start();
    assert!(world.is_warm(), "{:?}", world.notices);
}

#[test]
fn a_killed_start_is_warm_the_next_time() {
    for (stops, has_wal_buffers) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut world = World::started(43, TierOptions { small_share: Some(0.5), ..options() }, has_wal_buffers);
        (0..1500).for_each(|_| world.step());
        let mut writes = 0;
        for write in 1.. {
            world.quit(stops);
            let old = world.copy();
            world.device.cut_at(world.device.writes() + write);
            let at_cut = world.files_at(|_, is_cut| is_cut);
            // Its writes after the cut are discarded.
            world.start();
            let Some(files) = at_cut.lock().unwrap().take() else { break };
            world.put_back(files);
            world.device = Arc::new(world.device.power_cut(write));
            world.start();
            assert!(world.is_warm(), "write {write}, stopped: {stops}, {:?}", world.notices);
            assert!(world.look_at_all() > 50);
            (0..200).for_each(|_| world.step());
            // By now neither of the two earlier runs is accepted.
            world.quit(false);
            let device = std::mem::replace(&mut world.device, old);
            let files = world.logged();
            world.start();
            assert!(world.is_cold_because("belongs to another run"), "write {write}: {:?}", world.notices);
            world.put_back(files);
            world.device = device;
            world.start();
            assert!(world.is_warm(), "write {write}: {:?}", world.notices);
            writes = write;
        }
        assert!(writes >= 1, "the superblock at least");
    }
}

#[test]
fn flash_of_another_version_starts_empty() {
    let mut world = World::new(44);
    (0..500).for_each(|_| world.step());
    world.tier.close(world.now).unwrap();
    // The version is the third word of four bytes.
    world.device.flip(8, 0);
    world.start();
    assert!(world.is_cold_because("it is of another version, 9"), "{:?}", world.notices);
    assert_eq!(world.look_at_all(), 0);
}
