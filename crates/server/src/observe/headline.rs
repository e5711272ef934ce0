//! The state of the server in one sentence: the worst thing that is known, with its cause where the counts show one.

use ebbtide::flash::Health;

/// Gets that a comparison of hit ratios needs on both sides.
pub const MIN_GETS: u64 = 500;
/// A fall of the hit ratio that is worth a sentence. The sentence stays until the fall is less than `MIN_LASTING_FALL`.
const MIN_FALL: f64 = 0.05;
const MIN_LASTING_FALL: f64 = 0.02;
/// A prefix with this share of the memory, most of it unread, is a cause.
pub const MIN_MEMORY_SHARE: f64 = 0.2;
pub const MIN_UNREAD_SHARE: f64 = 0.8;
/// A step more of memory that saves this many percentage points of misses helps much.
const MIN_SAVED_POINTS: f64 = 3.0;
/// Evictions of which a share says something. Where fewer gets than this share miss, evictions cost little.
const MIN_EVICTIONS: u64 = 100;
const MIN_MISS_RATIO: f64 = 0.05;
/// A prefix with this share of the misses is a cause if its gets hit by less than `MAX_MISSED_RATIO`, and all others by
/// `MIN_FALL` more than all gets.
const MIN_MISS_SHARE: f64 = 0.8;
const MAX_MISSED_RATIO: f64 = 0.5;

/// How good or bad the state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Good,
    /// The data do not suffice yet.
    Unknown,
    /// Something can be done for the hit ratio, or will have to be.
    Attention,
    Bad,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Attention => "attention",
            Self::Bad => "bad",
        }
    }
}

/// Gets and hits of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetCounts {
    pub gets: u64,
    pub hits: u64,
}

impl GetCounts {
    pub fn ratio(self) -> Option<f64> {
        (self.gets > 0).then(|| self.hits as f64 / self.gets as f64)
    }

    pub fn sum(counts: &[Self]) -> Self {
        counts.iter().fold(Self::default(), |sum, one| Self { gets: sum.gets + one.gets, hits: sum.hits + one.hits })
    }
}

/// The prefix of which most is written, among those with much unread memory.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadPrefix {
    pub name: String,
    pub memory_share: f64,
    /// Of the hits of the last minute.
    pub hit_share: f64,
    pub unread_share: f64,
}

/// The prefix with the most misses, in the last minute.
#[derive(Clone, Debug, PartialEq)]
pub struct MissedPrefix {
    pub name: String,
    /// Of all misses.
    pub miss_share: f64,
    pub hit_ratio: f64,
    /// Of the gets of all other keys.
    pub hit_ratio_of_others: f64,
}

/// The effect of a step more of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeAdvice {
    pub text: String,
    /// Percentage points of misses that it would save; 0 while memory is not full.
    pub saved_points: f64,
}

/// Inputs of the sentence.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether the previous sentence reported a fall of the hit ratio.
    pub was_fall: bool,
    pub items: u64,
    /// Of the last minute, as all counts of now, and of a good minute before it.
    pub now: GetCounts,
    pub before: GetCounts,
    /// Objects that memory lost to make space.
    pub evictions_now: u64,
    /// Objects that flash lost to make space.
    pub flash_evictions_now: u64,
    /// Share of sampled evictions of objects without a counted read since their write.
    pub evicted_unread_share: Option<f64>,
    pub refused_for_memory_now: u64,
    pub health: Option<Health>,
    /// `None` if keys may not be shown.
    pub unread: Option<UnreadPrefix>,
    pub missed: Option<MissedPrefix>,
    pub sizing: Option<SizeAdvice>,
}

impl Facts {
    fn evicts(&self) -> bool {
        self.evictions_now > 0 || self.flash_evictions_now > 0
    }
}

