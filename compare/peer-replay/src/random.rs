//! Random numbers, the same in every run, and sets to draw from.

/// SplitMix64.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not zero.
    pub fn uniform(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * bound as u128) >> 64) as usize
    }
}

/// A set of keys; one of them can be drawn at random.
#[derive(Debug)]
pub struct Sampled {
    keys: Vec<u32>,
    places: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Sampled {
    pub fn new(keys: usize) -> Self {
        Self { keys: Vec::new(), places: vec![ABSENT; keys] }
    }

    pub fn add(&mut self, key: u32) {
        if self.places[key as usize] == ABSENT {
            self.places[key as usize] = self.keys.len() as u32;
            self.keys.push(key);
        }
    }

    pub fn discard(&mut self, key: u32) {
        let place = self.places[key as usize];
        if place == ABSENT {
            return;
        }
        self.keys.swap_remove(place as usize);
        if let Some(&moved) = self.keys.get(place as usize) {
            self.places[moved as usize] = place;
        }
        self.places[key as usize] = ABSENT;
    }

    pub fn draw(&self, random: &mut Random) -> Option<u32> {
        (!self.keys.is_empty()).then(|| self.keys[random.uniform(self.keys.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_are_drawn() {
        let mut random = Random::new(1);
        let mut set = Sampled::new(10);
        assert_eq!(set.draw(&mut random), None);
        [3, 4, 5, 4].into_iter().for_each(|key| set.add(key));
        [3, 3, 9].into_iter().for_each(|key| set.discard(key));
        let mut drawn: Vec<u32> = (0..100).filter_map(|_| set.draw(&mut random)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [4, 5]);
    }
}
