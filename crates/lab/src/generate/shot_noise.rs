//! Requests as shot noise: each key has a short life of its own, and a part of them is asked for all the time.
//!
//! ```text
//!   key          weight w           k requests, at
//!   stationary   exp(sigma Z) V     |   |     |    |      |  |       |    uniform over the span
//!   mortal       exp(sigma Z) V         |||| | | |  |     |               birth + exponential(life)
//!                                       ^birth
//! ```
//! Z is normal and V = exp(exponential / tail) adds a power law's tail. All weights are scaled so that the requests
//! add up, and clipped at an absolute count. A key is asked for Poisson(w) times, at least once, so each key that is
//! counted shows itself. Keys with many requests are stationary more or less often, as `tilt` says. Any request may
//! be followed by a repeat soon after (a client that asks again), which counts among the k.
//!
//! The size of a workload is chosen by its number of keys, never by its time: lives, TTLs and the span are those of
//! the real caches that the parameters were fitted to.
//!
//! A request takes 8 bytes: the time in 2^-32 of the span above, the key's number below, so that sorting the words
//! sorts by time.

use crate::workload::Random;

/// Parameters of a shot-noise workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShotNoise {
    /// Requests per key over the span.
    pub(super) mean_frequency: f64,
    /// Standard deviation of the logarithm of the weights.
    pub(super) sigma: f64,
    /// Exponent of the power law in the tail of the weights.
    pub(super) tail: f64,
    /// Maximum of the expected requests of a key.
    pub(super) weight_cap: f64,
    /// Probability that a key of mean weight is stationary.
    pub(super) stationary: f64,
    /// How the log-odds of that change per unit of ln(w / mean).
    pub(super) tilt: f64,
    pub(super) life: KeyLifetime,
    /// The life of a share of the mortal keys.
    pub(super) second_life: KeyLifetime,
    pub(super) second_share: f64,
    /// Probability that a request is repeated, and the scale of the pause before.
    pub(super) repeat: f64,
    pub(super) repeat_seconds: f64,
}

/// Lognormal lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLifetime {
    pub(super) median_seconds: f64,
    pub(super) sigma: f64,
}

/// The spread of the logarithm of pauses before repeats.
const REPEAT_SIGMA: f64 = 1.5;

/// Steps of the search for the scale of the weights; each leaves less than half of the error.
const SCALE_STEPS: u32 = 32;

impl ShotNoise {
    /// Number of keys in `requests` requests.
    pub(super) fn keys(&self, requests: u64) -> u64 {
        ((requests as f64 / self.mean_frequency).round() as u64).max(1)
    }

    /// The requests that each key is expected to have, so that all together they are about `requests`.
    pub(super) fn weights(&self, requests: u64, random: &mut Random) -> Vec<f64> {
        let draw = |_| (self.sigma * random.next_normal() + random.next_exponential() / self.tail).exp();
        let mut weights: Vec<f64> = (0..self.keys(requests)).map(draw).collect();
        // Each key has at least one request: the search matches the requests beyond these.
        let wanted = (requests as f64 - weights.len() as f64).max(0.0);
        let mut scale = 1.0;
        for _ in 0..SCALE_STEPS {
            let excess = |weight: &f64| excess((weight * scale).min(self.weight_cap));
            let found: f64 = weights.iter().map(excess).sum();
            // The excess grows between linearly and quadratically with the scale; this power contracts in both cases.
            scale *= (wanted / found.max(f64::MIN_POSITIVE)).powf(0.6);
        }
        weights.iter_mut().for_each(|weight| *weight = (*weight * scale).min(self.weight_cap));
        weights
    }

    /// Appends the requests of the keys with these weights, numbered from `first_key`, in no order.
    pub(super) fn draw(
        &self,
        weights: &[f64],
        span_seconds: f64,
        first_key: u32,
        random: &mut Random,
        events: &mut Vec<ShotEvent>,
    ) {
        let mean = self.mean_frequency;
        for (key, &weight) in (first_key..).zip(weights) {
            let count = random.next_poisson(weight).max(1);
            let stationary = random.next_unit() < self.stationary_share(weight, mean);
            let shot = if stationary { None } else { Some(self.shot(span_seconds, random)) };
            let mut left = count;
            while left > 0 {
                let mut seconds = match &shot {
                    None => random.next_unit() * span_seconds,
                    Some(shot) => shot.instant(span_seconds, random),
                };
                events.push(ShotEvent::new(seconds, span_seconds, key));
                left -= 1;
                while left > 0 && random.next_unit() < self.repeat {
                    let lag = random.next_exponential() * (REPEAT_SIGMA * random.next_normal()).exp();
                    seconds += self.repeat_seconds * lag;
                    if seconds >= span_seconds {
                        break;
                    }
                    events.push(ShotEvent::new(seconds, span_seconds, key));
                    left -= 1;
                }
            }
        }
    }

    fn stationary_share(&self, weight: f64, mean: f64) -> f64 {
        let odds = self.stationary / (1.0 - self.stationary) * (weight / mean).powf(self.tilt);
        // Without a stationary part the odds of a weight of zero would be 0 times infinity.
        if self.stationary > 0.0 { 1.0 / (1.0 + 1.0 / odds) } else { 0.0 }
    }

