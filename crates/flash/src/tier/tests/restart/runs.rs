//! The run number: a flash and a log of removals that were not left by the same run, and kills between the writes of a
//! start.

use super::*;

impl World {
    /// Everything that is durable, as `cp` has it of a server that was stopped.
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

    /// Other keys take the place of all that flash has, then each key is another one: no removal is logged for what
    /// flash has no more.
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

/// With a stop behind it, and a copy of the flash and of the files beside it.
fn copied(seed: u64, has_fronts: bool) -> (World, Arc<FaultyDevice>, Files) {
    let mut world = World::started(seed, TierOptions { small_share: Some(0.5), ..options() }, has_fronts);
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
fn an_old_flash_beside_the_current_log_starts_empty() {
    for (stops, has_fronts) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut world, flash, _) = copied(40, has_fronts);
        world.quit(stops);
        world.device = flash;
        world.start();
        assert_eq!(world.look_at_all(), 0, "stopped: {stops}");
        assert!(world.is_cold_because("belongs to another run"), "stopped: {stops}, {:?}", world.notices);
    }
}

#[test]
fn an_old_log_beside_the_current_flash_starts_empty() {
    for (stops, has_fronts) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut world, _, files) = copied(41, has_fronts);
        world.quit(stops);
        let log = files.into_iter().filter(|(path, _)| *path == world.log()).collect::<Files>();
        log.into_iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        world.start();
        assert_eq!(world.look_at_all(), 0, "stopped: {stops}");
        assert!(world.is_cold_because("belongs to another run"), "stopped: {stops}, {:?}", world.notices);
    }
}

/// What docs/flash.md says: nothing in either tells that a later run was there.
#[test]
fn an_old_flash_with_its_own_log_is_not_told() {
    let (mut world, flash, files) = copied(42, false);
    world.quit(true);
    world.put_back(files);
    world.device = flash;
    world.start();
    assert!(world.is_warm(), "{:?}", world.notices);
}

#[test]
fn a_start_that_is_killed_after_any_write_is_warm_the_next_time() {
    for (stops, has_fronts) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut world = World::started(43, TierOptions { small_share: Some(0.5), ..options() }, has_fronts);
        (0..1500).for_each(|_| world.step());
        let mut writes = 0;
        for write in 1.. {
            world.quit(stops);
            let old = world.copy();
            world.device.cut_at(world.device.writes() + write);
            let at_cut = world.files_at(|_, is_cut| is_cut);
            // What it does after the cut did not happen.
            world.start();
            let Some(files) = at_cut.lock().unwrap().take() else { break };
            world.put_back(files);
            world.device = Arc::new(world.device.power_cut(write));
            world.start();
            assert!(world.is_warm(), "write {write}, stopped: {stops}, {:?}", world.notices);
            assert!(world.look_at_all() > 50);
            (0..200).for_each(|_| world.step());
            // Neither of the two runs before is accepted by now.
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
fn a_flash_of_another_version_starts_empty_and_says_so() {
    let mut world = World::new(44);
    (0..500).for_each(|_| world.step());
    world.tier.close(world.now).unwrap();
    // The version is the third word of four bytes.
    world.device.flip(8, 0);
    world.start();
    assert!(world.is_cold_because("it is of another version, 6"), "{:?}", world.notices);
    assert_eq!(world.look_at_all(), 0);
}
