/// A choice among values with given weights.
#[derive(Clone, Debug)]
pub struct WeightedChoice<T> {
    values: Vec<T>,
    /// Sum of the weights up to and with each value, in shares of the whole.
    cumulative: Vec<f64>,
}

impl<T: Copy> WeightedChoice<T> {
    /// `None` unless some weight is positive, and all are finite and not negative.
    pub fn new(weighted: impl IntoIterator<Item = (T, f64)>) -> Option<Self> {
        let (values, weights): (Vec<T>, Vec<f64>) = weighted.into_iter().unzip();
        let total: f64 = weights.iter().sum();
        if weights.iter().any(|weight| weight.is_nan() || *weight < 0.0) || !(total > 0.0 && total.is_finite()) {
            return None;
        }
        let mut sum = 0.0;
        let cumulative = weights.iter().map(|weight| {
            sum += weight / total;
            sum
        });
        Some(Self { cumulative: cumulative.collect(), values })
    }

    /// The value at `unit`, a number in [0, 1).
    pub fn pick(&self, unit: f64) -> T {
        self.values[self.index(unit)]
    }

    /// The position of the value at `unit`, and how far into its share that is, in [0, 1].
    pub fn locate(&self, unit: f64) -> (usize, f64) {
        let index = self.index(unit);
        let start = if index == 0 { 0.0 } else { self.cumulative[index - 1] };
        let share = self.cumulative[index] - start;
        let within = if share > 0.0 { ((unit - start) / share).clamp(0.0, 1.0) } else { 0.0 };
        (index, within)
    }

    fn index(&self, unit: f64) -> usize {
        self.cumulative.partition_point(|&end| end <= unit).min(self.values.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_by_their_weights() {
        let choice = WeightedChoice::new([("a", 1.0), ("never", 0.0), ("b", 3.0)]).unwrap();
        assert_eq!(choice.pick(0.0), "a");
        assert_eq!(choice.pick(0.249), "a");
        assert_eq!(choice.pick(0.25), "b");
        assert_eq!(choice.pick(0.999_999_999), "b");
        assert_eq!(choice.locate(0.125), (0, 0.5));
        assert_eq!(choice.locate(0.625), (2, 0.5));
    }

    #[test]
    fn weights_that_are_none_are_refused() {
        for weights in [&[][..], &[0.0], &[1.0, -0.5], &[f64::NAN, 1.0], &[f64::INFINITY]] {
            assert!(WeightedChoice::new(weights.iter().map(|&weight| ((), weight))).is_none(), "{weights:?}");
        }
    }
}
