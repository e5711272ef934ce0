//! Hyperbolic caching (Blankstein, Sen, Freedman, ATC'17): an item's rank is its uses divided by its time in the cache
//! and by its size. Time is counted in requests.

use crate::memory::{Field, Item, OWN_FIELDS};
use crate::sampled::Ranking;
use crate::space::Space;

/// Requests before it was stored.
const STORED: Field<u32> = Field::at(OWN_FIELDS);
const USES: Field<u16> = Field::at(OWN_FIELDS + 4);

#[derive(Debug, Default)]
pub struct Hyperbolic;

impl Ranking for Hyperbolic {
    const DRAWS: usize = 64;

    /// The request that stores it is its first use.
    fn stored(&mut self, space: &mut Space, item: Item, requests: u32) {
        space.slabs.memory.put(item, STORED, requests.wrapping_sub(1));
        space.slabs.memory.put(item, USES, 1);
    }

    #[inline]
    fn used(&mut self, space: &mut Space, item: Item, _requests: u32) {
        let uses = space.slabs.memory.get(item, USES);
        space.slabs.memory.put(item, USES, uses.saturating_add(1));
    }

    #[inline]
    fn rank(&self, space: &Space, item: Item, bytes: usize, requests: u32) -> f64 {
        let memory = &space.slabs.memory;
        let age = requests.wrapping_sub(memory.get(item, STORED)).max(1);
        f64::from(memory.get(item, USES)) / (f64::from(age) * bytes as f64)
    }
}
