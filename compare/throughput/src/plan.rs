//! Parameters of one measurement.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::engine::{EngineName, Mode};

/// One measurement. Its arguments on the command line are also how a comparison passes it to a process.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    #[arg(long)]
    pub engine: EngineName,
    /// How gets are done: `get` copies the value into a reused buffer, `batch` does so for 16 keys at once,
    /// `zero-copy` reads the first word of the value where it lies.
    #[arg(long, default_value = "get")]
    pub mode: Mode,
    /// get (everything fits), fill (gets, a miss sets), 93/7, 50/50, 10/90 (gets/sets; a miss sets, too).
    #[arg(long, default_value = "fill")]
    pub mix: Mix,
    /// Zipf exponent; with `:N`, N new keys replace old ones per request: 0.7:0.02.
    #[arg(long, default_value = "1.0")]
    pub distribution: Distribution,
    /// Keys of 20 bytes.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    pub keys: u32,
    #[arg(long, default_value_t = 230, value_parser = clap::value_parser!(u32).range(8..=65536))]
    pub value_bytes: u32,
    /// All the memory that an engine may take, which tells how many objects it is filled with.
    #[arg(long, default_value_t = 1 << 30)]
    pub memory_bytes: u64,
    /// The capacity that the engine is built with, in its own count; the memory unless given.
    #[arg(long)]
    pub capacity_bytes: Option<u64>,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    #[arg(long, default_value = "shared")]
    pub sharing: Sharing,
    /// Requests of each thread that are measured; half as many before that are not.
    #[arg(long, default_value_t = 8_000_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000_000))]
    pub requests: u32,
    /// Ends the measurement after this number of seconds, and the requests before it after half of them, if there are
    /// requests left. An engine that is slow under contention takes no longer than a fast one, and all threads end
    /// together.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Different TTLs, from an hour to 30 days; nothing expires while it is measured. 0: objects without a TTL.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub ttls: u32,
}

/// A positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0 && seconds < 1e6);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("`{text}` is no number of seconds above 0"))
}

impl Plan {
    /// Seconds, not minutes.
    pub fn small() -> Self {
        Self {
            engine: EngineName::Ebbtide,
            mode: Mode::Get,
            mix: Mix::Fill,
            distribution: Distribution { exponent: 1.0, churn: 0.0 },
            keys: 100_000,
            value_bytes: 230,
            memory_bytes: 16 << 20,
            capacity_bytes: None,
            threads: 2,
            sharing: Sharing::Shared,
            requests: 50_000,
            seconds: None,
            ttls: 0,
        }
    }

    /// The capacity that each cache is built with. Where everything is to fit there is space enough for any engine.
    pub fn capacity_bytes(&self) -> u64 {
        match self.mix {
            Mix::Get => u64::from(self.keys) * (self.object_bytes() + 100) + (64 << 20),
            _ => self.capacity_bytes.unwrap_or(self.memory_bytes),
        }
    }

    /// Keys and values of one object.
    pub fn object_bytes(&self) -> u64 {
        crate::workload::KEY_BYTES as u64 + u64::from(self.value_bytes)
    }

    /// The TTLs of the objects, each a little longer than the one before.
    pub fn ttl_table(&self) -> Vec<Duration> {
        const SHORTEST_SECONDS: f64 = 3600.0;
        const LONGEST_SHORTEST: f64 = 720.0;
        let share = |i: u32| f64::from(i) / f64::from(self.ttls);
        (0..self.ttls).map(|i| Duration::from_secs_f64(SHORTEST_SECONDS * LONGEST_SHORTEST.powf(share(i)))).collect()
    }

    /// Objects that a cache is filled with: all keys, or a tenth more than would fit without any overhead.
    pub fn filled_objects(&self) -> u32 {
        match self.mix {
            Mix::Get => self.keys,
            _ => ((self.memory_bytes * 11 / 10 / self.object_bytes()) as u32).min(self.keys),
        }
    }

    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["measure".to_owned()];
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        add("engine", self.engine.to_string());
        add("mode", self.mode.to_string());
        add("mix", self.mix.to_string());
        add("distribution", self.distribution.to_string());
        add("keys", self.keys.to_string());
        add("value-bytes", self.value_bytes.to_string());
        add("memory-bytes", self.memory_bytes.to_string());
        if let Some(capacity) = self.capacity_bytes {
            add("capacity-bytes", capacity.to_string());
        }
        add("threads", self.threads.to_string());
        add("sharing", self.sharing.to_string());
        add("requests", self.requests.to_string());
        if let Some(seconds) = self.seconds {
            add("seconds", seconds.as_secs_f64().to_string());
        }
        add("ttls", self.ttls.to_string());
        arguments
    }
}

