//! Gets by stack distance, in bins whose width is a fixed part of the distance.

/// Bins for each doubling: a bin is 0.27 % wide.
const BINS_PER_OCTAVE: usize = 256;
/// Number of groups into which keys are divided; their differences show the error of a sample.
pub(crate) const GROUPS: usize = 16;

/// Weighted counts of hits by the memory that they take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    bins: Vec<Bin>,
    /// The sampled bytes of each bin by groups of keys; empty if their error is not needed.
    bytes_of_group: Vec<[f64; GROUPS]>,
    has_bytes_of_group: bool,
}

#[derive(Clone, Debug, Default)]
struct Bin {
    /// The longest distance in it.
    longest: f64,
    exact: f64,
    exact_bytes: f64,
    sampled: f64,
    sampled_bytes: f64,
    /// The sampled hits of each group of keys.
    of_group: [f32; GROUPS],
}

/// Hits up to some memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Hits {
    pub(crate) exact: f64,
    pub(crate) exact_bytes: f64,
    pub(crate) sampled: f64,
    pub(crate) sampled_bytes: f64,
    pub(crate) of_group: [f64; GROUPS],
    pub(crate) bytes_of_group: [f64; GROUPS],
}

impl Histogram {
    /// An empty one. Bytes by groups take 128 bytes more for each bin.
    pub(crate) fn new(has_bytes_of_group: bool) -> Self {
        Self { has_bytes_of_group, ..Self::default() }
    }

    /// Adds a hit that was counted exactly, without a sample.
    pub(crate) fn add_exact(&mut self, distance: f64, bytes: f64) {
        let bin = self.bin(distance);
        bin.exact += 1.0;
        bin.exact_bytes += bytes;
    }

    /// Adds a sampled hit of a key in this group, which represents `weight` hits.
    pub(crate) fn add_sampled(&mut self, distance: f64, weight: f64, bytes: f64, group: usize) {
        let bin = self.bin(distance);
        bin.sampled += weight;
        bin.sampled_bytes += weight * bytes;
        bin.of_group[group] += weight as f32;
        if self.has_bytes_of_group {
            self.bytes_of_group.resize(self.bins.len(), [0.0; GROUPS]);
            self.bytes_of_group[bin_of(distance)][group] += weight * bytes;
        }
    }

    fn bin(&mut self, distance: f64) -> &mut Bin {
        let at = bin_of(distance);
        if at >= self.bins.len() {
            self.bins.resize(at + 1, Bin::default());
        }
        let bin = &mut self.bins[at];
        bin.longest = bin.longest.max(distance);
        bin
    }

    /// The hits of caches of these sizes, which must ascend. A bin counts from its longest distance on.
    pub(crate) fn hits_at(&self, sizes: impl IntoIterator<Item = f64>) -> Vec<Hits> {
        let mut hits = Hits::default();
        let mut bins = self.bins.iter().enumerate().peekable();
        let mut found = Vec::new();
        for size in sizes {
            while let Some((at, bin)) = bins.next_if(|(_, bin)| bin.longest <= size) {
                hits.exact += bin.exact;
                hits.exact_bytes += bin.exact_bytes;
                hits.sampled += bin.sampled;
                hits.sampled_bytes += bin.sampled_bytes;
                hits.of_group.iter_mut().zip(bin.of_group).for_each(|(sum, of)| *sum += f64::from(of));
                let bytes = self.bytes_of_group.get(at).into_iter().flatten();
                hits.bytes_of_group.iter_mut().zip(bytes).for_each(|(sum, of)| *sum += of);
            }
            found.push(hits);
        }
        found
    }

    /// Multiplies all counts by `factor`.
    pub(crate) fn age(&mut self, factor: f64) {
        for bin in &mut self.bins {
            let sums = [&mut bin.exact, &mut bin.exact_bytes, &mut bin.sampled, &mut bin.sampled_bytes];
            sums.into_iter().for_each(|sum| *sum *= factor);
            bin.of_group.iter_mut().for_each(|hits| *hits *= factor as f32);
        }
        self.bytes_of_group.iter_mut().flatten().for_each(|bytes| *bytes *= factor);
    }
}

fn bin_of(distance: f64) -> usize {
    (distance.max(1.0).log2() * BINS_PER_OCTAVE as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_add_up_to_each_size() {
        let mut histogram = Histogram::new(true);
        for distance in [1.0, 2.0, 1024.0, 5000.0] {
            histogram.add_sampled(distance, 2.0, 10.0, 1);
        }
        histogram.add_exact(2.0, 30.0);
        let hits = histogram.hits_at([0.5, 1.0, 2.0, 1023.0, 1024.0, 4900.0, 5020.0]);
        assert_eq!(hits.iter().map(|hits| hits.sampled).collect::<Vec<_>>(), [0.0, 2.0, 4.0, 4.0, 6.0, 6.0, 8.0]);
        assert_eq!((hits[6].sampled_bytes, hits[6].of_group[1], hits[6].of_group[0]), (80.0, 8.0, 0.0));
        assert_eq!((hits[1].exact, hits[2].exact, hits[2].exact_bytes), (0.0, 1.0, 30.0));
        assert_eq!([0, 1].map(|group| hits[2].bytes_of_group[group]), [0.0, 40.0]);
        histogram.age(0.5);
        let aged = histogram.hits_at([1e9])[0];
        assert_eq!((aged.sampled, aged.exact, aged.of_group[1], aged.bytes_of_group[1]), (4.0, 0.5, 4.0, 40.0));
    }
}
