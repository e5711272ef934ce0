//! Prefix sums that change (Fenwick 1994): adding to one place and summing all before one place take O(log n).

#[derive(Clone, Debug, Default)]
pub(crate) struct Fenwick {
    /// Entry i (from 1) is the sum of the `i & -i` places that end with place i - 1.
    sums: Vec<f64>,
}

impl Fenwick {
    /// The sums of these places.
    pub(crate) fn of(places: impl ExactSizeIterator<Item = f64>) -> Self {
        let mut sums = vec![0.0; places.len() + 1];
        for (index, value) in places.enumerate() {
            let at = index + 1;
            sums[at] += value;
            let parent = at + lowest_bit(at);
            if parent < sums.len() {
                sums[parent] += sums[at];
            }
        }
        Self { sums }
    }

    pub(crate) fn add(&mut self, place: usize, value: f64) {
        let mut at = place + 1;
        while at < self.sums.len() {
            self.sums[at] += value;
            at += lowest_bit(at);
        }
    }

    /// The sum of the places before this one.
    pub(crate) fn before(&self, place: usize) -> f64 {
        let (mut at, mut sum) = (place, 0.0);
        while at > 0 {
            sum += self.sums[at];
            at -= lowest_bit(at);
        }
        sum
    }
}

fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_plain_list() {
        for length in [0, 1, 2, 7, 8, 100] {
            let mut plain: Vec<f64> = (0..length).map(|place| (place * 7 % 5) as f64).collect();
            let mut tree = Fenwick::of(plain.iter().copied());
            for step in 0..length * 3 {
                let (place, value) = (step * 31 % length, (step % 9) as f64 - 4.0);
                plain[place] += value;
                tree.add(place, value);
                let before = step * 17 % (length + 1);
                assert_eq!(tree.before(before), plain[..before].iter().sum::<f64>());
            }
        }
    }
}
