//! Which objects are written within the budget's share: those with the most reads per byte.
//!
//! ```text
//! bytes offered, by score         |   .  :  | :  .
//!                        little ->|..::::::#|###... <- much          the share is what lies right of the cut,
//!                                          cut                       and a part of the column at it, by chance
//! ```
//! Old offers decay, so that the cut follows the current ones.

const COLUMNS: usize = 128;
const PER_OCTAVE: f64 = 2.0;
/// The octave of the lowest column.
const LOWEST: f64 = -40.0;
/// Weight of older offers that remains after each adjustment.
const FADE: f64 = 0.9;

pub(super) struct Threshold {
    offered: [f64; COLUMNS],
    column: usize,
    /// Share of the offers in that column that passes.
    share: f64,
}

impl Threshold {
    /// A threshold that all objects pass.
    pub fn new() -> Self {
        Self { offered: [0.0; COLUMNS], column: 0, share: 1.0 }
    }

    /// The probability with which an object passes.
    pub fn offer(&mut self, reads: f64, bytes: usize) -> f64 {
        let octave = (reads / bytes.max(1) as f64).log2() - LOWEST;
        let column = ((octave * PER_OCTAVE).max(0.0) as usize).min(COLUMNS - 1);
        self.offered[column] += bytes as f64;
        match column.cmp(&self.column) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => self.share,
            std::cmp::Ordering::Greater => 1.0,
        }
    }

    /// Sets the cut so that this share of the bytes passes, if offers stay as they are.
    pub fn adjust(&mut self, share: f64) {
        let mut left = share * self.offered.iter().sum::<f64>();
        (self.column, self.share) = (0, 1.0);
        for column in (0..COLUMNS).rev() {
            if self.offered[column] > left {
                (self.column, self.share) = (column, left / self.offered[column]);
                break;
            }
            left -= self.offered[column];
        }
        self.offered.iter_mut().for_each(|bytes| *bytes *= FADE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_admits_most_reads_per_byte_first() {
        let mut threshold = Threshold::new();
        assert_eq!(threshold.offer(0.0, 100), 1.0, "at first all pass");
        let mut threshold = Threshold::new();
        let offer = |threshold: &mut Threshold| {
            [(8.0, 100), (8.0, 800), (0.1, 100)].map(|(reads, bytes)| threshold.offer(reads, bytes))
        };
        offer(&mut threshold);
        threshold.adjust(0.1);
        assert_eq!(offer(&mut threshold), [1.0, 0.0, 0.0]);
        threshold.adjust(0.5);
        assert_eq!(offer(&mut threshold), [1.0, 0.5, 0.0]);
        threshold.adjust(1.0);
        assert_eq!(offer(&mut threshold), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn the_cut_follows_what_is_offered() {
        let mut threshold = Threshold::new();
        (0..1000).for_each(|_| _ = threshold.offer(1.0, 100));
        threshold.adjust(0.5);
        for _ in 0..100 {
            (0..1000).for_each(|_| _ = threshold.offer(8.0, 100));
            threshold.adjust(0.5);
        }
        assert!((threshold.offer(8.0, 100) - 0.5).abs() < 0.01);
        assert_eq!(threshold.offer(1.0, 100), 0.0);
    }
}
