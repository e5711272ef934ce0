use super::{Random, Zipf};

/// Distribution of requests over keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Popularity {
    /// The k-th most popular key in proportion to k^-exponent.
    #[default]
    Zipf,
    /// All keys alike.
    Uniform,
    /// All keys one after the other, round and round.
    Scan,
}

impl Popularity {
    /// The name as `--popularity` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Popularity::Zipf => "zipf",
            Popularity::Uniform => "uniform",
            Popularity::Scan => "scan",
        }
    }
}

/// Draws key numbers from 0 to n - 1.
///
/// Ranks are spread over the numbers by a fixed permutation: otherwise a prefill in the order of the numbers would put
/// all popular keys side by side in memory.
#[derive(Clone, Debug)]
pub struct Ranks {
    keys: u64,
    stride: u64,
    source: RankSource,
}

#[derive(Clone, Debug)]
enum RankSource {
    Zipf(Zipf),
    Uniform,
    Scan(u64),
}

impl Ranks {
    /// `start` is the key number where a scan begins: the threads of one run begin at different places.
    pub fn new(popularity: Popularity, keys: u64, exponent: f64, start: u64) -> Self {
        let source = match popularity {
            Popularity::Zipf => RankSource::Zipf(Zipf::new(keys, exponent)),
            Popularity::Uniform => RankSource::Uniform,
            Popularity::Scan => RankSource::Scan(start % keys),
        };
        Self { keys, stride: coprime_near_golden_section(keys), source }
    }

    /// Zipf's law with a flat head of about `head` keys.
    pub fn with_head(keys: u64, exponent: f64, head: u64) -> Self {
        let source = RankSource::Zipf(Zipf::with_head(keys, exponent, head));
        Self { keys, stride: coprime_near_golden_section(keys), source }
    }

    /// The next key number.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        match &mut self.source {
            RankSource::Zipf(zipf) => {
                let rank = zipf.sample(random) - 1;
                (u128::from(rank) * u128::from(self.stride) % u128::from(self.keys)) as u64
            }
            RankSource::Uniform => random.uniform(self.keys),
            RankSource::Scan(position) => {
                let number = *position;
                *position = (number + 1) % self.keys;
                number
            }
        }
    }
}

/// A multiplier that permutes the numbers below n and puts neighbours far apart.
pub(crate) fn coprime_near_golden_section(n: u64) -> u64 {
    let start = (n as f64 * 0.618_033_988_749_895) as u64;
    (start.max(1)..).find(|&candidate| gcd(candidate, n) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stride_permutes_the_keys() {
        for keys in [1, 2, 3, 10, 1000, 1024] {
            let stride = coprime_near_golden_section(keys);
            let mut seen = vec![false; keys as usize];
            (0..keys).for_each(|rank| seen[(rank * stride % keys) as usize] = true);
            assert!(seen.into_iter().all(|was| was), "{keys} keys");
        }
    }

    #[test]
    fn a_scan_goes_round() {
        let mut scan = Ranks::new(Popularity::Scan, 4, 0.0, 2);
        let mut random = Random::new(1, 0);
        let numbers: Vec<u64> = (0..6).map(|_| scan.next(&mut random)).collect();
        assert_eq!(numbers, [2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn popularities_differ_in_their_top_share() {
        let top_share = |popularity, exponent| {
            let mut ranks = Ranks::new(popularity, 1000, exponent, 0);
            let mut random = Random::new(9, 0);
            let mut counts = vec![0u32; 1000];
            for _ in 0..50_000 {
                counts[ranks.next(&mut random) as usize] += 1;
            }
            f64::from(counts.into_iter().max().unwrap_or(0)) / 50_000.0
        };
        let harmonic: f64 = (1..=1000).map(|k| 1.0 / f64::from(k)).sum();
        assert!((top_share(Popularity::Zipf, 1.0) - 1.0 / harmonic).abs() < 0.01);
        assert!(top_share(Popularity::Uniform, 1.0) < 0.003);
    }
}
