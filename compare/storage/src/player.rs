//! Plays requests against an engine, and counts.
//!
//! With several copies of the keys each request is played for one copy after the other. So requests for the same key
//! are as far apart as in a trace with all these keys. The order of the copies is another one for each request, so that
//! gets do not find in a row what was stored in a row.

use ebbtide_lab::keys::KeyBuffer;

use crate::engine::Engine;
use crate::requests::{Action, Request, Requests};

/// Requests between two questions for the end.
const RUN: usize = 64;
/// Steps from copy to copy, of which those are taken that no divisor of the number of copies has.
const STEPS: [u32; 8] = [61, 97, 127, 167, 211, 251, 293, 347];
const NUMBER_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: u64,
    pub gets: u64,
    pub misses: u64,
    /// Hits with a value that is not the key's.
    pub wrong: u64,
}

pub struct Player<E> {
    pub engine: E,
    pub counts: Counts,
    copies: u32,
    steps: Vec<u32>,
    /// Requests, each for all copies.
    turn: usize,
    key: KeyBuffer,
    value: Vec<u8>,
    copy: Vec<u8>,
}

impl<E: Engine> Player<E> {
    pub fn new(engine: E, copies: u32, largest_bytes: u64) -> Self {
        let value = vec![b'.'; largest_bytes as usize + NUMBER_BYTES];
        // They are prime numbers.
        let steps = STEPS.into_iter().filter(|step| !copies.is_multiple_of(*step)).collect();
        let (key, copy) = (KeyBuffer::default(), Vec::new());
        Self { engine, counts: Counts::default(), copies, steps, turn: 0, key, value, copy }
    }

    /// Plays requests until the end, or until `is_over`, which is asked after each run. Returns the first that was not
    /// played.
    pub fn play(&mut self, requests: &Requests, from: usize, mut is_over: impl FnMut() -> bool) -> usize {
        let (mut at, mut now) = (from, None);
        while at < requests.len() {
            let end = (at + RUN).min(requests.len());
            for request in requests.slice(at, end) {
                if now != Some(request.now) {
                    now = Some(request.now);
                    self.engine.advance(request.now);
                }
                self.for_all_copies(|player, copy| player.request(&request, copy));
            }
            at = end;
            if is_over() {
                break;
            }
        }
        at
    }

    #[inline(always)]
    fn for_all_copies(&mut self, mut play: impl FnMut(&mut Self, u32)) {
        self.turn += 1;
        let step = self.steps[self.turn % self.steps.len()];
        let mut copy = 0;
        for _ in 0..self.copies {
            play(self, copy);
            copy = (copy + step) % self.copies;
        }
    }

    /// Stores an object, and gets it as often as `gets` says.
    pub fn store(&mut self, object: &Request, gets: u32) {
        self.engine.advance(object.now);
        self.for_all_copies(|player, copy| {
            player.request(&Request { action: Action::Set, ..*object }, copy);
            (0..gets).for_each(|_| player.request(&Request { action: Action::Get, ..*object }, copy));
        });
    }

    #[inline(always)]
    fn request(&mut self, request: &Request, copy: u32) {
        self.counts.requests += 1;
        let number = u64::from(request.key) * u64::from(self.copies) + u64::from(copy);
        let key = self.key.write(number, request.key_bytes.into());
        match request.action {
            Action::Get => {
                self.counts.gets += 1;
                if self.engine.get(key, &mut self.copy) {
                    let checked = self.copy.len().min(NUMBER_BYTES);
                    self.counts.wrong += u64::from(self.copy[..checked] != number.to_le_bytes()[..checked]);
                    return;
                }
                self.counts.misses += 1;
            }
            Action::Set => {}
            Action::Delete => return self.engine.delete(key),
        }
        self.value[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        self.engine.set(key, &self.value[..request.value_bytes as usize], request.ttl);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::requests::of;

    #[derive(Default)]
    struct Map {
        now: u32,
        values: HashMap<Vec<u8>, Vec<u8>>,
        lies: bool,
    }

    impl Engine for Map {
        fn advance(&mut self, now: u32) {
            assert!(now >= self.now);
            self.now = now;
        }

        fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
            let found = if self.lies { self.values.values().next() } else { self.values.get(key) };
            found.inspect(|value| out.clone_from(value)).is_some()
        }

        fn set(&mut self, key: &[u8], value: &[u8], _ttl: u32) {
            self.values.insert(key.to_vec(), value.to_vec());
        }

        fn delete(&mut self, key: &[u8]) {
            self.values.remove(key);
        }
    }

    fn requests() -> Requests {
        let request = |(now, key, action)| Request { key, now, ttl: 0, action, key_bytes: 12, value_bytes: 20 };
        let actions = [(0, 1, Action::Set), (0, 1, Action::Get), (1, 2, Action::Get), (1, 1, Action::Delete)];
        of(&actions.into_iter().chain([(2, 1, Action::Get)]).map(request).collect::<Vec<_>>())
    }

    #[test]
    fn copies_multiply_all_counts() {
        for copies in [1, 3] {
            let mut player = Player::new(Map::default(), copies, 32);
            assert_eq!(player.play(&requests(), 0, || false), 5);
            let times = u64::from(copies);
            let expected = Counts { requests: 5 * times, gets: 3 * times, misses: 2 * times, wrong: 0 };
            assert_eq!((player.counts, player.engine.values.len()), (expected, 2 * copies as usize));
        }
    }

    #[test]
    fn a_replay_ends_when_it_is_over() {
        let mut player = Player::new(Map::default(), 1, 32);
        let long = of(&vec![requests().slice(0, 1).next().unwrap(); 3 * RUN]);
        assert_eq!(player.play(&long, 1, || true), 1 + RUN);
    }

    #[test]
    fn a_wrong_value_is_counted() {
        let mut player = Player::new(Map { lies: true, ..Map::default() }, 1, 32);
        player.play(&requests(), 0, || false);
        assert_eq!(player.counts.wrong, 1);
    }
}
