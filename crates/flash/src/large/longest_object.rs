//! The longest object of several regions that arrived lately: as many regions are kept free for the next one.

/// The longest object of several regions that came: of its like others may come, while the short ones in between take
/// what is free.
#[derive(Default)]
pub(super) struct LongestObject {
    /// That it has a part in.
    regions: usize,
    /// The sequence of regions with which it is forgotten.
    until: u64,
}

impl LongestObject {
    /// The regions that it needs, for a turn of a log of so many, after one that needs `regions` came, or none.
    pub fn noted(&mut self, regions: usize, next_sequence: u64, turn: u64) -> usize {
        if regions >= self.regions || next_sequence >= self.until {
            *self = Self { regions, until: next_sequence + turn };
        }
        self.regions
    }
}
