//! Memory pressure: when a cache gives memory back to its host, and when it takes the memory again.
//!
//! A monitor reads how much memory the host has free, or how much the process holds, and compares it with two limits:
//!
//! ```text
//! Mode::Free       0 ---- shrink ----| lower ---- keep ---- upper |---- grow ----
//! Mode::Resident   0 ---- grow ------| lower ---- keep ---- upper |---- shrink --
//! ```
//! The method is that of CacheLib's memory monitor (OSDI'20, section 4.1), with two additions against oscillation. A
//! step aims at the middle between the limits and never passes it, so that a step down is not followed by a step up.
//! Memory that an earlier step has promised and not yet delivered counts as delivered: after a shrink, the use above
//! the limit; after a growth, the limit above the use.
//!
//! [`decide`] is a pure function: readings and limits go in, the next limit comes out.

use std::fmt;

/// Which reading the limits are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Free memory of the host or of the tightest control group.
    Free,
    /// Resident memory of the process.
    Resident,
}

/// When memory moves, and how much in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureOptions {
    /// The reading that the limits are for.
    pub mode: Mode,
    /// `Free`: a shrink begins below it. `Resident`: a growth begins below it.
    pub lower_bytes: u64,
    /// `Free`: a growth begins above it. `Resident`: a shrink begins above it.
    pub upper_bytes: u64,
    /// Largest step, as a share of the configured memory. One step a second of 5 % empties half a cache in ten seconds,
    /// and its evictions do not fill a core.
    pub step_share: f64,
    /// Smallest memory, as a share of the configured memory: the cache stays useful to the host that runs it.
    pub floor_share: f64,
    /// Share of time, in percent, in which some task waited for memory (PSI `some avg10`), above which the cache
    /// shrinks although the limits would keep it. A host at 10 % spends its time on reclaim.
    pub stall_percent: f64,
}

impl fmt::Display for PressureOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mode = match self.mode {
            Mode::Free => "free memory",
            Mode::Resident => "resident memory",
        };
        let (lower, upper) = (mib(self.lower_bytes), mib(self.upper_bytes));
        let (step, floor) = (self.step_share * 100.0, self.floor_share * 100.0);
        write!(
            f,
            "{mode} between {lower:.0} and {upper:.0} MiB, steps of {step:.0} %, not below {floor:.0} % of the memory"
        )
    }
}

impl PressureOptions {
    /// Limits without a value of their own: the steps and the floor above.
    pub fn new(mode: Mode, lower_bytes: u64, upper_bytes: u64) -> Self {
        Self { mode, lower_bytes, upper_bytes, step_share: 0.05, floor_share: 0.25, stall_percent: 10.0 }
    }

    /// Checks the options for a cache of `configured_bytes`.
    ///
    /// # Errors
    /// The option that does not fit, with the numbers.
    pub fn check(&self, configured_bytes: u64) -> Result<(), InvalidPressure> {
        let is_share = |share: f64| share > 0.0 && share <= 1.0;
        if self.lower_bytes >= self.upper_bytes {
            return Err(InvalidPressure::Limits { lower_bytes: self.lower_bytes, upper_bytes: self.upper_bytes });
        }
        if !is_share(self.step_share) {
            return Err(InvalidPressure::Step(self.step_share));
        }
        if !is_share(self.floor_share) {
            return Err(InvalidPressure::Floor(self.floor_share));
        }
        if self.stall_percent.is_nan() || self.stall_percent <= 0.0 {
            return Err(InvalidPressure::Stall(self.stall_percent));
        }
        let floor_bytes = self.floor_bytes(configured_bytes);
        if self.mode == Mode::Resident && self.upper_bytes < floor_bytes {
            return Err(InvalidPressure::Unreachable { upper_bytes: self.upper_bytes, floor_bytes });
        }
        Ok(())
    }

    /// Smallest memory of a cache of `configured_bytes`.
    pub fn floor_bytes(&self, configured_bytes: u64) -> u64 {
        (configured_bytes as f64 * self.floor_share) as u64
    }
}

/// Options that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidPressure {
    #[error("the lower limit of {lower_bytes} bytes must be below the upper one of {upper_bytes}")]
    Limits { lower_bytes: u64, upper_bytes: u64 },
    #[error("a step of {0} is no share of the memory: give more than 0 and at most 1")]
    Step(f64),
    #[error("a floor of {0} is no share of the memory: give more than 0 and at most 1")]
    Floor(f64),
    #[error("a stall of {0} percent is none: give more than 0")]
    Stall(f64),
    #[error(
        "the upper limit of {upper_bytes} resident bytes is below the floor of {floor_bytes}: the cache would stay at its \
         floor for ever; give a larger limit, or a lower floor"
    )]
    Unreachable { upper_bytes: u64, floor_bytes: u64 },
}

