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
    half_seconds: u32,
    /// Keys of a filter.
    space: usize,
    state: Mutex<State>,
}

struct State {
    filters: [Bloom; 2],
    youngest: usize,
    /// When the youngest began, and how many keys it has.
    began: u32,
    added: usize,
}

impl RecentKeys {
    /// Filters with `bytes` of memory, at least 128.
    pub fn new(bytes: usize, window_seconds: u32) -> Self {
        let space = (bytes / 2 / BLOCK_BYTES).max(1) * BLOCK_KEYS;
        let filters = [Bloom::new(space), Bloom::new(space)];
        let state = Mutex::new(State { filters, youngest: 0, began: 0, added: 0 });
        Self { half_seconds: window_seconds / 2, space, state }
    }

    /// Whether the key was seen recently; records it as seen. `now` is in seconds, or in the unit of the window. It
    /// does not go back, but it may wrap around.
    pub fn seen(&self, key: FlashHash, now: u32) -> bool {
        let mut state = self.state.lock().expect("nothing panics under this lock");
        if state.added == 0 {
            state.began = now;
        }
        let age = since(state.began, now);
        if age >= self.half_seconds || state.added >= self.space {
            state.turn(now);
            if age >= 2 * self.half_seconds {
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

    fn key(number: u32) -> FlashHash {
        FlashHash::of(&number.to_le_bytes())
    }

    #[test]
    fn a_key_is_remembered_for_half_a_window_at_least_and_one_at_most() {
        for (again, is_known) in [(100, true), (129, true), (130, true), (159, true), (160, false), (1000, false)] {
            let recent = RecentKeys::new(1 << 10, 60);
            // The filter began at 100.
            assert!(!recent.seen(key(0), 100));
            assert_eq!(recent.seen(key(0), again), is_known, "{again}");
            assert!(recent.seen(key(0), again), "{again}");
        }
        let recent = RecentKeys::new(1 << 10, 60);
        recent.seen(key(1), 100);
        recent.seen(key(2), 129);
        assert!(recent.seen(key(2), 130), "its filter is the older one now");
        assert!(!recent.seen(key(1), 160), "half a minute later it is gone");
    }

    #[test]
    fn more_keys_than_there_is_space_for_make_the_window_shorter() {
        let recent = RecentKeys::new(1 << 10, 60);
        let keys = 2 * recent.space as u32 + 1;
        assert!(recent.memory_bytes() <= 1 << 10, "{}", recent.memory_bytes());
        assert!(!recent.seen(key(0), 100));
        (1..keys / 4).for_each(|number| _ = recent.seen(key(number), 100));
        assert!(recent.seen(key(0), 100));
        (keys..3 * keys).for_each(|number| _ = recent.seen(key(number), 100));
        assert!(!recent.seen(key(0), 100));
    }
}
