//! The longest multi-region object that arrived lately: maintenance keeps its number of regions free for the next one.

/// The longest recent multi-region object. More objects of its length may arrive, while short ones in between take free
/// regions.
#[derive(Default)]
pub(super) struct LongestObject {
    /// Number of regions that hold its parts.
    regions: usize,
    /// The region sequence from which on it is no longer considered.
    until: u64,
}

impl LongestObject {
    /// Records an object that needs `regions` regions, or 0, and returns the number to keep free. An entry lasts for
    /// `turn` region sequences.
    pub fn noted(&mut self, regions: usize, next_sequence: u64, turn: u64) -> usize {
        if regions >= self.regions || next_sequence >= self.until {
            *self = Self { regions, until: next_sequence + turn };
        }
        self.regions
    }
}
