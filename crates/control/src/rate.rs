//! Rate: events a second, smoothed over time.

/// An exponential average of a counter's growth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    per_second: Option<f64>,
    count: u64,
}

impl Rate {
    /// Adds a reading of the counter after `seconds`; the weight of older growth halves in `half_life_seconds`.
    pub fn update(&mut self, count: u64, seconds: f64, half_life_seconds: f64) {
        if seconds <= 0.0 {
            return;
        }
        let now = count.saturating_sub(self.count) as f64 / seconds;
        let kept = (-std::f64::consts::LN_2 * seconds / half_life_seconds).exp();
        self.per_second = Some(self.per_second.map_or(now, |before| before * kept + now * (1.0 - kept)));
        self.count = count;
    }

    /// Events a second; 0 before the first update.
    pub fn per_second(&self) -> f64 {
        self.per_second.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_within_half_lives() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(), 0.0);
        rate.update(100, 10.0, 60.0);
        assert_eq!(rate.per_second(), 10.0);
        rate.update(100, 60.0, 60.0);
        assert!((rate.per_second() - 5.0).abs() < 1e-9);
        rate.update(90, 0.0, 60.0);
        assert!((rate.per_second() - 5.0).abs() < 1e-9, "no time has passed");
    }
}
