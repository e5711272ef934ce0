//! What has happened, for a person to read: a bounded list, in which what goes on is one event with a growing count.

use std::collections::VecDeque;

use serde::Serialize;

/// Events that are kept.
const KEPT: usize = 50;
/// What happens again within this time belongs to the same event.
const SAME_MS: u64 = 10_000;

/// The families of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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

/// The newest events.
#[derive(Debug, Default)]
pub struct Events {
    /// Oldest first.
    kept: VecDeque<Event>,
}

impl Events {
    /// Notes that something has happened `count` times.
    pub fn note(&mut self, now_unix_ms: u64, kind: EventKind, reason: String, count: u64) {
        let same = self.kept.iter_mut().rev().find(|event| event.kind == kind && event.reason == reason);
        if let Some(event) = same.filter(|event| now_unix_ms.saturating_sub(event.last_unix_ms) <= SAME_MS) {
            event.count += count;
            event.last_unix_ms = now_unix_ms;
            return;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Event { time_unix_ms: now_unix_ms, kind, reason, count, last_unix_ms: now_unix_ms });
    }

    /// The newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Event> {
        self.kept.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_one_event_and_the_list_is_bounded() {
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
        assert_eq!(events.newest().count(), KEPT);
        assert_eq!(events.newest().next().map(|event| event.time_unix_ms), Some(199 * 20_000));
    }
}