/// The sentence and its level.
pub fn headline(facts: &Facts) -> (Level, String) {
    if facts.health == Some(Health::Failed) {
        return (Level::Bad, "The device of flash has failed: all is served from memory. Replace it.".to_owned());
    }
    if facts.refused_for_memory_now > 0 {
        let count = facts.refused_for_memory_now;
        return (
            Level::Bad,
            format!("{count} writes were refused for want of memory in the last minute: give more (-m)."),
        );
    }
    if let Some(sentence) = fall(facts) {
        return (Level::Bad, sentence);
    }
    if facts.health == Some(Health::Degraded) {
        return (Level::Attention, "The device of flash had errors or stalls: see the system's log.".to_owned());
    }
    let Some(ratio) = facts.now.ratio() else {
        let state = match facts.items {
            0 => "Nothing is stored yet, and no client asks.",
            _ => "No gets in the last minute.",
        };
        return (Level::Unknown, state.to_owned());
    };
    let hits = format!("{} of gets hit", percent(ratio));
    if let Some(cause) = cause(facts).filter(|_| facts.evicts()) {
        return (Level::Attention, format!("{hits}. {cause}"));
    }
    if let Some(sizing) = facts.sizing.as_ref().filter(|sizing| helps_much(facts, sizing)) {
        return (Level::Attention, format!("{hits}; {}", sizing.text));
    }
    if let Some(sentence) = unread_evictions(facts) {
        return (Level::Attention, format!("{hits}. {sentence}"));
    }
    match &facts.sizing {
        Some(sizing) => (Level::Good, format!("{hits}; {}", sizing.text)),
        None if !facts.evicts() => (Level::Good, format!("{hits}, and nothing is evicted.")),
        None => (Level::Good, format!("{hits}; too few gets were sampled to say what more memory would give.")),
    }
}

/// Beginning of a sentence about a fall of the hit ratio.
pub const FALL: &str = "The hit ratio fell";

/// The prefix that causes the misses: by its own gets, or by the memory that it takes from others.
fn cause(facts: &Facts) -> Option<String> {
    let missed = missed_prefix(facts);
    let is_of_another = |(name, _): &(&str, String)| facts.missed.as_ref().is_none_or(|missed| missed.name != **name);
    let unread = unread_prefix(facts);
    match (missed, unread) {
        (Some(missed), Some(unread)) => Some(if is_of_another(&unread) { unread.1 } else { missed }),
        (missed, unread) => missed.or(unread.map(|(_, sentence)| sentence)),
    }
}

fn missed_prefix(facts: &Facts) -> Option<String> {
    let (MissedPrefix { name, miss_share, hit_ratio, hit_ratio_of_others }, all) =
        (facts.missed.as_ref()?, facts.now.ratio()?);
    let is_cause = facts.now.gets >= MIN_GETS
        && *miss_share >= MIN_MISS_SHARE
        && *hit_ratio < MAX_MISSED_RATIO
        && *hit_ratio_of_others >= all + MIN_FALL;
    is_cause.then(|| {
        format!(
            "{} of the misses are gets of {name}, which hit by {}; all others hit by {}.",
            percent(*miss_share),
            percent(*hit_ratio),
            percent(*hit_ratio_of_others)
        )
    })
}

fn helps_much(facts: &Facts, sizing: &SizeAdvice) -> bool {
    facts.now.gets >= MIN_GETS && sizing.saved_points >= MIN_SAVED_POINTS
}

/// Most objects leave without a read, and many gets miss.
fn unread_evictions(facts: &Facts) -> Option<String> {
    let (share, ratio) = (facts.evicted_unread_share?, facts.now.ratio()?);
    let costs_hits = facts.now.gets >= MIN_GETS && 1.0 - ratio >= MIN_MISS_RATIO;
    let is_majority = facts.evictions_now >= MIN_EVICTIONS && share >= MIN_UNREAD_SHARE;
    (is_majority && costs_hits).then(|| {
        let share = percent(share);
        format!(
            "{share} of the evicted objects leave unread: give them a shorter TTL, or do not store what nobody reads."
        )
    })
}

/// The hit ratio has fallen.
fn fall(facts: &Facts) -> Option<String> {
    if facts.now.gets < MIN_GETS || facts.before.gets < MIN_GETS {
        return None;
    }
    let (now, before) = (facts.now.ratio()?, facts.before.ratio()?);
    let min_fall = if facts.was_fall { MIN_LASTING_FALL } else { MIN_FALL };
    if before - now < min_fall {
        return None;
    }
    let fell = format!("{FALL} from {} to {}", percent(before), percent(now));
    Some(match cause(facts) {
        Some(cause) => format!("{fell}. {cause}"),
        None if facts.evictions_now > 0 => format!("{fell} while memory is full. See \"Who uses the memory\"."),
        None if facts.flash_evictions_now > 0 => format!("{fell} while flash is full: give it more space (--flash)."),
        None => format!("{fell}, and nothing is evicted: clients ask for other keys, or values expired."),
    })
}