    fn shot(&self, span_seconds: f64, random: &mut Random) -> Shot {
        let second = random.next_unit() < self.second_share;
        let life = if second { &self.second_life } else { &self.life };
        let mean_seconds = life.median_seconds * (life.sigma * random.next_normal()).exp();
        let before = mean_seconds.min(span_seconds);
        Shot { birth: random.next_unit() * (span_seconds + before) - before, mean_seconds }
    }
}

/// The requests that a key of weight w has on average beyond its first: w - 1 + exp(-w).
fn excess(weight: f64) -> f64 {
    weight + (-weight).exp_m1()
}

/// The life of one mortal key.
struct Shot {
    birth: f64,
    mean_seconds: f64,
}

impl Shot {
    /// An instant of the life that lies within the span: the exponential distribution, cut at both ends.
    fn instant(&self, span_seconds: f64, random: &mut Random) -> f64 {
        let start = self.birth.max(0.0);
        let reach = -(-(span_seconds - start) / self.mean_seconds).exp_m1();
        let age = -self.mean_seconds * (-random.next_unit() * reach).ln_1p();
        start + age
    }
}

/// One request: when, and of which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ShotEvent(u64);

const _: () = assert!(size_of::<ShotEvent>() == 8);

/// Ticks that a span has.
const TICKS: f64 = (1u64 << 32) as f64;

impl ShotEvent {
    pub(super) fn new(seconds: f64, span_seconds: f64, key: u32) -> Self {
        let ticks = (seconds / span_seconds * TICKS) as u32;
        Self(u64::from(ticks) << 32 | u64::from(key))
    }

    pub(super) fn seconds(self, span_seconds: f64) -> f64 {
        (self.0 >> 32) as f64 * (span_seconds / TICKS)
    }

    pub(super) fn key(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 86_400.0;

    fn model() -> ShotNoise {
        ShotNoise {
            mean_frequency: 20.0,
            sigma: 1.0,
            tail: 2.0,
            weight_cap: 500.0,
            stationary: 0.0,
            tilt: 0.0,
            life: KeyLifetime { median_seconds: 100.0, sigma: 0.1 },
            second_life: KeyLifetime { median_seconds: 5000.0, sigma: 0.1 },
            second_share: 0.0,
            repeat: 0.0,
            repeat_seconds: 1.0,
        }
    }

    fn times_by_key(model: &ShotNoise, requests: u64) -> Vec<Vec<f64>> {
        let mut random = Random::new(5, 0);
        let weights = model.weights(requests, &mut random);
        let mut events = Vec::new();
        model.draw(&weights, DAY, 0, &mut random, &mut events);
        events.sort_unstable();
        let mut times = vec![Vec::new(); weights.len()];
        for event in events {
            times[event.key() as usize].push(event.seconds(DAY));
        }
        times
    }

    fn mean_spread(times: &[Vec<f64>]) -> f64 {
        let spreads: Vec<f64> = times.iter().filter(|t| t.len() > 9).map(|t| t[t.len() - 1] - t[0]).collect();
        spreads.iter().sum::<f64>() / spreads.len() as f64
    }

    #[test]
    fn the_requests_add_up_whatever_the_mean() {
        for mean_frequency in [1.02, 1.5, 20.0, 900.0] {
            let times = times_by_key(&ShotNoise { mean_frequency, weight_cap: 1e9, ..model() }, 100_000);
            let found: usize = times.iter().map(Vec::len).sum();
            assert!((97_000..103_000).contains(&found), "mean {mean_frequency}: {found} requests");
            assert!(times.iter().all(|times| !times.is_empty()));
        }
    }

    #[test]
    fn no_weight_is_above_the_cap() {
        let weights = ShotNoise { weight_cap: 50.0, ..model() }.weights(100_000, &mut Random::new(1, 0));
        assert!(weights.iter().all(|&w| w <= 50.0) && weights.contains(&50.0));
        let expected: f64 = weights.iter().map(|w| w + (-w).exp()).sum();
        assert!((expected / 100_000.0 - 1.0).abs() < 0.001, "{expected}");
    }

    #[test]
    fn longer_lives_spread_the_requests_of_keys() {
        let short = mean_spread(&times_by_key(&model(), 100_000));
        assert!((150.0..600.0).contains(&short), "{short}");
        let long = mean_spread(&times_by_key(&ShotNoise { second_share: 1.0, ..model() }, 100_000));
        assert!(long > 20.0 * short, "{long}");
        let always = mean_spread(&times_by_key(&ShotNoise { stationary: 0.999_999, ..model() }, 100_000));
        assert!(always > 0.7 * DAY, "{always}");
    }

    #[test]
    fn the_tilt_makes_popular_keys_mortal() {
        let tilted = ShotNoise { stationary: 0.5, tilt: -3.0, ..model() };
        let popular = tilted.stationary_share(200.0, 20.0);
        let rare = tilted.stationary_share(2.0, 20.0);
        assert!(popular < 0.01 && rare > 0.99, "{popular} {rare}");
        assert_eq!(tilted.stationary_share(20.0, 20.0), 0.5);
    }

    #[test]
    fn repeats_come_soon_after() {
        let gaps_below_a_second = |model: &ShotNoise| {
            let times = times_by_key(&ShotNoise { stationary: 0.999_999, ..*model }, 100_000);
            times.iter().flat_map(|t| t.windows(2)).filter(|pair| pair[1] - pair[0] < 1.0).count()
        };
        let (none, half) = (gaps_below_a_second(&model()), gaps_below_a_second(&ShotNoise { repeat: 0.5, ..model() }));
        assert!(none < 1000 && half > 20_000, "{none} {half}");
    }
}
