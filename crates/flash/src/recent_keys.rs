//! Keys that were seen recently.
//!
//! ```text
//! seen(key) -> youngest filter --- half a window, or full ---> older filter --- as long ---> forgotten
//! ```
//! A key is remembered for at least half a window and at most a whole one, or for less time if more keys arrive than
//! the filters hold. About two foreign keys in a hundred are false positives.

use crate::FlashHash;
use crate::bloom::Bloom;
use std::sync::Mutex;

/// Keys for each block of 64 bytes of a filter.
const BLOCK_KEYS: usize = 42;
const BLOCK_BYTES: usize = 64;

pub struct RecentKeys {
    /// Keys of a filter.
    space: usize,
    state: Mutex<State>,
}

struct State {
    /// The window that the filters are of.
    window: u32,
    filters: [Bloom; 2],
    youngest: usize,
    /// When the youngest began, and how many keys it has.
    began: u32,
    added: usize,
}

impl RecentKeys {
    /// Filters with `bytes` of memory, at least 128.
    pub fn new(bytes: usize) -> Self {
        let space = (bytes / 2 / BLOCK_BYTES).max(1) * BLOCK_KEYS;
        let filters = [Bloom::new(space), Bloom::new(space)];
        Self { space, state: Mutex::new(State { window: 0, filters, youngest: 0, began: 0, added: 0 }) }
    }

    /// Whether the key was seen recently; records it as seen. `now` is in the unit of the window. It does not go back,
    /// but it may wrap around. With another window than before nothing was seen recently.
    pub fn seen(&self, key: FlashHash, now: u32, window: u32) -> bool {
        let mut state = self.state.lock().expect("nothing panics under this lock");
        if state.window != window {
            state.window = window;
            (0..2).for_each(|_| state.turn(now));
        }
        if state.added == 0 {
            state.began = now;
        }
        let (age, half) = (since(state.began, now), window / 2);
        if age >= half || state.added >= self.space {
            state.turn(now);
            if age >= 2 * half {
                state.turn(now);
            }
        }
        let (youngest, older) = (state.youngest, 1 - state.youngest);
        let is_new = state.filters[youngest].add(key.0);
        state.added += usize::from(is_new);
        !is_new || state.filters[older].has(key.0)
    }

    pub fn memory_bytes(&self) -> usize {
        self.state.lock().expect("nothing panics under this lock").filters.iter().map(Bloom::memory_bytes).sum()
    }
}

/// 0 if another thread has set a slightly later `began`.
fn since(began: u32, now: u32) -> u32 {
    (now.wrapping_sub(began) as i32).max(0) as u32
}

impl State {
    /// The older filter is emptied and becomes the youngest.
    fn turn(&mut self, now: u32) {
        self.youngest = 1 - self.youngest;
        self.filters[self.youngest].clear();
        (self.began, self.added) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 60;

    fn key(number: u32) -> FlashHash {
        FlashHash::of(&number.to_le_bytes())
    }

    #[test]
    fn keys_are_remembered_half_to_one_window() {
        for (again, is_known) in [(100, true), (129, true), (130, true), (159, true), (160, false), (1000, false)] {
            let recent = RecentKeys::new(1 << 10);
            // The filter began at 100.
            assert!(!recent.seen(key(0), 100, WINDOW));
            assert_eq!(recent.seen(key(0), again, WINDOW), is_known, "{again}");
            assert!(recent.seen(key(0), again, WINDOW), "{again}");
        }
        let recent = RecentKeys::new(1 << 10);
        recent.seen(key(1), 100, WINDOW);
        recent.seen(key(2), 129, WINDOW);
        assert!(recent.seen(key(2), 130, WINDOW), "its filter is the older one now");
        assert!(!recent.seen(key(1), 160, WINDOW), "half a minute later it is gone");
    }

    #[test]
    fn another_window_begins_anew() {
        let recent = RecentKeys::new(1 << 10);
        assert!(!recent.seen(key(0), 1_000_000, WINDOW) && recent.seen(key(0), 1_000_000, WINDOW));
        assert!(!recent.seen(key(0), 7, 64) && recent.seen(key(0), 38, 64));
        assert!(!recent.seen(key(0), 102, 64), "the time counts from the change");
    }

    #[test]
    fn excess_keys_shorten_the_window() {
        let recent = RecentKeys::new(1 << 10);
        let keys = 2 * recent.space as u32 + 1;
        assert!(recent.memory_bytes() <= 1 << 10, "{}", recent.memory_bytes());
        assert!(!recent.seen(key(0), 100, WINDOW));
        (1..keys / 4).for_each(|number| _ = recent.seen(key(number), 100, WINDOW));
        assert!(recent.seen(key(0), 100, WINDOW));
        (keys..3 * keys).for_each(|number| _ = recent.seen(key(number), 100, WINDOW));
        assert!(!recent.seen(key(0), 100, WINDOW));
    }
}
