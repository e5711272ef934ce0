//! Which objects are worth the share that may be written: those with the most reads per byte.
//!
//! ```text
//! bytes offered, by score         |   .  :  | :  .
//!                        little ->|..::::::#|###... <- much          the share is what lies right of the cut,
//!                                          cut                       and a part of the column at it, by chance
//! ```
//! Old offers fade, so that the cut follows what is offered.

const COLUMNS: usize = 128;
const PER_OCTAVE: f64 = 2.0;
/// The octave of the lowest column.
const LOWEST: f64 = -40.0;
/// What is left of older offers at each settling.
const FADE: f64 = 0.9;

pub(super) struct Threshold {
    offered: [f64; COLUMNS],
    column: usize,
    /// Of what is offered in that column.
    share: f64,
}

impl Threshold {
    /// That lets all pass.
    pub fn new() -> Self {
        Self { offered: [0.0; COLUMNS], column: 0, share: 1.0 }
    }

    /// With which chance an object passes.
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

    /// From now on so large a share of the bytes passes, if what is offered stays as it is.
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
    fn the_share_goes_to_the_most_reads_per_byte() {
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