/// Measurements at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Free memory of the host or of the tightest control group, in bytes.
    pub free_bytes: u64,
    /// Resident memory of the process, in bytes.
    pub resident_bytes: u64,
    /// PSI `some avg10` of memory, in percent, if the kernel reports it.
    pub stall_percent: Option<f64>,
}

/// Memory of the cache at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory that the cache was configured with: the maximum of `limit_bytes`.
    pub configured_bytes: u64,
    pub limit_bytes: u64,
    pub used_bytes: u64,
}

/// Why the limit moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    LittleFree { free_bytes: u64, lower_bytes: u64 },
    MuchFree { free_bytes: u64, upper_bytes: u64 },
    LargeProcess { resident_bytes: u64, upper_bytes: u64 },
    SmallProcess { resident_bytes: u64, lower_bytes: u64 },
    Stalls { stall_percent: f64, limit_percent: f64 },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match *self {
            Self::LittleFree { free_bytes, lower_bytes } => {
                write!(f, "{:.1} MiB are free, less than the lower limit of {:.1}", mib(free_bytes), mib(lower_bytes))
            }
            Self::MuchFree { free_bytes, upper_bytes } => {
                write!(f, "{:.1} MiB are free, more than the upper limit of {:.1}", mib(free_bytes), mib(upper_bytes))
            }
            Self::LargeProcess { resident_bytes, upper_bytes } => {
                let (resident, upper) = (mib(resident_bytes), mib(upper_bytes));
                write!(f, "{resident:.1} MiB are resident, more than the upper limit of {upper:.1}")
            }
            Self::SmallProcess { resident_bytes, lower_bytes } => {
                let (resident, lower) = (mib(resident_bytes), mib(lower_bytes));
                write!(f, "{resident:.1} MiB are resident, less than the lower limit of {lower:.1}")
            }
            Self::Stalls { stall_percent, limit_percent } => {
                write!(f, "tasks wait for memory {stall_percent:.1} % of the time, more than {limit_percent:.1} %")
            }
        }
    }
}

/// Decision on the limit of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PressureDecision {
    Keep,
    Shrink { to_bytes: u64, reason: Reason },
    Grow { to_bytes: u64, reason: Reason },
}

