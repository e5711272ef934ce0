//! Miss entropy: whether a workload would gain from another division of its memory.

/// Entropy in bits of how misses spread over size classes (Dynacache, HotCloud'15, section 3.3: misses in one class
/// alone are 0; misses in many classes say that the classes compete for memory). Classes without misses do not count.
pub fn miss_entropy(misses: impl IntoIterator<Item = f64> + Clone) -> f64 {
    let total: f64 = misses.clone().into_iter().sum();
    if total <= 0.0 {
        return 0.0;
    }
    let shares = misses.into_iter().filter(|&count| count > 0.0).map(|count| count / total);
    shares.map(|share| -share * share.log2()).sum::<f64>().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_class_has_zero_entropy_equal_ones_log2() {
        assert_eq!(miss_entropy([0.0, 0.0]), 0.0);
        assert_eq!(miss_entropy([0.0, 7.0, 0.0]), 0.0);
        assert_eq!(miss_entropy([5.0; 8]), 3.0);
        assert!((miss_entropy([3.0, 1.0]) - 0.811_278).abs() < 1e-6);
    }
}
