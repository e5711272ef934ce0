use std::f64::consts::TAU;

/// Turns the even time of a model into the time of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DailyClock {
    Even,
    /// Day and night: the rate swings by a quarter up and down once a day, the order stays.
    Diurnal,
}

const DAY: f64 = 86_400.0;

impl DailyClock {
    /// The whole second of the trace, as its formats have it.
    pub(super) fn second(self, seconds: f64) -> u64 {
        match self {
            DailyClock::Even => seconds as u64,
            DailyClock::Diurnal => (seconds + 0.25 * DAY / TAU * (TAU * seconds / DAY).sin()) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_swings_by_a_quarter() {
        let quarters = |clock: DailyClock| {
            let mut requests = [0u32; 4];
            for minute in 0..7 * 1440 {
                let second = clock.second(f64::from(minute) * 60.0);
                requests[(second % 86_400 * 4 / 86_400) as usize] += 1;
            }
            requests
        };
        assert_eq!(quarters(DailyClock::Even), [2520; 4]);
        let [night, noon, _, _] = quarters(DailyClock::Diurnal);
        assert!(night < 2300 && noon > 2700, "{night} {noon}");
    }

    #[test]
    fn time_never_decreases() {
        let seconds: Vec<u64> = (0..100_000).map(|n| DailyClock::Diurnal.second(f64::from(n) * 6.05)).collect();
        assert!(seconds.is_sorted());
        assert_eq!((seconds[0], DailyClock::Diurnal.second(7.0 * DAY)), (0, 604_800));
    }
}