/// Decides on the next limit of a cache.
///
/// A shrink starts from the smaller of limit and use: memory that is not in use frees nothing. A growth happens only
/// while the memory is in use: an unused limit gains no hits.
pub fn decide(options: &PressureOptions, memory: Memory, reading: Reading) -> PressureDecision {
    let Memory { configured_bytes, limit_bytes, used_bytes } = memory;
    let middle = options.lower_bytes.midpoint(options.upper_bytes);
    let leaving = used_bytes.saturating_sub(limit_bytes);
    let promised = limit_bytes.saturating_sub(used_bytes);
    let (shrink, grow) = match options.mode {
        Mode::Free => {
            let free_bytes = reading.free_bytes;
            let (soon_free, sure_free) = (free_bytes + leaving, free_bytes.saturating_sub(promised));
            let little = Reason::LittleFree { free_bytes, lower_bytes: options.lower_bytes };
            let much = Reason::MuchFree { free_bytes, upper_bytes: options.upper_bytes };
            (
                (soon_free < options.lower_bytes).then(|| (middle - soon_free, little)),
                (sure_free > options.upper_bytes).then(|| (sure_free - middle, much)),
            )
        }
        Mode::Resident => {
            let resident_bytes = reading.resident_bytes;
            let (soon, at_most) = (resident_bytes.saturating_sub(leaving), resident_bytes + promised);
            let large = Reason::LargeProcess { resident_bytes, upper_bytes: options.upper_bytes };
            let small = Reason::SmallProcess { resident_bytes, lower_bytes: options.lower_bytes };
            (
                (soon > options.upper_bytes).then(|| (soon - middle, large)),
                (at_most < options.lower_bytes).then(|| (middle - at_most, small)),
            )
        }
    };
    let step = ((configured_bytes as f64 * options.step_share) as u64).max(1);
    let stall = reading.stall_percent.filter(|percent| *percent > options.stall_percent && leaving == 0);
    let stalls =
        stall.map(|stall_percent| (step, Reason::Stalls { stall_percent, limit_percent: options.stall_percent }));
    if let Some((bytes, reason)) = shrink.or(stalls) {
        let floor = options.floor_bytes(configured_bytes);
        let to_bytes = limit_bytes.min(used_bytes).saturating_sub(bytes.min(step)).max(floor);
        return if to_bytes < limit_bytes {
            PressureDecision::Shrink { to_bytes, reason }
        } else {
            PressureDecision::Keep
        };
    }
    match grow {
        Some((bytes, reason)) if limit_bytes < configured_bytes && promised <= step => {
            let to_bytes = (limit_bytes + bytes.min(step)).min(configured_bytes);
            PressureDecision::Grow { to_bytes, reason }
        }
        _ => PressureDecision::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn free(lower: u64, upper: u64) -> PressureOptions {
        PressureOptions::new(Mode::Free, lower * MIB, upper * MIB)
    }

    fn reading(free: u64) -> Reading {
        Reading { free_bytes: free * MIB, ..Reading::default() }
    }

    fn full(limit: u64) -> Memory {
        Memory { configured_bytes: 1000 * MIB, limit_bytes: limit * MIB, used_bytes: limit * MIB }
    }

    #[test]
    fn between_the_limits_nothing_moves() {
        for free_mib in [100, 150, 200] {
            assert_eq!(decide(&free(100, 200), full(500), reading(free_mib)), PressureDecision::Keep);
        }
    }

    #[test]
    fn steps_target_the_middle_within_their_bound() {
        let to = |decision| match decision {
            PressureDecision::Shrink { to_bytes, .. } | PressureDecision::Grow { to_bytes, .. } => to_bytes / MIB,
            PressureDecision::Keep => panic!("nothing moves"),
        };
        // 20 MiB are missing to the middle of 120; a step is 50.
        assert_eq!(to(decide(&free(110, 130), full(500), reading(100))), 480);
        assert_eq!(to(decide(&free(110, 230), full(500), reading(10))), 450);
        assert_eq!(to(decide(&free(110, 130), full(500), reading(150))), 530);
        assert_eq!(to(decide(&free(110, 130), full(500), reading(900))), 550);
        assert_eq!(to(decide(&free(110, 130), full(980), reading(900))), 1000);
        assert_eq!(to(decide(&free(110, 130), full(260), reading(0))), 250);
        assert_eq!(decide(&free(110, 130), full(250), reading(0)), PressureDecision::Keep);
        assert_eq!(decide(&free(110, 130), full(1000), reading(900)), PressureDecision::Keep);
    }

    #[test]
    fn memory_on_its_way_counts_once() {
        let options = free(100, 200);
        let leaving = Memory { configured_bytes: 1000 * MIB, limit_bytes: 450 * MIB, used_bytes: 500 * MIB };
        assert_eq!(decide(&options, leaving, reading(60)), PressureDecision::Keep, "110 MiB are free soon");
        assert!(matches!(decide(&options, leaving, reading(40)), PressureDecision::Shrink { .. }));
        let promised = Memory { configured_bytes: 1000 * MIB, limit_bytes: 550 * MIB, used_bytes: 500 * MIB };
        assert_eq!(decide(&options, promised, reading(240)), PressureDecision::Keep, "50 MiB of them are taken soon");
        assert!(matches!(decide(&options, promised, reading(260)), PressureDecision::Grow { .. }));
    }

    #[test]
    fn memory_that_is_not_in_use_frees_nothing() {
        let memory = Memory { configured_bytes: 1000 * MIB, limit_bytes: 1000 * MIB, used_bytes: 400 * MIB };
        let decision = decide(&free(100, 200), memory, reading(90));
        assert!(matches!(decision, PressureDecision::Shrink { to_bytes, .. } if to_bytes == 350 * MIB), "{decision:?}");
    }

    #[test]
    fn resident_mode_keeps_the_process_between_its_limits() {
        let options = PressureOptions::new(Mode::Resident, 500 * MIB, 600 * MIB);
        let at = |resident: u64| Reading { resident_bytes: resident * MIB, ..Reading::default() };
        assert!(
            matches!(decide(&options, full(590), at(620)), PressureDecision::Shrink { to_bytes, .. } if to_bytes == 540 * MIB)
        );
        assert!(
            matches!(decide(&options, full(400), at(420)), PressureDecision::Grow { to_bytes, .. } if to_bytes == 450 * MIB)
        );
        assert_eq!(decide(&options, full(520), at(550)), PressureDecision::Keep);
    }

    #[test]
    fn stalls_shrink_a_cache_within_its_limits() {
        let stalled = |percent| Reading { stall_percent: Some(percent), ..reading(150) };
        let decision = decide(&free(100, 200), full(500), stalled(30.0));
        assert!(
            matches!(decision, PressureDecision::Shrink { to_bytes, reason: Reason::Stalls { .. } } if to_bytes == 450 * MIB)
        );
        assert_eq!(decide(&free(100, 200), full(500), stalled(5.0)), PressureDecision::Keep);
    }

    #[test]
    fn contradictory_options_are_refused_with_their_numbers() {
        let refusal = |options: PressureOptions| options.check(1000 * MIB).unwrap_err();
        assert_eq!(refusal(free(200, 200)), InvalidPressure::Limits { lower_bytes: 200 * MIB, upper_bytes: 200 * MIB });
        assert_eq!(refusal(PressureOptions { step_share: 0.0, ..free(1, 2) }), InvalidPressure::Step(0.0));
        assert_eq!(refusal(PressureOptions { floor_share: 1.5, ..free(1, 2) }), InvalidPressure::Floor(1.5));
        assert!(matches!(
            refusal(PressureOptions { stall_percent: f64::NAN, ..free(1, 2) }),
            InvalidPressure::Stall(_)
        ));
        let resident = PressureOptions::new(Mode::Resident, 100 * MIB, 200 * MIB);
        let expected = InvalidPressure::Unreachable { upper_bytes: 200 * MIB, floor_bytes: 250 * MIB };
        assert_eq!(refusal(resident), expected);
        assert_eq!(free(100, 200).check(1000 * MIB), Ok(()));
    }

    /// A host of `host` MiB with a full cache of 1,000 and a neighbour whose memory `neighbour` tells by the second.
    fn limits(options: &PressureOptions, host: u64, neighbour: impl Fn(u64) -> u64, seconds: u64) -> Vec<u64> {
        let (mut memory, mut limits) = (full(1000), Vec::new());
        for second in 0..seconds {
            // Evictions take 80 MiB a second, new objects bring 30.
            let (limit, used) = (memory.limit_bytes, memory.used_bytes);
            memory.used_bytes = if used > limit { limit.max(used - 80 * MIB) } else { limit.min(used + 30 * MIB) };
            let taken = memory.used_bytes + neighbour(second) * MIB;
            let now = Reading { free_bytes: (host * MIB).saturating_sub(taken), ..Reading::default() };
            match decide(options, memory, now) {
                PressureDecision::Keep => {}
                PressureDecision::Shrink { to_bytes, .. } | PressureDecision::Grow { to_bytes, .. } => {
                    memory.limit_bytes = to_bytes
                }
            }
            limits.push(memory.limit_bytes / MIB);
        }
        limits
    }

    #[test]
    fn a_steady_neighbour_leads_to_a_steady_limit() {
        for taken in [0, 300, 600, 799] {
            let limits = limits(&free(100, 200), 1500, |_| taken, 200);
            let last = &limits[100..];
            assert!(last.iter().all(|limit| *limit == last[0]), "{taken}: {last:?}");
            let left = 1500 - taken - last[0];
            assert!(last[0] == 1000 || (100..=200).contains(&left) || last[0] == 250, "{taken}: {left} free");
        }
    }

    #[test]
    fn a_temporary_neighbour_takes_and_returns_memory() {
        let neighbour = |second| if (50..150).contains(&second) { 700 } else { 100 };
        let limits = limits(&free(100, 200), 1500, neighbour, 300);
        assert_eq!(limits[49], 1000);
        assert!((600..=700).contains(&limits[149]), "{}", limits[149]);
        assert_eq!(limits[299], 1000);
        let turns =
            limits.windows(3).filter(|three| (three[1] > three[0]) != (three[2] > three[1]) && three[1] != three[2]);
        assert!(turns.count() <= 4, "the limit goes down once and up once");
    }

    /// `MemAvailable` of a host in MiB, each second: from the ninth on a process takes 7.5 GiB, and its file cache
    /// grows; it ends after the 55th.
    #[rustfmt::skip]
    const RECORDED_FREE_MIB: [u64; 75] = [
        23015, 23182, 23138, 23283, 23235, 23336, 23278, 23231, 23182, 22798, 22602, 22270, 21996, 21812, 21599,
        21344, 21086, 20751, 20532, 20252, 19966, 19700, 19420, 19161, 18899, 18638, 18442, 18177, 17929, 17619,
        17427, 17317, 17186, 17062, 16972, 16879, 16773, 16711, 16587, 16494, 16345, 16274, 16181, 16055, 15962,
        15865, 15765, 15660, 15542, 15542, 15533, 15532, 15523, 15508, 15506, 15506, 23051, 23071, 23191, 23186,
        23198, 23194, 23230, 23230, 23102, 23238, 23244, 23240, 23210, 23295, 23290, 23240, 23228, 23079, 23163,
    ];

    #[test]
    fn recorded_readings_lead_down_once_and_up_once() {
        let neighbour = |second| RECORDED_FREE_MIB[0].saturating_sub(RECORDED_FREE_MIB[second as usize]);
        let limits = limits(&free(600, 900), 9_000, neighbour, RECORDED_FREE_MIB.len() as u64);
        let smallest = *limits.iter().min().unwrap();
        let free_mib = 9_000 - smallest - neighbour(54);
        assert!((600..=750).contains(&free_mib), "{free_mib} MiB are free: {limits:?}");
        let (down, up) = limits.split_at(55);
        assert!(down.is_sorted_by(|a, b| a >= b) && down[54] == smallest, "{limits:?}");
        assert!(up.is_sorted() && up[up.len() - 1] == 1000, "{limits:?}");
    }
}