/// The name and the sentence.
fn unread_prefix(facts: &Facts) -> Option<(&str, String)> {
    let UnreadPrefix { name, memory_share, hit_share, unread_share } = facts.unread.as_ref()?;
    let sentence = || {
        format!(
            "Keys of {name} take {} of the memory and give {} of the hits; {} of them are unread.",
            percent(*memory_share),
            percent(*hit_share),
            percent(*unread_share)
        )
    };
    (*memory_share >= MIN_MEMORY_SHARE && *unread_share >= MIN_UNREAD_SHARE).then(|| (&**name, sentence()))
}

fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        value if value > 99.9 && value < 100.0 => "99.9 %".to_owned(),
        value if value >= 99.95 || value == 0.0 => format!("{value:.0} %"),
        value => format!("{value:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(gets: u64, hits: u64) -> GetCounts {
        GetCounts { gets, hits }
    }

    fn advice(text: &str, saved_points: f64) -> Option<SizeAdvice> {
        Some(SizeAdvice { text: text.to_owned(), saved_points })
    }

    #[test]
    fn memory_that_helps_much_asks_for_attention() {
        let of = |gets, saved_points| {
            let sizing = advice("16 MiB more memory would save points of misses.", saved_points);
            headline(&Facts { items: 9, now: counts(gets, gets / 2), evictions_now: 5, sizing, ..Facts::default() })
        };
        let told = "50.0 % of gets hit; 16 MiB more memory would save points of misses.".to_owned();
        assert_eq!(of(1000, 12.0), (Level::Attention, told.clone()));
        assert_eq!(of(1000, 3.0).0, Level::Attention);
        assert_eq!(of(1000, 2.9), (Level::Good, told));
        assert_eq!(of(100, 12.0).0, Level::Good, "few gets");
    }

    #[test]
    fn objects_that_leave_unread_ask_for_attention() {
        let facts = Facts {
            items: 9,
            now: counts(1000, 700),
            evictions_now: 5000,
            evicted_unread_share: Some(0.912),
            sizing: advice("16 MiB more memory would save nothing.", 0.0),
            ..Facts::default()
        };
        let told = "70.0 % of gets hit. 91.2 % of the evicted objects leave unread: give them a shorter TTL, or do not \
                    store what nobody reads.";
        assert_eq!(headline(&facts), (Level::Attention, told.to_owned()));
        let helped =
            Facts { sizing: advice("16 MiB more memory would save 4.0 points of misses.", 4.0), ..facts.clone() };
        assert!(headline(&helped).1.ends_with("4.0 points of misses."), "what memory would save comes first");
        for good in [
            Facts { now: counts(1000, 960), ..facts.clone() },
            Facts { now: counts(100, 70), ..facts.clone() },
            Facts { evictions_now: 50, ..facts.clone() },
            Facts { evicted_unread_share: Some(0.6), ..facts.clone() },
            Facts { evicted_unread_share: None, ..facts },
        ] {
            let (level, told) = headline(&good);
            assert!(level == Level::Good && told.ends_with("would save nothing."), "{told}");
        }
    }

    fn flood() -> Option<UnreadPrefix> {
        Some(UnreadPrefix { name: "flood:".to_owned(), memory_share: 0.71, hit_share: 0.004, unread_share: 0.985 })
    }

    #[test]
    fn a_fall_is_reported_with_its_flooding_prefix() {
        let facts = Facts { items: 9, now: counts(1000, 610), before: counts(9000, 8280), ..Facts::default() };
        let (level, told) = headline(&Facts { unread: flood(), evictions_now: 5, ..facts.clone() });
        assert_eq!(level, Level::Bad);
        assert_eq!(
            told,
            "The hit ratio fell from 92.0 % to 61.0 %. Keys of flood: take 71.0 % of the memory and give 0.4 % of the \
             hits; 98.5 % of them are unread."
        );
        let read = UnreadPrefix { unread_share: 0.1, ..flood().unwrap() };
        let (_, told) = headline(&Facts { unread: Some(read), evictions_now: 5, ..facts.clone() });
        assert!(told.ends_with("while memory is full. See \"Who uses the memory\"."), "{told}");
        let (_, told) = headline(&Facts { flash_evictions_now: 5, ..facts.clone() });
        assert!(told.ends_with("while flash is full: give it more space (--flash)."), "{told}");
        let (_, told) = headline(&facts);
        assert!(told.ends_with("clients ask for other keys, or values expired."), "{told}");
    }

    #[test]
    fn a_fall_is_reported_with_its_missed_prefix() {
        let missed =
            MissedPrefix { name: "item:".to_owned(), miss_share: 0.99, hit_ratio: 0.004, hit_ratio_of_others: 0.995 };
        let (now, before) = (counts(1000, 850), counts(9000, 8950));
        let facts = Facts { now, before, missed: Some(missed.clone()), evictions_now: 5, ..Facts::default() };
        let cause = "99.0 % of the misses are gets of item:, which hit by 0.4 %; all others hit by 99.5 %.";
        let fell = "The hit ratio fell from 99.4 % to 85.0 %.";
        assert_eq!(headline(&facts).1, format!("{fell} {cause}"));
        // The prefix also writes objects that are never read.
        let own = UnreadPrefix { name: "item:".to_owned(), ..flood().unwrap() };
        assert_eq!(headline(&Facts { unread: Some(own), ..facts.clone() }).1, format!("{fell} {cause}"));
        // Its objects were pushed out by those of another.
        let told = headline(&Facts { unread: flood(), ..facts.clone() }).1;
        assert!(told.starts_with(&format!("{fell} Keys of flood: take")), "{told}");
        // The gets of other prefixes miss, too.
        let missed = MissedPrefix { hit_ratio_of_others: 0.89, ..missed };
        let told = headline(&Facts { missed: Some(missed), ..facts }).1;
        assert!(told.ends_with("See \"Who uses the memory\"."), "{told}");
    }

    #[test]
    fn a_fall_is_reported_until_mostly_recovered() {
        let facts = Facts { now: counts(1000, 951), before: counts(1000, 1000), ..Facts::default() };
        assert_eq!(headline(&facts).0, Level::Good);
        let lasting = Facts { was_fall: true, ..facts };
        assert!(headline(&lasting).1.starts_with(FALL));
        assert_eq!(headline(&Facts { now: counts(1000, 981), ..lasting }).0, Level::Good);
    }

    #[test]
    fn a_flood_of_quarter_memory_hides_sizing() {
        let unread = UnreadPrefix { memory_share: 0.25, ..flood().unwrap() };
        let sizing = advice("8 MiB more memory would save 2.0 points of misses.", 2.0);
        let facts = Facts {
            now: counts(1000, 801),
            before: counts(1000, 925),
            unread: Some(unread),
            evictions_now: 5,
            sizing,
            ..Facts::default()
        };
        let cause = "Keys of flood: take 25.0 % of the memory and give 0.4 % of the hits; 98.5 % of them are unread.";
        assert_eq!(headline(&facts).1, format!("The hit ratio fell from 92.5 % to 80.1 %. {cause}"));
        let steady = Facts { before: counts(1000, 801), ..facts };
        assert_eq!(headline(&steady), (Level::Attention, format!("80.1 % of gets hit. {cause}")));
    }

    #[test]
    fn nothing_is_claimed_of_few_gets() {
        let few = Facts { items: 1, now: counts(10, 1), before: counts(9000, 9000), ..Facts::default() };
        assert_eq!(headline(&few), (Level::Good, "10.0 % of gets hit, and nothing is evicted.".to_owned()));
        let idle = Facts { items: 1, ..Facts::default() };
        assert_eq!(headline(&idle), (Level::Unknown, "No gets in the last minute.".to_owned()));
        assert_eq!(headline(&Facts::default()).1, "Nothing is stored yet, and no client asks.");
    }

    #[test]
    fn the_worst_comes_first() {
        let all = Facts {
            health: Some(Health::Failed),
            refused_for_memory_now: 7,
            now: counts(1000, 0),
            before: counts(1000, 1000),
            ..Facts::default()
        };
        assert!(headline(&all).1.starts_with("The device of flash has failed"));
        let refused = Facts { health: None, ..all };
        assert!(headline(&refused).1.starts_with("7 writes were refused"));
        let good =
            Facts { now: counts(10, 9), sizing: advice("more memory would add little.", 0.0), ..Facts::default() };
        assert_eq!(headline(&good), (Level::Good, "90.0 % of gets hit; more memory would add little.".to_owned()));
    }
}
