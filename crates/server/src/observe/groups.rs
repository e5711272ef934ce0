//! Counts by key prefix in bounded memory: which keys use the memory, and which are removed.
//!
//! A prefix is a key up to and with its first delimiter, `user:` of `user:17`. A sketch holds a fixed number of
//! prefixes. A new prefix replaces the smallest one, whose counts move to `others`: the sums over all prefixes stay
//! exact, and a prefix with more than a few hundredths of the whole is in the sketch.

use std::collections::HashMap;

/// Prefixes of a sketch: 20 are shown, and the rest keeps rare ones from pushing each other out.
const CAPACITY: usize = 256;
/// Maximum bytes of a prefix. A key with a later delimiter is text rather than a name with parts.
const MAX_PREFIX_BYTES: usize = 64;
/// Groups that weigh less are forgotten, which changes no share that is shown.
const MIN_WEIGHT: f64 = 1.0 / 1024.0;

/// Size classes are octaves; class `n` holds 2^n to 2^(n+1) - 1 bytes.
pub const CLASSES: usize = 40;

/// The size class of an object of `bytes` bytes.
pub fn size_class(bytes: u64) -> u8 {
    (bytes.max(1).ilog2() as u8).min(CLASSES as u8 - 1)
}

/// The least and the most bytes of a class.
pub fn size_range(class: u8) -> (u64, u64) {
    (1 << class, (2 << class) - 1)
}

/// The prefix of a key; empty without one.
pub fn prefix_of(key: &[u8], delimiter: u8) -> &[u8] {
    let end = key.iter().take(MAX_PREFIX_BYTES).position(|byte| *byte == delimiter);
    end.map_or(&key[..0], |end| &key[..=end])
}

/// The prefix for people.
pub fn prefix_name(prefix: &[u8]) -> String {
    if prefix.is_empty() { "(no prefix)".to_owned() } else { prefix.escape_ascii().to_string() }
}

/// `N` counts for each prefix. The first count is the weight by which prefixes are kept.
#[derive(Clone, Debug)]
pub struct GroupSketch<const N: usize> {
    groups: HashMap<Box<[u8]>, [f64; N]>,
    others: [f64; N],
}

impl<const N: usize> Default for GroupSketch<N> {
    fn default() -> Self {
        Self { groups: HashMap::new(), others: [0.0; N] }
    }
}

impl<const N: usize> GroupSketch<N> {
    pub fn add(&mut self, prefix: &[u8], counts: [f64; N]) {
        if let Some(known) = self.groups.get_mut(prefix) {
            add(known, &counts);
            return;
        }
        if self.groups.len() == CAPACITY {
            let smallest = self.groups.iter().min_by(|(_, a), (_, b)| a[0].total_cmp(&b[0]));
            if let Some(prefix) = smallest.map(|(prefix, _)| prefix.clone())
                && let Some(counts) = self.groups.remove(&prefix)
            {
                add(&mut self.others, &counts);
            }
        }
        self.groups.insert(prefix.into(), counts);
    }

    /// Adds the counts of another sketch.
    pub fn merge(&mut self, other: &Self) {
        other.groups.iter().for_each(|(prefix, counts)| self.add(prefix, *counts));
        add(&mut self.others, &other.others);
    }

    /// Multiplies all counts by `factor`.
    pub fn decay(&mut self, factor: f64) {
        self.others.iter_mut().for_each(|count| *count *= factor);
        self.groups.values_mut().flatten().for_each(|count| *count *= factor);
        self.groups.retain(|_, counts| counts[0] >= MIN_WEIGHT);
    }

    /// The counts of a prefix; zeros for one that is not known.
    pub fn get(&self, prefix: &[u8]) -> [f64; N] {
        self.groups.get(prefix).copied().unwrap_or([0.0; N])
    }

    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.groups.keys().map(|prefix| &**prefix)
    }

    /// The sums over all prefixes.
    pub fn total(&self) -> [f64; N] {
        let mut total = self.others;
        self.groups.values().for_each(|counts| add(&mut total, counts));
        total
    }
}

fn add<const N: usize>(sum: &mut [f64; N], counts: &[f64; N]) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_with_its_first_delimiter() {
        for (key, prefix) in [("user:1:name", "user:"), (":x", ":"), ("plain", ""), ("", "")] {
            assert_eq!(prefix_of(key.as_bytes(), b':'), prefix.as_bytes(), "{key}");
        }
        assert_eq!(prefix_of(&[b'x'; 70], b'x'), b"x");
        assert_eq!(prefix_of(format!("{}:1", "y".repeat(80)).as_bytes(), b':'), b"");
    }

    #[test]
    fn large_prefixes_stay_and_sums_are_exact() {
        let mut sketch = GroupSketch::<2>::default();
        for number in 0..20_000 {
            sketch.add(format!("rare{number}:").as_bytes(), [1.0, 2.0]);
            if number % 4 == 0 {
                sketch.add(b"large:", [1.0, 0.0]);
            }
        }
        assert_eq!(sketch.total(), [25_000.0, 40_000.0]);
        // Before it is larger than the rare ones it may be pushed out a few times.
        assert!(sketch.get(b"large:")[0] > 4_500.0, "{:?}", sketch.get(b"large:"));
        assert_eq!(sketch.prefixes().count(), CAPACITY);
        let mut both = sketch.clone();
        both.merge(&sketch);
        assert_eq!(both.total(), [50_000.0, 80_000.0]);
        both.decay(1e-9);
        assert_eq!(both.prefixes().count(), 0);
    }
}
