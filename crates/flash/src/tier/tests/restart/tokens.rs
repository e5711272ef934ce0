//! CAS tokens that a stop keeps: a start has them after that stop alone, and each is of the object that it finds.

use super::*;
use crate::tier::PoolTokens;

impl World {
    /// A stop that keeps the version of each key as its token.
    fn stop_with_tokens(&mut self) {
        let tokens = self.current.iter().map(|(key, (version, _))| (*key, *version)).collect();
        self.tier.close_with_tokens(self.now, || vec![pool_tokens(tokens)]).unwrap();
    }

    fn take_tokens(&self) -> Vec<(u64, u64)> {
        self.tier.take_tokens().into_iter().flat_map(|pool| pool.tokens).collect()
    }
}

fn pool_tokens(tokens: Vec<(u64, u64)>) -> PoolTokens {
    PoolTokens { pool: 1, seed: 2, base: 3, limit: 4, tokens }
}

#[test]
fn tokens_are_taken_after_their_stop_alone() {
    let mut world = World::new(50);
    (0..500).for_each(|_| world.step());
    world.stop_with_tokens();
    world.start();
    let tokens = world.tier.take_tokens();
    assert!(tokens.len() == 1 && tokens[0].tokens.len() > 50, "{tokens:?}");
    assert_eq!(tokens[0], pool_tokens(tokens[0].tokens.clone()));
    assert!(world.tier.take_tokens().is_empty(), "they are taken once");
    // A kill, and a stop without tokens.
    world.start();
    assert!(world.is_warm() && world.tier.take_tokens().is_empty(), "{:?}", world.notices);
    world.tier.close(world.now).unwrap();
    world.start();
    assert!(world.is_warm() && world.tier.take_tokens().is_empty(), "{:?}", world.notices);
    // Flash that starts empty.
    world.stop_with_tokens();
    world.options.warm_restart = false;
    world.start();
    assert!(world.tier.take_tokens().is_empty());
}

#[test]
fn tokens_are_asked_for_after_the_last_insert() {
    let world = World::new(51);
    let tier = Arc::clone(&world.tier);
    let insert = |key: &[u8]| put_until(&tier, key, b"value", 0, world.now).is_some();
    assert!(insert(b"before"));
    let mut asked = 0;
    let tokens = || {
        assert!(!insert(b"after"), "a value that is newer than its token");
        asked += 1;
        Vec::new()
    };
    tier.close_with_tokens(world.now, tokens).unwrap();
    assert_eq!(asked, 1);
}

#[test]
fn a_cut_stop_keeps_no_foreign_token() {
    let (mut kept, seeds) = (0, seeds(40, 300));
    let enough = seeds.end * 50;
    for seed in seeds {
        println!("seed {seed}");
        let mut world = World::new(9000 + seed);
        for end in [End::Kill, End::Power, End::Kill] {
            (0..300).for_each(|_| world.step());
            world.device.sync().unwrap();
            // Half of the stops are cut.
            world.device.cut_at(world.device.writes() + 1 + world.random.uniform(40));
            let at_cut = world.files_at(|_, is_cut| is_cut);
            world.stop_with_tokens();
            // A key that changes after the stop is absent after the start, whatever its token.
            if end == End::Kill && !world.device.is_cut() {
                (0..KEYS).filter(|key| key % 7 == 0).for_each(|key| world.change(key));
            }
            at_cut.lock().unwrap().take().into_iter().for_each(|files| world.put_back(files));
            world.end(end, None);
            for (key, token) in world.take_tokens() {
                let Some(found) = get(&world.tier, &key.to_le_bytes(), world.now) else { continue };
                let version = u64::from_le_bytes(found.value()[8..16].try_into().unwrap());
                assert_eq!(version, token, "key {key}");
                kept += 1;
            }
            world.look_at_all();
            if !world.is_warm() {
                world.current.clear();
            }
        }
    }
    assert!(kept > enough, "{kept} tokens");
}
