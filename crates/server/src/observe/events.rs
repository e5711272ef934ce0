//! Events for the operator: a bounded list for each kind. An event that repeats within seconds is one event with a
//! count. A frequent kind does not displace another one.

use serde::Serialize;

/// Events of each kind that are kept.
pub const PLACES: usize = 32;
/// Repetitions within this time belong to the same event.
const SAME_MS: u64 = 10_000;

/// The families of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(usize)]
pub enum EventKind {
    Start,
    Eviction,
    Expiry,
    Resize,
    Division,
    Flush,
    Connections,
    Warning,
}

impl EventKind {
    /// In the order of their numbers, by which a history file names them.
    pub const ALL: [Self; 8] = [
        Self::Start,
        Self::Eviction,
        Self::Expiry,
        Self::Resize,
        Self::Division,
        Self::Flush,
        Self::Connections,
        Self::Warning,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When it began.
    pub time_unix_ms: u64,
    pub kind: EventKind,
    pub reason: String,
    /// How many objects, connections or commands it was about.
    pub count: u64,
    /// When it was last seen to go on.
    pub last_unix_ms: u64,
}

/// The newest events of each kind.
#[derive(Debug, Default)]
pub struct Events {
    /// By kind. An event keeps its place.
    kinds: [[Option<Event>; PLACES]; EventKind::ALL.len()],
}

impl Events {
    /// Events of an earlier run, with their places.
    pub fn of_earlier_run(earlier: Vec<(usize, Event)>) -> Self {
        let mut events = Self::default();
        for (place, event) in earlier {
            let known = &mut events.kinds[event.kind as usize];
            known[place] = Some(event);
        }
        events
    }

    /// Notes that something has happened `count` times. Answers its place among those of its kind, and the event.
    pub fn note(&mut self, now_unix_ms: u64, kind: EventKind, reason: String, count: u64) -> (usize, &Event) {
        let known = &mut self.kinds[kind as usize];
        let is_same =
            |event: &Event| event.reason == reason && now_unix_ms.saturating_sub(event.last_unix_ms) <= SAME_MS;
        let same = known.iter().position(|event| event.as_ref().is_some_and(is_same));
        // A free place is taken before that of the oldest event.
        let oldest =
            || (0..PLACES).min_by_key(|place| known[*place].as_ref().map(|event| event.last_unix_ms)).unwrap_or(0);
        let place = same.unwrap_or_else(oldest);
        let before = if same.is_some() { known[place].take() } else { None };
        let (time_unix_ms, counted) = before.map_or((now_unix_ms, 0), |event| (event.time_unix_ms, event.count));
        let event = Event { time_unix_ms, kind, reason, count: counted + count, last_unix_ms: now_unix_ms };
        (place, self.kinds[kind as usize][place].insert(event))
    }

    /// The newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Event> {
        let mut all: Vec<&Event> = self.kinds.iter().flatten().flatten().collect();
        // Of one moment the kind that is noted later is first.
        all.sort_by_key(|event| std::cmp::Reverse((event.time_unix_ms, event.kind as usize)));
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_merge_and_the_list_is_bounded() {
        let mut events = Events::default();
        for second in 0..30 {
            events.note(second * 1000, EventKind::Eviction, "full".to_string(), 5);
        }
        events.note(31_000, EventKind::Flush, "flush_all".to_string(), 1);
        events.note(50_000, EventKind::Eviction, "full".to_string(), 1);
        let seen: Vec<_> = events.newest().map(|event| (event.time_unix_ms, event.kind, event.count)).collect();
        assert_eq!(
            seen,
            [(50_000, EventKind::Eviction, 1), (31_000, EventKind::Flush, 1), (0, EventKind::Eviction, 150)]
        );
        for time in 0..200 {
            events.note(time * 20_000, EventKind::Warning, "x".to_string(), 1);
        }
        let warnings = || events.newest().filter(|event| event.kind == EventKind::Warning);
        assert_eq!(warnings().count(), PLACES);
        assert_eq!(warnings().next().map(|event| event.time_unix_ms), Some(199 * 20_000));
    }

    #[test]
    fn evictions_that_pause_do_not_displace_a_flush() {
        let mut events = Events::default();
        events.note(0, EventKind::Flush, "flush_all".to_string(), 1);
        events.note(0, EventKind::Resize, "64 to 32 MiB".to_string(), 1);
        for pause in 1..1000 {
            events.note(pause * 30_000, EventKind::Eviction, "full".to_string(), 1);
        }
        for kind in [EventKind::Flush, EventKind::Resize] {
            assert!(events.newest().any(|event| event.kind == kind), "{kind:?}");
        }
    }

    #[test]
    fn kinds_are_numbered_as_they_are_listed() {
        for (number, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }
}
