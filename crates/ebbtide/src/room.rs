//! Making room for a write: the retries between a store that is full and one that has evicted.

use crate::cache::Shared;
use crate::error::Error;
use crate::time::Clock;
use ebbtide_store::{Error as StoreError, Participant, Progress, Write, Written};
use std::time::Duration;

/// Slices of eviction that one write may pay for. Far more than any needs: a value of a gigabyte takes about a thousand.
const TRIES: u32 = 100_000;
/// How often nothing may move in a row, and how long a write waits each time: readers and uploads get about 100 ms.
const STUCK_TRIES: u32 = 200;
const STUCK_WAIT: Duration = Duration::from_micros(500);
/// The same for a long value behind others, each of which may wait for room itself: about 2 s.
const TURN_TRIES: u32 = 4000;
/// And so often in all, about 10 s: then values that leave no room for this one have come and gone all the time.
const TURN_TRIES_MOST: u32 = 20_000;

impl Shared {
    /// Begins an upload that may have to wait for others: as long as these end, and a while longer.
    pub(crate) fn in_turn<T>(&self, begin: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let (mut ended_before, mut stuck) = (self.store.uploads_ended(), 0);
        for _ in 0..TURN_TRIES_MOST {
            match begin() {
                // Others cannot have the memory of what this thread holds meanwhile.
                Err(StoreError::UploadLimit { .. }) if stuck < TURN_TRIES && !self.participant().is_pinned() => {
                    let ended = self.store.uploads_ended();
                    stuck = if ended == ended_before { stuck + 1 } else { 0 };
                    ended_before = ended;
                    std::thread::sleep(STUCK_WAIT);
                }
                begun => return begun,
            }
        }
        begin()
    }

    /// A write of a value in one piece; if the caller may wait, what makes a long value longer waits for its turn.
    pub(crate) fn write_in_turn(
        &self,
        waits: bool,
        participant: &Participant,
        write: &Write<'_>,
    ) -> Result<Written, Error> {
        if waits && write.mode.extends() {
            let in_turn = |_| self.in_turn(|| self.store.write(participant, write, self.time.now_ms()));
            return self.with_room(participant, in_turn);
        }
        self.with_room(participant, |now_ms| self.store.write(participant, write, now_ms))
    }

    /// Runs a write until it has found room.
    pub(crate) fn with_room<T>(
        &self,
        participant: &Participant,
        write: impl FnMut(u64) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        self.with_room_while(|| true, participant, write)
    }

    /// The same, and gives up when it may not go on: before each try, and before each slice of evictions.
    pub(crate) fn with_room_while<T>(
        &self,
        may_go_on: impl Fn() -> bool,
        participant: &Participant,
        mut write: impl FnMut(u64) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let mut stuck = 0;
        for _ in 0..TRIES {
            if !may_go_on() {
                return Err(Error::OutOfMemory { reason: "flash has no room for what would be evicted" });
            }
            let now_ms = self.time.now_ms();
            let wanted = match write(now_ms) {
                Ok(done) => {
                    self.after_write(participant, now_ms);
                    return Ok(done);
                }
                Err(StoreError::NeedSegment) => 1,
                Err(StoreError::NeedSegments { count }) => count,
                Err(other) => return Err(Error::from_store(other)),
            };
            if participant.is_pinned() {
                return Err(Error::OutOfMemory { reason: "this thread holds a borrowed item: drop it first" });
            }
            match self.store.evict_for(participant, now_ms, wanted) {
                Progress::Ready | Progress::Working => stuck = 0,
                // Without evictions only a grace period can be worth a wait.
                Progress::Stuck if !self.store.options().evicts && stuck > 2 => break,
                Progress::Stuck => {
                    stuck += 1;
                    if stuck > STUCK_TRIES {
                        return Err(Error::OutOfMemory {
                            reason: "borrowed items, handles or uploads hold the memory",
                        });
                    }
                    std::thread::sleep(STUCK_WAIT);
                }
            }
        }
        Err(Error::OutOfMemory { reason: "the memory is full" })
    }

    /// Has maintenance looked to when free segments run low or the index waits for memory: by the background thread, or,
    /// under a manual clock, by a slice here, so that a flood of small objects does not outrun the index.
    fn after_write(&self, participant: &Participant, now_ms: u64) {
        match self.clock {
            Clock::System if self.store.is_low() || self.store.sheds() => self.bell.ring(),
            Clock::Manual => {
                self.share_memory();
                if self.store.sheds() && !participant.is_pinned() {
                    self.store.maintain(participant, now_ms);
                }
            }
            Clock::System => {}
        }
    }
}