/// Gets and sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Gets only; everything fits and is there.
    Get,
    /// Gets only; a miss sets.
    Fill,
    /// This percentage of gets, the others set; a miss sets, too.
    Gets(u8),
}

impl Mix {
    pub const ALL: [Self; 5] = [Self::Get, Self::Fill, Self::Gets(93), Self::Gets(50), Self::Gets(10)];

    /// Gets in a hundred requests.
    pub fn gets(self) -> u8 {
        match self {
            Self::Get | Self::Fill => 100,
            Self::Gets(gets) => gets,
        }
    }

    pub fn fills(self) -> bool {
        self != Self::Get
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => f.write_str("get"),
            Self::Fill => f.write_str("fill"),
            Self::Gets(gets) => write!(f, "{gets}/{}", 100 - gets),
        }
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares = || {
            let (gets, sets) = text.split_once('/')?;
            let (gets, sets): (u8, u8) = (gets.parse().ok()?, sets.parse().ok()?);
            (gets.checked_add(sets) == Some(100)).then_some(Self::Gets(gets))
        };
        match text {
            "get" => Ok(Self::Get),
            "fill" => Ok(Self::Fill),
            _ => shares().ok_or_else(|| format!("`{text}` is none of get, fill and GETS/SETS that sum up to 100")),
        }
    }
}

/// How popular the keys are, and whether they stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    /// Of Zipf's law.
    pub exponent: f64,
    /// New keys per request, each in the place of an old one and as popular.
    pub churn: f64,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.churn {
            0.0 => write!(f, "{:?}", self.exponent),
            churn => write!(f, "{:?}:{churn:?}", self.exponent),
        }
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (exponent, churn) = text.split_once(':').unwrap_or((text, "0"));
        let number = |text: &str, max: f64| text.parse().ok().filter(|number| (0.0..=max).contains(number));
        number(exponent, 10.0)
            .zip(number(churn, 1.0))
            .map(|(exponent, churn)| Self { exponent, churn })
            .ok_or_else(|| format!("`{text}` is not EXPONENT (0 to 10) or EXPONENT:CHURN (0 to 1)"))
    }
}

/// Which keys the threads ask for, and of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One cache, the same keys: hot keys are hot for all.
    Shared,
    /// One cache, the keys divided among the threads.
    Disjoint,
    /// For each thread a cache of its own with all the memory, and all keys.
    Private,
}

impl Sharing {
    pub const ALL: [Self; 3] = [Self::Shared, Self::Disjoint, Self::Private];
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::Disjoint => "disjoint",
            Self::Private => "private",
        })
    }
}

impl FromStr for Sharing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|sharing| sharing.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is none of shared, disjoint, private"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read() {
        for mix in Mix::ALL {
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        for sharing in Sharing::ALL {
            assert_eq!(sharing.to_string().parse(), Ok(sharing));
        }
        for text in ["1.0", "0.55:0.02"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn ttls_differ_and_last() {
        let ttls = Plan { ttls: 64, ..Plan::small() }.ttl_table();
        assert_eq!((ttls.len(), ttls[0]), (64, Duration::from_secs(3600)));
        // Wider apart than TTL buckets are in any engine: an eighth of the TTL at most in Ebbtide, 128 s in segcache.
        assert!(ttls.is_sorted_by(|a, b| *b - *a > Duration::from_secs(128)));
        assert!(ttls[63] < Duration::from_secs(30 * 24 * 3600));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(seconds("0").is_err());
        assert!("93/8".parse::<Mix>().is_err());
        assert!("1.0:2".parse::<Distribution>().is_err());
        assert!("-1".parse::<Distribution>().is_err());
    }
}
