//! Gets and hits of the keys of the largest objects.
//!
//! The sketch of hot keys holds only frequent keys. A large object matters even if it is read once a minute, so its key
//! is counted separately. The admin thread sets the keys after each census; the workers add the sampled gets.

use std::collections::HashMap;

/// Gets and hits of one key.
pub type GetHits = [f64; 2];

/// The named keys of one worker.
#[derive(Debug, Default)]
pub struct WatchedKeys(HashMap<Box<[u8]>, GetHits>);

impl WatchedKeys {
    /// Names the keys. Those that were named before keep their counts.
    pub fn watch<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        let before = std::mem::take(&mut self.0);
        self.0 = keys.map(|key| (key.into(), before.get(key).copied().unwrap_or_default())).collect();
    }

    /// Counts a get that represents `weight` gets, if its key is watched.
    pub fn add(&mut self, key: &[u8], weight: f64, is_hit: bool) {
        if let Some([gets, hits]) = self.0.get_mut(key) {
            *gets += weight;
            *hits += if is_hit { weight } else { 0.0 };
        }
    }

    /// Multiplies all counts by `factor`.
    pub fn decay(&mut self, factor: f64) {
        self.0.values_mut().flatten().for_each(|count| *count *= factor);
    }

    pub fn get(&self, key: &[u8]) -> GetHits {
        self.0.get(key).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_keys_are_counted_and_keep_their_counts() {
        let mut watched = WatchedKeys::default();
        watched.add(b"a", 1.0, true);
        watched.watch([&b"a"[..], b"b"].into_iter());
        assert_eq!(watched.get(b"a"), [0.0, 0.0], "it was not named then");
        watched.add(b"a", 4.0, true);
        watched.add(b"a", 2.0, false);
        watched.add(b"b", 1.0, true);
        watched.watch([&b"c"[..], b"a"].into_iter());
        assert_eq!((watched.get(b"a"), watched.get(b"b")), ([6.0, 4.0], [0.0, 0.0]));
        watched.decay(0.5);
        assert_eq!(watched.get(b"a"), [3.0, 2.0]);
    }
}
